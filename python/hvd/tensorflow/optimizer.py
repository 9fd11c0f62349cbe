# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tf.compat.v1.train whose gradients are reduced over the ranks,
and DistributedOptimizer(), which also takes those of Keras."""

from __future__ import annotations

import functools
from typing import Any

from ._accumulate import Accumulator
from ._lazy import executing_eagerly, tf
from ._reduce import Reducer, check_groups, check_op
from .compression import Compression
from .mpi_ops import Adasum, Average, global_process_set
from .ops import grouped_allreduce


@functools.lru_cache(maxsize=None)
def _v1_class() -> type:
    """Makes the class, when TensorFlow is needed for the first time."""

    class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
        """Reduces in compute_gradients(), and leaves the rest to `optimizer`."""

        def __init__(
            self,
            optimizer: Any,
            name: str,
            use_locking: bool,
            reducer: Reducer,
            accumulator: Accumulator | None,
        ) -> None:
            super().__init__(use_locking=use_locking, name=name)
            self._optimizer = optimizer
            self._hvd_reducer = reducer
            self._agg_helper = accumulator

        def register_local_var(self, var: Any) -> None:
            """Keeps the gradients of `var` on this rank."""
            self._hvd_reducer.register_local(var)

        def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
            """Returns pairs (reduced gradient, variable); the parameters are those
            of the optimizer."""
            pairs = self._optimizer.compute_gradients(*args, **kwargs)
            grads = [g for g, _ in pairs]
            variables = [v for _, v in pairs]
            with tf.name_scope(self._name + "_Allreduce"):
                if self._agg_helper is not None:
                    grads = self._agg_helper.add(grads, variables)
                else:
                    grads = self._hvd_reducer.reduce(grads, variables)
            return list(zip(grads, variables))

        def apply_gradients(
            self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
        ) -> Any:
            """Applies gradients of compute_gradients(), as the optimizer does.

            With backward_passes_per_step=n, only in every n-th call; `global_step`
            still rises by one in every call.
            """
            pairs = list(grads_and_vars)

            def apply() -> Any:
                return self._optimizer.apply_gradients(pairs, global_step, name)

            def skip() -> Any:
                if global_step is None:
                    return tf.no_op()
                return global_step.assign_add(1)

            if self._agg_helper is None:
                return apply()
            return self._agg_helper.apply([g for g, _ in pairs], apply, skip)

        def get_slot(self, *args: Any, **kwargs: Any) -> Any:
            return self._optimizer.get_slot(*args, **kwargs)

        def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
            return self._optimizer.get_slot_names(*args, **kwargs)

        def variables(self, *args: Any, **kwargs: Any) -> Any:
            return self._optimizer.variables(*args, **kwargs)

    return _DistributedOptimizer


@functools.lru_cache(maxsize=None)
def _adasum_class() -> type:
    class _DistributedAdasumOptimizer(tf.compat.v1.train.Optimizer):
        """Applies gradients on each rank, and combines by Adasum what that changed.

        Only in graphs.  After each `passes`-th step a variable is what it was
        after the last combination, plus the combined changes.
        """

        def __init__(
            self,
            optimizer: Any,
            name: str,
            use_locking: bool,
            compression: Any,
            passes: int,
        ) -> None:
            super().__init__(use_locking=use_locking, name=name)
            self._optimizer = optimizer
            self._hvd_compression = compression
            self._hvd_passes = passes

        def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
            return self._optimizer.compute_gradients(*args, **kwargs)

        def apply_gradients(
            self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
        ) -> Any:
            pairs = list(grads_and_vars)
            variables = [v for g, v in pairs if g is not None]
            with tf.name_scope(self._name):
                steps = self._counter()
                starts = [self._get_or_make_start(v) for v in variables]
                first = tf.equal(steps.read_value(), 0)
                copies = [
                    s.assign(tf.where(first, v.read_value(), s.read_value()))
                    for s, v in zip(starts, variables)
                ]
                with tf.control_dependencies(copies):
                    applied = self._optimizer.apply_gradients(pairs, global_step, name)
                with tf.control_dependencies([applied]):
                    count = tf.identity(steps.assign_add(1))
                last = tf.equal(count % self._hvd_passes, 0)
                done = tf.cond(
                    last,
                    lambda: self._combine(starts, variables),
                    lambda: tf.constant(True),
                )
                return tf.group(done)

        def _counter(self) -> Any:
            if getattr(self, "_hvd_steps", None) is None:
                self._hvd_steps = tf.compat.v1.Variable(
                    tf.constant(0, tf.int64),
                    trainable=False,
                    use_resource=True,
                    name=self._name + "_steps",
                )
            return self._hvd_steps

        def _get_or_make_start(self, variable: Any) -> Any:
            return self._get_or_make_slot(
                variable,
                tf.zeros(variable.shape, variable.dtype.base_dtype),
                "delta_start",
                self._name,
            )

        def _combine(self, starts: list[Any], variables: list[Any]) -> Any:
            pairs = zip(variables, starts)
            deltas = [v.read_value() - s.read_value() for v, s in pairs]
            deltas = grouped_allreduce(
                deltas, compression=self._hvd_compression, op=Adasum
            )
            values = [s.read_value() + d for s, d in zip(starts, deltas)]
            sets = [s.assign(x) for s, x in zip(starts, values)]
            sets += [v.assign(x) for v, x in zip(variables, values)]
            with tf.control_dependencies(sets):
                return tf.constant(True)

        def get_slot(self, var: Any, name: str) -> Any:
            slot = super().get_slot(var, name)
            return slot if slot is not None else self._optimizer.get_slot(var, name)

        def get_slot_names(self) -> Any:
            return super().get_slot_names() + self._optimizer.get_slot_names()

        def variables(self, *args: Any, **kwargs: Any) -> Any:
            return self._optimizer.variables(*args, **kwargs)

    return _DistributedAdasumOptimizer


def _distribute_v1(
    optimizer: Any,
    reducer: Reducer,
    use_locking: bool,
    passes: int,
    average_passes: bool,
) -> Any:
    """Wraps an optimizer of tf.compat.v1.train; raises what
    DistributedOptimizer() does."""
    name = reducer.name
    if reducer.op == Adasum:
        if reducer.process_set.process_set_id != 0:
            raise NotImplementedError("Adasum works on all ranks only, on no set")
        return _adasum_class()(
            optimizer, name, use_locking, reducer.compression, passes
        )
    accumulator = None
    if passes > 1:
        if executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 needs a graph with an optimizer of"
                " tf.compat.v1.train; use an optimizer of Keras"
            )
        accumulator = Accumulator(reducer, passes, average_passes)
    return _v1_class()(optimizer, name, use_locking, reducer, accumulator)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer that reduces gradients over the ranks.

    Args:
        optimizer: of tf.compat.v1.train or of Keras.
        name: prefix of the operations' names; None: "Distributed" and the class.
        use_locking: of tf.compat.v1.train's optimizers.
        device_dense, device_sparse: accepted and not used, see mpi_ops.
        compression: of Compression, or a class with its two methods.
        sparse_as_dense: makes tf.IndexedSlices dense; else they are gathered.
        backward_passes_per_step: n adds up the gradients of n steps on the rank,
            reduces the sum in the n-th, and changes the variables only then.
        op: Average, Sum, or with tf.compat.v1.train in a graph Adasum, which
            combines the changes of the variables instead of the gradients.
        gradient_predivide_factor: f divides by f before the sum, and by
            size / f after it; with Average only.
        average_aggregated_gradients: divides the sum of n steps by n.
        num_groups: deprecated form of `groups`.
        groups: how gradients form operations; None: all are one, n > 0: n of
            them, or a list of lists of variables.
        process_set: the ranks that take part; others keep their gradients.
        scale_local_gradients: divides gradients of variables that
            register_local_var() named by the size of the set.

    Raises: ValueError for values that exclude each other, NotImplementedError
    for Adasum on a process set.

    All ranks compute gradients of the same variables in the same order.
    """
    check_op(op, average_aggregated_gradients)
    groups = check_groups(groups, num_groups)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if op == Adasum:
            raise ValueError("op=hvd.Adasum needs an optimizer of tf.compat.v1.train")
        from .keras import DistributedOptimizer as distribute

        return distribute(
            optimizer,
            name=name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )

    reducer = Reducer(
        name or f"Distributed{type(optimizer).__name__}",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
        scale_local_gradients,
    )
    return _distribute_v1(
        optimizer,
        reducer,
        use_locking,
        backward_passes_per_step,
        average_aggregated_gradients,
    )


__all__ = ["DistributedOptimizer"]
