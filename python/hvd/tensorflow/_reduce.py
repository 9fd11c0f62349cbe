# SPDX-License-Identifier: Apache-2.0
"""Reduces the gradients of one step, for the tape and all optimizers.

All gradients of a step are one call: each group, and the rest, is one operation
of libhvd, and all are in flight at once.
"""

from __future__ import annotations

import warnings
from typing import Any, Sequence

from . import _plans, mpi_ops
from ._lazy import tf
from ._run import graph_name, run
from .compression import compress_all
from .mpi_ops import Adasum, Average, Sum
from .ops import check_sparse, gathered_slices, is_sparse


def identity_of(variable: Any) -> int:
    """Returns a number that is a variable's own for as long as it exists."""
    return id(mpi_ops._raw(variable))


def check_groups(groups: Any, num_groups: int) -> Any:
    """Returns `groups` as given by either parameter, or raises ValueError.

    None or 0: no groups; n > 0: that many of about equal numbers of gradients;
    a list of lists of variables: these, and each other gradient alone.
    """
    if num_groups:
        warnings.warn(
            "the parameter num_groups is deprecated; use groups",
            DeprecationWarning,
            stacklevel=4,
        )
        if groups is None:
            groups = num_groups
    if groups is None or isinstance(groups, (list, tuple)):
        return groups
    if isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0:
        return groups or None
    raise ValueError(
        "groups must be a number that is not negative, or a list of lists of variables"
    )


