# SPDX-License-Identifier: Apache-2.0
"""Reductions as Horovod's TensorFlow API has them: with averaging, compression
and IndexedSlices.  mpi_ops.py has the operations below them."""

from __future__ import annotations

from typing import Any, Sequence

from . import mpi_ops
from ._lazy import tf
from .compression import Compression, compress_all
from .mpi_ops import Adasum, Average, Sum, global_process_set
from ..common import resolve_op


def is_sparse(tensor: Any) -> bool:
    """Returns whether `tensor` is a tf.IndexedSlices."""
    return isinstance(tensor, tf.IndexedSlices)


def check_sparse(op: int, prescale_factor: float, postscale_factor: float) -> None:
    """Raises NotImplementedError for what two allgathers cannot do."""
    if op == Adasum:
        raise NotImplementedError(
            "Adasum is not defined for tf.IndexedSlices; use sparse_as_dense=True"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("tf.IndexedSlices can be summed and averaged only")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError(
            "tf.IndexedSlices take no prescale_factor and no postscale_factor"
        )


def gathered_slices(
    tensor: Any, values: Any, indices: Any, op: int, process_set: Any
) -> Any:
    """Returns the reduction of tf.IndexedSlices from all ranks' slices.

    `tensor` is this rank's; `values` and `indices` are the gathered ones, which are
    not copied.  For Average the values are divided by the size of the set.
    """
    if op == Average:
        values = values / tf.cast(process_set.size(), values.dtype)
    return tf.IndexedSlices(values, indices, tensor.dense_shape)


def _check_adasum(op: int, process_set: Any) -> None:
    if op == Adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum works on all ranks only, on no process set")


def _allreduce_sparse(
    tensors: Sequence[Any], op: int, name: str | None, process_set: Any
) -> list[Any]:
    """Reduces tf.IndexedSlices: all ranks' slices, one after the other."""
    flat = [part for t in tensors for part in (t.values, t.indices)]
    parts = mpi_ops.grouped_allgather(
        flat, None if name is None else name + ".slices", process_set=process_set
    )
    return [
        gathered_slices(tensor, values, indices, op, process_set)
        for tensor, values, indices in zip(tensors, parts[::2], parts[1::2])
    ]


def _allreduce_dense(
    tensors: Sequence[Any],
    op: int,
    name: str | None,
    factors: tuple[float, float],
    compression: Any,
    process_set: Any,
) -> list[Any]:
    tensors = [mpi_ops._tensor(t) for t in tensors]
    sent, wire, restore = compress_all(compression, tensors)
    results = mpi_ops._grouped_allreduce(
        sent, name, op, *factors, process_set=process_set, wire=wire
    )
    return restore(results)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: Any = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Returns the reduction of the ranks' tensors.

    Args:
        tensor: a tensor or variable, of the same type and shape on all ranks; or
            tf.IndexedSlices, which are gathered, and whose rows may differ.
        average: deprecated; True is op=Average, False is op=Sum.
        device_dense, device_sparse: accepted and not used, see mpi_ops.
        compression: of Compression, or a class with its two methods.
        op: Average (the default), Sum, Min, Max, Product or Adasum.
        prescale_factor, postscale_factor: factors before and after the reduction.
        name: of the operation, see mpi_ops; None is allowed.
        process_set: the ranks that take part.
        ignore_name_scope: accepted; names do not depend on name scopes.

    Returns: a new tensor of the same type and shape, or new tf.IndexedSlices.
    Its gradient: the allreduce of the ranks' gradients, with the same op and
    factors.

    Raises: ValueError if both op and average are given; NotImplementedError for
    what tf.IndexedSlices or Adasum cannot do; tf.errors.InvalidArgumentError if
    this rank is not in the set; tf.errors.FailedPreconditionError if ranks
    disagree on type, shape or op (in a graph: tf.errors.UnknownError);
    HorovodInternalError if a peer failed (in a graph: UnknownError, too).

    Source: MPI_Allreduce; Horovod's allreduce.
    """
    return grouped_allreduce(
        [tensor],
        average,
        device_dense,
        device_sparse,
        compression,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        ignore_name_scope,
        name,
    )[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Returns the reductions of several tensors, carried out as one group.

    `tensors` may be of several types, and dense and tf.IndexedSlices mixed; the
    ranks give them in the same order.  The rest is as in allreduce().
    """
    tensors = list(tensors)
    if not tensors:
        return tensors
    op = resolve_op(op, average)
    _check_adasum(op, process_set)
    sparse = [i for i, t in enumerate(tensors) if is_sparse(t)]
    dense = [i for i, t in enumerate(tensors) if not is_sparse(t)]
    results: list[Any] = [None] * len(tensors)
    if sparse:
        check_sparse(op, prescale_factor, postscale_factor)
        found = _allreduce_sparse([tensors[i] for i in sparse], op, name, process_set)
        for i, result in zip(sparse, found):
            results[i] = result
    if dense:
        factors = (prescale_factor, postscale_factor)
        some = [tensors[i] for i in dense]
        found = _allreduce_dense(some, op, name, factors, compression, process_set)
        for i, result in zip(dense, found):
            results[i] = result
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: Any = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces the ranks' tensors, and returns this rank's rows of the result.

    `tensor` has at least one dimension and the same shape on all ranks; if the
    rows do not divide evenly, the first ranks of the set get one more.  `op` is
    Average or Sum.  The gradient: the allgather of the ranks' gradients, times
    the factors, and for Sum times the size of the set.  The rest is as in
    allreduce().

    Source: MPI_Reduce_scatter; Horovod's reducescatter.
    """
    tensor = mpi_ops._tensor(tensor)
    sent, ctx = compression.compress(tensor)
    result = mpi_ops._reducescatter(
        sent,
        name,
        op,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return compression.decompress(result, ctx)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Reduces several tensors as one group; the rest is as in reducescatter()."""
    if not tensors:
        return list(tensors)
    pairs = [compression.compress(mpi_ops._tensor(t)) for t in tensors]
    results = mpi_ops._grouped_reducescatter(
        [t for t, _ in pairs],
        name,
        op,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return [compression.decompress(r, c) for r, (_, c) in zip(results, pairs)]
