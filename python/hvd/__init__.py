# SPDX-License-Identifier: Apache-2.0
"""Collectives for data-parallel programs, for any array.

    import hvd, numpy

    hvd.init()
    mean = hvd.allreduce(numpy.ones(1000))
    hvd.shutdown()

Started by ``hvdrun -np N python program.py``, the N processes are ranks 0..N-1;
started alone, a process is a world of one.

Arrays: numpy arrays, PyTorch tensors, memoryviews and everything else with the
buffer protocol or DLPack, in the memory of the host or of an NVIDIA GPU.  Reductions
and broadcast take any layout without gaps, the others need row-major arrays.  Results
are new arrays of the same kind as the argument and belong to the caller; an object
with the buffer protocol that is neither of numpy nor of PyTorch gives a memoryview.

Names, order: each rank issues the same operations.  Those with a name may be issued in
any order and from any thread; those without one are matched by their order.

Asynchronous forms (``_async``) return a Handle at once, whose ``wait()`` returns the
result.  Until then the program must not change the argument.  A Handle may be dropped.
The other forms block, without the GIL.

Errors: ValueError or TypeError for arguments that are wrong on this rank, an unknown
process set, or a name in flight; HorovodInternalError for what came from outside: ranks
that disagree on what the operation is, a rank that died.

Process sets: ``process_set`` is a ProcessSet; only its members call.
``priority``: operations first seen together go in the order of priority, the highest
first.  ``stream``: a CUDA stream as a number, see hvd.h; None: the host waits.

``hvd.torch`` has Horovod's interface for PyTorch, ``hvd.tensorflow`` and ``hvd.keras``
those for TensorFlow and Keras.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hvd import _hvd
from hvd.common import *  # noqa: F403
from hvd.common import Average, ProcessSet, global_process_set, process_set_id
from hvd.objects import allgather_object, broadcast_object  # noqa: F401

__version__: str = _hvd.version()

_WIRES = {None: 0, "float16": 1, "bfloat16": 2}


def get_include() -> str:
    """Return the folder of hvd.h, for compiling C programs."""
    package = os.path.dirname(os.path.abspath(__file__))
    for above in ("", "../../../..", "../../../../..", ".."):
        folder = os.path.normpath(os.path.join(package, above, "include"))
        if os.path.exists(os.path.join(folder, "hvd.h")):
            return folder
    raise FileNotFoundError(f"hvd.h is not where {package} was installed")


# ---- Kinds of arrays ------------------------------------------------------------------


def _numpy() -> Any:
    """Return numpy if the program has imported it, so that arrays may be numpy's."""
    return sys.modules.get("numpy")


def _is_numpy(x: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic))


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _from_buffer(buffer: _hvd.Buffer, like: Any) -> Any:
    """Return what is in a Buffer as an array of the same kind as ``like``."""
    if _is_numpy(like):
        return _numpy().asarray(buffer)
    if _is_torch(like):
        torch = sys.modules["torch"]
        if 0 in buffer.shape:
            return torch.empty(buffer.shape, dtype=like.dtype)
        flat = torch.frombuffer(buffer, dtype=like.dtype)
        return flat.reshape(buffer.shape)
    namespace = getattr(like, "__array_namespace__", None)
    if namespace is not None:
        return namespace().from_dlpack(buffer)
    return memoryview(buffer)


def _empty_like(x: Any) -> Any:
    """Return an array of the same kind, dtype and shape as ``x``."""
    if _is_torch(x):
        return sys.modules["torch"].empty_like(x, requires_grad=False)
    if _is_numpy(x):
        return _numpy().empty_like(x)
    return _from_buffer(_hvd.empty_like(x), x)


def _rows_like(x: Any, rows: int) -> Any:
    """Return an array like ``x`` with another number of rows."""
    if _is_torch(x):
        return x.new_empty((rows, *x.shape[1:]))
    return _from_buffer(_hvd.empty_like(x, rows), x)


# ---- Handles ---------------------------------------------------------------------------