class Reducer:
    """Reduces lists of gradients in the same way, step for step.

    `name` prefixes the names of the operations.  Thread-safe as far as names
    differ: a reducer is used by one graph or one thread at a time.
    """

    def __init__(
        self,
        name: str,
        compression: Any,
        sparse_as_dense: bool,
        op: int,
        gradient_predivide_factor: float,
        groups: Any,
        process_set: Any,
        scale_local_gradients: bool = True,
    ) -> None:
        self.name = name
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense
        self.op = op
        self.groups = groups
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.factors = (1.0, 1.0)
        if gradient_predivide_factor != 1.0:
            if op != Average:
                raise ValueError("gradient_predivide_factor needs op=hvd.Average")
            factor = float(gradient_predivide_factor)
            self.factors = (1.0 / factor, factor)
        self._local: dict[int, Any] = {}

    def register_local(self, variable: Any) -> None:
        """Keeps the gradients of `variable` on this rank."""
        self._local[identity_of(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        """Returns whether register_local() was called for `variable`."""
        return identity_of(variable) in self._local

    def active(self) -> bool:
        """Returns whether this rank reduces anything."""
        return bool(self.process_set.included()) and self.process_set.size() > 1

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients; None stays None.

        A local variable's gradient is divided by the size of the set unless
        scale_local_gradients is False.  If this rank is not in the set, or is
        alone in it, gradients are returned as they are.
        """
        results = list(grads)
        shared = []
        for i, (grad, variable) in enumerate(zip(grads, variables)):
            if grad is None:
                continue
            if self.is_local(variable):
                results[i] = self._scale_local(grad)
                continue
            if self.sparse_as_dense and is_sparse(grad):
                results[i] = tf.convert_to_tensor(grad)
            shared.append(i)
        if not self.active():
            return results
        return self._reduce_shared(results, shared, variables)

    def _scale_local(self, grad: Any) -> Any:
        if not self.scale_local_gradients:
            return grad
        size = float(self.process_set.size())
        if is_sparse(grad):
            values = grad.values / size
            return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
        return grad / size

    def _reduce_shared(
        self, results: list[Any], shared: list[int], variables: Sequence[Any]
    ) -> list[Any]:
        dense = [i for i in shared if not is_sparse(results[i])]
        sparse = [i for i in shared if is_sparse(results[i])]
        if sparse:
            check_sparse(self.op, 1.0, 1.0)
        call = _Call(self)
        for group in self._split(dense, variables):
            call.add_dense(group, [results[i] for i in group])
        if sparse:
            call.add_sparse(sparse, [results[i] for i in sparse])
        for i, reduced in call.run().items():
            results[i] = reduced
        return results

    def _split(
        self, indexes: list[int], variables: Sequence[Any]
    ) -> list[list[int]]:
        """Returns lists of indexes, each of which is one operation."""
        if not indexes:
            return []
        if self.groups is None:
            return [indexes]
        if isinstance(self.groups, int):
            count = min(self.groups, len(indexes))
            each, more = divmod(len(indexes), count)
            ends = [each * (i + 1) + min(i + 1, more) for i in range(count)]
            return [indexes[a:b] for a, b in zip([0] + ends, ends)]
        rest = {identity_of(variables[i]): i for i in indexes}
        split = []
        for group in self.groups:
            keys = [identity_of(v) for v in group]
            split.append([rest.pop(key) for key in keys if key in rest])
        return [g for g in split if g] + [[i] for i in rest.values()]


class _Call:
    """The operations of one step, put together."""

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer
        self._set = mpi_ops._set_id(reducer.process_set)
        self._parts: list[tuple[_plans.Plan, int, int]] = []
        self._tensors: list[Any] = []
        self._dtypes: list[Any] = []
        self._shapes: list[Any] = []
        self._take: list[Any] = []  # functions that take results

    def _name(self, what: str) -> str:
        # Eagerly there is no number: a step ends before the next one begins.
        number = graph_name(None)
        name = f"{self._reducer.name}.{what}{len(self._parts)}"
        return name if number is None else f"{name}.{number}"

    def add_dense(self, indexes: list[int], grads: list[Any]) -> None:
        """Adds an allreduce of gradients, which is one group."""
        r = self._reducer
        grads, wire, restore = compress_all(r.compression, grads)
        plan = _plans.allreduce(
            self._name("group"), self._set, r.op, *r.factors, wire
        )
        self._parts.append((plan, len(grads), len(grads)))
        self._tensors += grads
        self._dtypes += [g.dtype for g in grads]
        self._shapes += [g.shape for g in grads]

        def take(outs: list[Any]) -> dict[int, Any]:
            return dict(zip(indexes, restore(outs)))

        self._take.append((take, len(grads)))

    def add_sparse(self, indexes: list[int], grads: list[Any]) -> None:
        """Adds an allgather of slices and one of their indices."""
        r = self._reducer
        for part in ("values", "indices"):
            tensors = [getattr(g, part) for g in grads]
            plan = _plans.Allgather(self._name(part), self._set)
            self._parts.append((plan, len(tensors), 2 * len(tensors)))
            self._tensors += tensors
            self._dtypes += [t.dtype for t in tensors] + [tf.int64] * len(tensors)
            self._shapes += [mpi_ops._any_rows(t.shape) for t in tensors]
            self._shapes += [[None]] * len(tensors)

        def take(outs: list[Any]) -> dict[int, Any]:
            n = len(grads)
            found = {}
            for k, grad in enumerate(grads):
                found[indexes[k]] = gathered_slices(
                    grad, outs[k], outs[2 * n + k], r.op, r.process_set
                )
            return found

        self._take.append((take, 4 * len(grads)))

    def run(self) -> dict[int, Any]:
        """Carries all out, and returns the reduced gradient of each index."""
        if not self._parts:
            return {}
        plan = _plans.Several(self._parts)
        plan.kind = "gradients"
        outs = run(plan, self._tensors, self._dtypes, self._shapes)
        found: dict[int, Any] = {}
        at = 0
        for take, count in self._take:
            found.update(take(outs[at : at + count]))
            at += count
        return found


def check_op(op: int, average_aggregated_gradients: bool = False) -> None:
    """Raises ValueError for an operation that gradients cannot be reduced by."""
    if op not in (Average, Sum, Adasum):
        raise ValueError("op must be hvd.Average, hvd.Sum or hvd.Adasum")
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not take average_aggregated_gradients=True")
