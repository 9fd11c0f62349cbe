# SPDX-License-Identifier: Apache-2.0
"""Keras optimizers whose gradients are reduced over the ranks.

The distributed optimizer is a copy of the given one, with its variables and its
state, whose class is derived from the optimizer's and has the same name and
module.  So a saved model names Keras's own class, and loads without hvd.

Keras 2 asks its optimizer for the gradients, which is where they are reduced.
Keras 3 computes them itself, and gives them to Optimizer.apply().
"""

from __future__ import annotations

from typing import Any, Callable

from .._accumulate import Accumulator
from .._lazy import tf
from .._reduce import Reducer


class Settings:
    """Parameters of DistributedOptimizer() that belong to the new class."""

    def __init__(
        self,
        make_reducer: Callable[[], Reducer],
        passes: int = 1,
        average_passes: bool = False,
    ) -> None:
        if passes < 1:
            raise ValueError("backward_passes_per_step must be positive")
        self.make_reducer = make_reducer
        self.passes = passes
        self.average_passes = average_passes


class _Distributed:
    """Adds to an optimizer what Keras 2 and Keras 3 both need."""

    _hvd_settings: Settings
    _hvd_reducer: Reducer
    _agg_helper: Accumulator | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hvd_start()

    def _hvd_start(self) -> None:
        """Makes what is not copied from the given optimizer."""
        settings = self._hvd_settings
        self._hvd_reducer = settings.make_reducer()
        self._agg_helper = None
        if settings.passes > 1:
            self._agg_helper = Accumulator(
                self._hvd_reducer, settings.passes, settings.average_passes
            )

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradients of `var` on this rank."""
        self._hvd_reducer.register_local(var)

    def _allreduce(self, grads: Any, variables: Any) -> list[Any]:
        """Returns the reduced gradients.

        With backward_passes_per_step=n, the sums so far, which every n-th call
        reduces over the ranks.
        """
        grads, variables = list(grads), list(variables)
        if self._agg_helper is None:
            return self._hvd_reducer.reduce(grads, variables)
        sums = self._agg_helper.add(grads, variables)
        made = self._agg_helper.made_variables()
        if made:
            session = tf.compat.v1.keras.backend.get_session()
            session.run(tf.compat.v1.variables_initializer(made))
        return sums


class _Keras2(_Distributed):
    """Reduces gradients of Keras 2's optimizers, tf.keras.optimizers.legacy too."""

    _HAS_AGGREGATE_GRAD = True

    def compute_gradients(
        self, loss: Any, var_list: Any, tape: Any = None
    ) -> list[Any]:
        """Returns pairs (reduced gradient, variable).

        `loss` is a function, or a tensor that `tape` has recorded.
        """
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[Any]:
        base = super()
        if hasattr(base, "_compute_gradients"):
            pairs = base._compute_gradients(loss, var_list, grad_loss, tape=tape)
        else:
            tape = tf.GradientTape() if tape is None else tape
            pairs = base.compute_gradients(loss, var_list, tape=tape)
        pairs = list(pairs)
        variables = [v for _, v in pairs]
        return list(zip(self._allreduce([g for g, _ in pairs], variables), variables))

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """Returns the reduced gradients of a tensor of a graph."""
        return self._allreduce(super().get_gradients(loss, params), params)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies gradients that compute_gradients() returned; reduces none.

        With backward_passes_per_step=n, only in every n-th call; `iterations` still
        rises by one in every call.
        """
        pairs = list(grads_and_vars)
        if self._agg_helper is None:
            return super().apply_gradients(pairs, *args, **kwargs)
        with tf.init_scope():
            self.iterations  # makes the variable outside of the condition

        def apply() -> Any:
            return super(_Keras2, self).apply_gradients(pairs, *args, **kwargs)

        def skip() -> Any:
            return self.iterations.assign_add(1)

        return self._agg_helper.apply([g for g, _ in pairs], apply, skip)


class _CallableList(list):
    """A list that returns itself when called: Keras 2's `variables` is a method."""

    def __call__(self) -> list[Any]:
        return self


class _Keras3(_Distributed):
    """Reduces gradients of Keras 3's optimizers."""

    @property
    def variables(self) -> Any:
        """The optimizer's variables; may be called, as in Keras 2."""
        return _CallableList(super().variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Reduces gradients over the ranks, and applies them.

        With backward_passes_per_step=n, only in every n-th call; `iterations` still
        rises by one in every call.
        """
        grads = list(grads)
        if trainable_variables is None:
            variables = list(self._trainable_variables)
        else:
            variables = trainable_variables = list(trainable_variables)
            if not self.built:
                with tf.init_scope():
                    self.build(variables)
        if len(grads) != len(variables):
            raise ValueError(
                f"{len(grads)} gradients were given for {len(variables)} variables"
            )
        reduced = self._allreduce(grads, variables)
        if self._agg_helper is None:
            super().apply(reduced, trainable_variables)
            return

        def apply() -> None:
            super(_Keras3, self).apply(reduced, trainable_variables)

        def skip() -> None:
            self.iterations.assign(self.iterations + 1)

        self._agg_helper.apply(reduced, apply, skip)


def _is_keras_2(optimizer_class: type) -> bool:
    names = ("compute_gradients", "_compute_gradients", "get_gradients")
    return any(hasattr(optimizer_class, name) for name in names)


def is_distributed(optimizer: Any) -> bool:
    """Returns whether `optimizer` came from distribute()."""
    return isinstance(optimizer, _Distributed)


def distribute(keras: Any, optimizer: Any, settings: Settings) -> Any:
    """Returns a copy of a Keras optimizer that reduces gradients.

    The copy takes over the variables: do not use `optimizer` after that.

    Raises ValueError if it is distributed already or is not an optimizer;
    NotImplementedError if Keras 3 does not run on TensorFlow.
    """
    if is_distributed(optimizer):
        raise ValueError("the optimizer is distributed already")
    kind = type(optimizer)
    if not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"{kind.__name__} is not a Keras optimizer")
    base = _Keras2
    if not _is_keras_2(kind):
        base = _Keras3
        backend = keras.backend.backend()
        if backend != "tensorflow":
            raise NotImplementedError(
                f"hvd.keras reduces gradients of Keras on TensorFlow, not on {backend};"
                " with torch, write the training loop with hvd.torch"
            )
    body = {"_hvd_settings": settings, "__module__": kind.__module__}
    new_class = type(kind.__name__, (base, kind), body)
    new = new_class.__new__(new_class)
    for name, value in vars(optimizer).items():
        object.__setattr__(new, name, value)
    new._hvd_start()
    return new


