# SPDX-License-Identifier: Apache-2.0
"""Adds up gradients over several backward passes before they are reduced.

The counter of passes and the sums are variables, and the decision is made when
the step runs: in a tf.function and in a graph of a session, too.  The counter
is equal on all ranks, so all of them reduce in the same step.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from ._lazy import executing_eagerly, in_v1_graph, tf
from ._reduce import Reducer
from .ops import is_sparse


class Accumulator:
    """Sums and counter of one optimizer; reduces in each `passes`-th step."""

    def __init__(self, reducer: Reducer, passes: int, average: bool) -> None:
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be positive")
        self.reducer = reducer
        self.passes = passes
        self.average = average
        self._sums: list[Any] = []  # None where the gradient is None
        self.counter: Any = None
        self._made: list[Any] = []  # variables that a session has to initialise
        if executing_eagerly():
            self._make_counter()

    def _make_counter(self) -> None:
        self.counter = self._variable("passes", [], tf.int32)

    def _variable(self, name: str, shape: Any, dtype: Any) -> Any:
        if not in_v1_graph():
            with tf.init_scope():
                return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)
        variable = tf.compat.v1.Variable(
            tf.zeros(shape, dtype),
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            name=f"{self.reducer.name}_{name}",
        )
        self._made.append(variable)
        return variable

    def _prepare(self, grads: Sequence[Any]) -> None:
        """Makes the variables, when the first gradients are known."""
        if self.counter is None:
            self._make_counter()
        while len(self._sums) < len(grads):
            self._sums.append(None)
        for i, grad in enumerate(grads):
            if grad is not None and self._sums[i] is None:
                shape = grad.shape.as_list()
                self._sums[i] = self._variable(f"sum{i}", shape, grad.dtype)

    def made_variables(self) -> list[Any]:
        """Returns the new variables of a session's graph, once."""
        made, self._made = self._made, []
        return made

    def _dense(self, grad: Any) -> Any:
        if grad is None or not is_sparse(grad):
            return grad
        if not self.reducer.sparse_as_dense:
            raise ValueError(
                "tf.IndexedSlices cannot be added up over backward passes; use"
                " sparse_as_dense=True"
            )
        return tf.convert_to_tensor(grad)

    def add(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds gradients to the sums, and counts the pass.

        Every `passes`-th call returns the reduced sums, new tensors, and sets the
        sums to 0; other calls return the sums so far.  None stays None.  Raises
        ValueError for tf.IndexedSlices without sparse_as_dense.
        """
        grads = [self._dense(g) for g in grads]
        self._prepare(grads)
        used = [i for i, g in enumerate(grads) if g is not None]
        adds = [self._sums[i].assign_add(grads[i]) for i in used]
        with tf.control_dependencies(adds):
            count = tf.identity(self.counter.assign_add(1))
        with tf.control_dependencies([count]):
            outs = tf.cond(
                tf.equal(count, self.passes),
                lambda: self._finish(used, variables),
                lambda: [self._sums[i].read_value() for i in used],
            )
        if len(used) == 1 and not isinstance(outs, (list, tuple)):
            outs = [outs]
        results: list[Any] = [None] * len(grads)
        for i, out in zip(used, outs):
            results[i] = out
        return results

    def _finish(self, used: list[int], variables: Sequence[Any]) -> list[Any]:
        sums = [tf.identity(self._sums[i].read_value()) for i in used]
        if self.average:
            sums = [s / tf.cast(self.passes, s.dtype) for s in sums]
        reduced = self.reducer.reduce(sums, [variables[i] for i in used])
        with tf.control_dependencies([tf.identity(r) for r in reduced]):
            clear = [
                self._sums[i].assign(tf.zeros_like(s)) for i, s in zip(used, sums)
            ]
            clear.append(self.counter.assign(0))
        with tf.control_dependencies(clear):
            return [tf.identity(r) for r in reduced]

    def apply(
        self,
        grads: Sequence[Any],
        apply: Callable[[], Any],
        skip: Callable[[], Any],
    ) -> Any:
        """Calls `apply` if the gradients were reduced in this step, else `skip`.

        Called after add().  Returns, in a graph, an operation for the session.
        """
        if executing_eagerly():
            return apply() if int(self.counter) == 0 else skip()
        with tf.control_dependencies([tf.identity(g) for g in grads if g is not None]):
            is_last = tf.equal(self.counter.read_value(), 0)

        def branch(call: Callable[[], Any]) -> Callable[[], Any]:
            def taken() -> Any:
                done = call()
                after = [] if done is None else tf.nest.flatten(done)
                with tf.control_dependencies(after):
                    return tf.constant(True)

            return taken

        return tf.cond(is_last, branch(apply), branch(skip)).op