class Handle:
    """An operation that was issued.

    ``wait()`` may be called again, with the same result or error.
    """

    def __init__(
        self, request: _hvd.Request, convert: Callable[[Any], Any] | None = None
    ) -> None:
        self._request = request
        self._convert = convert
        self._value: Any = None

    def test(self) -> bool:
        """Tell whether the operation is done, without blocking."""
        return self._request.test()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the operation and return its result.

        Args:
            timeout: in seconds; None: without limit.

        Raises:
            TimeoutError: ``timeout`` is over; the operation goes on.
            ValueError, HorovodInternalError: the operation failed.
        """
        value = self._request.wait(timeout)
        if self._convert is None:
            return value
        if self._value is None:
            self._value = self._convert(value)
        return self._value

    result = wait

    def add_done_callback(self, fn: Callable[[Handle], object]) -> None:
        """Have ``fn(handle)`` called when the operation is done.

        It runs on a thread of hvd, or at once if the operation is done already.  What
        it raises is printed.
        """
        self._request.add_done_callback(lambda _: fn(self))


def poll(handle: Handle) -> bool:
    """Tell whether an operation is done, as ``handle.test()``."""
    return handle.test()


def synchronize(handle: Handle) -> Any:
    """Wait for an operation and return its result, as ``handle.wait()``."""
    return handle.wait()


def _wire(wire: str | None) -> int:
    if wire not in _WIRES:
        raise ValueError(f'wire: None, "float16" or "bfloat16", not {wire!r}')
    return _WIRES[wire]


# ---- Allreduce ---------------------------------------------------------------------------


def allreduce_async(
    x: Any,
    op: int = Average,
    name: str | None = None,
    *,
    out: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    wire: str | None = None,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Reduce an array over all ranks: see allreduce()."""
    return Handle(
        _hvd.allreduce_async(
            x,
            _empty_like(x) if out is None else out,
            op,
            prescale_factor,
            postscale_factor,
            _wire(wire),
            0,
            name,
            process_set_id(process_set),
            priority,
            stream,
        )
    )


def allreduce(
    x: Any,
    op: int = Average,
    name: str | None = None,
    *,
    out: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    wire: str | None = None,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Any:
    """Reduce an array over all ranks.

    Args:
        x: the same shape and dtype on all ranks; or an int, float or bool.
        op: Average, Sum, Min, Max, Product or Adasum.
        out: an array of the same shape and dtype for the result, or ``x`` itself;
            None: a new one.
        prescale_factor, postscale_factor: factors on each input and on the result.
        wire: "float16" or "bfloat16": how float32 and float64 travel; sums are
            float32.

    Returns:
        The result, on all ranks bitwise the same: ``out`` or a new array.
    """
    if out is None and isinstance(x, (int, float)):
        return _reduce_number(x, op, name, process_set, prescale_factor, postscale_factor)
    return _hvd.allreduce(
        x,
        _empty_like(x) if out is None else out,
        op,
        prescale_factor,
        postscale_factor,
        _wire(wire),
        0,
        name,
        process_set_id(process_set),
        priority,
        stream,
    )


def _reduce_number(
    x: float,
    op: int,
    name: str | None,
    process_set: ProcessSet | int,
    prescale_factor: float,
    postscale_factor: float,
) -> float:
    """Reduce a number; the average of integers is a float."""
    whole = isinstance(x, int) and op != Average
    array = memoryview(bytearray(8)).cast("q" if whole else "d")
    array[0] = int(x) if whole else float(x)
    _hvd.allreduce(
        array,
        array,
        op,
        prescale_factor,
        postscale_factor,
        name=name,
        process_set=process_set_id(process_set),
    )
    return array[0]


def allreduce_async_(x: Any, *args: Any, **kwargs: Any) -> Handle:
    """Reduce an array in place, as allreduce_async() with ``out=x``."""
    return allreduce_async(x, *args, out=x, **kwargs)


def allreduce_(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Reduce an array over all ranks in place, and return it; see allreduce()."""
    return allreduce(x, *args, out=x, **kwargs)


def grouped_allreduce_async(
    xs: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    wire: str | None = None,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Reduce several arrays that start and complete as one; see allreduce().

    Returns:
        A Handle of the list of results.
    """
    return Handle(
        _hvd.grouped_allreduce_async(
            xs,
            [_empty_like(x) for x in xs],
            op,
            prescale_factor,
            postscale_factor,
            _wire(wire),
            0,
            name,
            process_set_id(process_set),
            priority,
            stream,
        )
    )


def grouped_allreduce(xs: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """Reduce several arrays as grouped_allreduce_async(), and wait."""
    return grouped_allreduce_async(xs, *args, **kwargs).wait()


# ---- Broadcast -----------------------------------------------------------------------------


def broadcast_async(
    x: Any,
    root_rank: int,
    name: str | None = None,
    *,
    out: Any = None,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Copy the array of one rank to all: see broadcast()."""
    return Handle(
        _hvd.broadcast_async(
            x,
            _empty_like(x) if out is None else out,
            root_rank,
            name,
            process_set_id(process_set),
            priority,
            stream,
        )
    )


def broadcast(x: Any, root_rank: int, *args: Any, **kwargs: Any) -> Any:
    """Copy the array of one rank to all.

    Args:
        x: the same shape and dtype on all ranks; only root's contents matter.
        root_rank: a rank of the world, in the process set.
        out: an array of the same shape and dtype for the result, or ``x`` itself;
            None: a new one.

    Returns:
        An array with root's contents.
    """
    return broadcast_async(x, root_rank, *args, **kwargs).wait()


def broadcast_async_(x: Any, root_rank: int, *args: Any, **kwargs: Any) -> Handle:
    """Copy the array of one rank into those of the others: see broadcast_()."""
    return broadcast_async(x, root_rank, *args, out=x, **kwargs)


def broadcast_(x: Any, root_rank: int, *args: Any, **kwargs: Any) -> Any:
    """Copy the array of one rank into those of the others, and return it."""
    return broadcast_async_(x, root_rank, *args, **kwargs).wait()


# ---- Gathers ---------------------------------------------------------------------------------


def allgather_async(
    x: Any,
    name: str | None = None,
    *,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Gather the rows of all ranks: see allgather()."""
    number = process_set_id(process_set)
    request = _hvd.allgather_async(x, name, number, priority, stream)
    return Handle(request, lambda pair: _from_buffer(pair[0], x))


def allgather(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Gather the rows of all ranks, on every rank.

    Args:
        x: an array of at least one dimension; ranks may differ in the first one.

    Returns:
        The rows of rank 0, of rank 1, ...: an array with their sum as the first
        dimension.
    """
    return allgather_async(x, *args, **kwargs).wait()


def grouped_allgather_async(
    xs: Sequence[Any],
    name: str | None = None,
    *,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Gather several arrays that start and complete as one; see allgather().

    Returns:
        A Handle of the list of results.
    """
    xs = list(xs)
    number = process_set_id(process_set)
    request = _hvd.grouped_allgather_async(xs, name, number, priority, stream)
    return Handle(
        request,
        lambda pairs: [_from_buffer(pair[0], x) for pair, x in zip(pairs, xs)],
    )


def grouped_allgather(xs: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """Gather several arrays as grouped_allgather_async(), and wait."""
    return grouped_allgather_async(xs, *args, **kwargs).wait()


def alltoall_async(
    x: Any,
    splits: Any = None,
    name: str | None = None,
    *,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Send rows to each rank: see alltoall(); the Handle always has both results."""
    number = process_set_id(process_set)
    request = _hvd.alltoall_async(x, splits, name, number, priority, stream)
    return Handle(request, lambda pair: (_from_buffer(pair[0], x), pair[1]))


def alltoall(x: Any, splits: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Send rows of an array to each rank, and receive rows of each.

    Args:
        x: an array of at least one dimension.
        splits: how many rows go to rank 0, 1, ...; None: as many to each.

    Returns:
        The rows of rank 0, of rank 1, ... for this rank; with ``splits`` a pair of
        that and the tuple of how many came from each.
    """
    both = alltoall_async(x, splits, *args, **kwargs).wait()
    return both[0] if splits is None else both


# ---- Reducescatter ----------------------------------------------------------------------------


def reducescatter_async(
    x: Any,
    op: int = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Reduce an array and scatter its rows: see reducescatter()."""
    number = process_set_id(process_set)
    return Handle(
        _hvd.reducescatter_async(
            x,
            _scatter_result(x, number),
            op,
            prescale_factor,
            postscale_factor,
            name,
            number,
            priority,
            stream,
        )
    )


def _scatter_result(x: Any, number: int) -> Any:
    """Return an array for this rank's rows of a reducescatter."""
    shape = getattr(x, "shape", None)
    if shape is None:
        shape = memoryview(x).shape
    if len(shape) == 0:
        raise ValueError("reducescatter: a scalar has no rows")
    return _rows_like(x, _hvd.reducescatter_rows(shape[0], number))


def reducescatter(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Reduce an array over all ranks, of which each gets some rows.

    Args:
        x: the same shape and dtype on all ranks, at least one dimension.
        op: Average, Sum, Min, Max or Product.

    Returns:
        rows / size rows of the result, the first (rows mod size) ranks one more.
    """
    return reducescatter_async(x, *args, **kwargs).wait()


def grouped_reducescatter_async(
    xs: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | int = global_process_set,
    priority: int = 0,
    stream: int | None = None,
) -> Handle:
    """Reduce and scatter several arrays as one operation; see reducescatter()."""
    number = process_set_id(process_set)
    return Handle(
        _hvd.grouped_reducescatter_async(
            xs,
            [_scatter_result(x, number) for x in xs],
            op,
            prescale_factor,
            postscale_factor,
            name,
            number,
            priority,
            stream,
        )
    )


def grouped_reducescatter(xs: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """Reduce and scatter several arrays as one operation, and wait."""
    return grouped_reducescatter_async(xs, *args, **kwargs).wait()


# ---- Barrier, join ------------------------------------------------------------------------------


def barrier(process_set: ProcessSet | int = global_process_set) -> None:
    """Wait until every rank has called it."""
    _hvd.barrier_async(process_set=process_set_id(process_set)).wait()


def join(process_set: ProcessSet | int = global_process_set) -> int:
    """Say that this rank has no more data, and help the others until all have.

    Returns:
        The world rank that joined last.
    """
    return _hvd.join_async(process_set_id(process_set)).wait()
