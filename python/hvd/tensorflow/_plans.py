# SPDX-License-Identifier: Apache-2.0
"""What one call into libhvd does, on NumPy arrays.

A plan is made when an eager operation runs or when a graph is built, and knows
everything but the tensors.  `issue(arrays)` starts its operations and returns a
Pending; nothing here waits and nothing here needs TensorFlow.  Plans may be
issued by any thread.

Arrays that go in are C-contiguous or are copied; they are referenced until the
operation is done.  Arrays that come out begin at an address that TensorFlow
accepts without a copy.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from ._lazy import np
from .. import _hvd
from ..common import Adasum

ALIGN = 64  # bytes; the largest that TensorFlow's builds ask for

# What the extension reads from NumPy by its value; all else travels as bytes where
# that is possible (broadcast, gathers), and is an error where it is not, but for
# bfloat16.
_DTYPES = frozenset(
    "uint8 int8 uint16 int16 int32 int64 float16 float32 float64 bool".split()
)


class _Bfloat16:
    """A bfloat16 array for the extension, in whose buffer protocol it does not
    exist: C-contiguous, in host memory."""

    dtype = "bfloat16"
    is_cpu = True
    is_cuda = False

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = array.shape

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def is_contiguous(self) -> bool:
        return True


def _number(array: Any) -> Any:
    """Returns `array` for a reduction; copied only if it is not C-contiguous."""
    array = np.ascontiguousarray(array)
    return _Bfloat16(array) if array.dtype.name == "bfloat16" else array


class Pending:
    """Operations in flight: their requests, and how to get the results."""

    def __init__(
        self, requests: Sequence[Any], finish: Callable[[list[Any]], list[Any]]
    ) -> None:
        self.requests = list(requests)
        self._finish = finish

    def done(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds in all; returns whether all are done.

        Raises the first operation's error.
        """
        for req in self.requests:
            if req.test():
                req.wait()  # raises its error
                continue
            try:
                req.wait(timeout)
            except TimeoutError:
                return False
        return True

    def results(self) -> list[Any]:
        """Waits for all operations, and returns their arrays in order."""
        return self._finish([req.wait() for req in self.requests])


def empty(shape: Sequence[int], dtype: Any) -> Any:
    """Returns a new array of `shape` and `dtype` at an aligned address."""
    dtype = np.dtype(dtype)
    count = 1
    for dim in shape:
        count *= int(dim)
    raw = np.empty(count * dtype.itemsize + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip : skip + count * dtype.itemsize].view(dtype).reshape(shape)


def _rows_of(array: Any) -> Any:
    """Returns `array` as the gathers take it, or raises ValueError."""
    if array.ndim == 0:
        raise ValueError(
            "a scalar has no first dimension to gather along; reshape it to [1]"
        )
    return np.ascontiguousarray(array)


def _plain(array: Any) -> Any:
    """Returns `array`, or its bytes if libhvd has no such type.

    The bytes have one more dimension, so that the first one stays the rows.
    """
    array = np.ascontiguousarray(array)
    if array.dtype.name in _DTYPES:
        return array
    if array.dtype.hasobject:
        raise ValueError(f"a tensor of type {array.dtype} cannot be sent")
    return array.reshape(array.shape + (1,)).view(np.uint8)


def _from_buffer(buffer: Any, like: Any) -> Any:
    """Returns a gather's result as an array with the rows and type of `like`."""
    raw = np.asarray(memoryview(buffer)).view(np.uint8).reshape(-1)
    shape = (-1,) + like.shape[1:]
    row = like.dtype.itemsize
    for dim in like.shape[1:]:
        row *= dim
    if row == 0:
        return np.empty((int(buffer.shape[0]),) + like.shape[1:], like.dtype)
    return raw.view(like.dtype).reshape(shape)


class Plan:
    """One or more operations.  `kind` names them in graphs and timelines."""

    kind = ""

    def __init__(self, name: str | None, process_set: int) -> None:
        self.name = None if name is None else f"{self.kind}.{name}"
        self.process_set = process_set

    def _common(self, index: int | None = None) -> dict[str, Any]:
        name = self.name
        if name is not None and index is not None:
            name = f"{name}.{index}"
        return {"name": name, "process_set": self.process_set}

    def issue(self, arrays: Sequence[Any]) -> Pending:
        """Starts the operations on `arrays`, and returns at once.

        Raises ValueError for arguments that libhvd refuses.  Errors that need the
        other ranks come from the Pending.
        """
        raise NotImplementedError


class _Reduction(Plan):
    """Reduces n arrays as one group."""

    def __init__(
        self,
        name: str | None,
        process_set: int,
        op: int,
        prescale: float,
        postscale: float,
        *options: int,
    ) -> None:
        super().__init__(name, process_set)
        self.args = (op, float(prescale), float(postscale), *options)

    def _issue_group(
        self,
        one: Callable[..., Any],
        several: Callable[..., Any],
        arrays: Sequence[Any],
        outs: list[Any],
    ) -> Pending:
        """Starts `one` for one array, else `several`; the results go into `outs`."""
        sends = [_number(a) for a in arrays]
        recvs = [_number(o) for o in outs]
        if len(sends) == 1:
            req = one(sends[0], recvs[0], *self.args, **self._common())
        else:
            req = several(sends, recvs, *self.args, **self._common())
        return Pending([req], lambda _: outs)


class Allreduce(_Reduction):
    """Allreduces n arrays as one group; the results are n arrays of the same shapes."""

    kind = "allreduce"

    def issue(self, arrays: Sequence[Any]) -> Pending:
        outs = [empty(a.shape, a.dtype) for a in arrays]
        return self._issue_group(
            _hvd.allreduce_async, _hvd.grouped_allreduce_async, arrays, outs
        )


class AllreduceEach(Allreduce):
    """Allreduces n arrays by n operations, as Adasum has to: a group's scalar
    products would be those of the whole group."""

    def issue(self, arrays: Sequence[Any]) -> Pending:
        outs = [empty(a.shape, a.dtype) for a in arrays]
        reqs = [
            _hvd.allreduce_async(
                _number(a), _number(o), *self.args, **self._common(i)
            )
            for i, (a, o) in enumerate(zip(arrays, outs))
        ]
        return Pending(reqs, lambda _: outs)


def allreduce(
    name: str | None,
    process_set: int,
    op: int,
    prescale: float,
    postscale: float,
    wire: int,
) -> Plan:
    """Returns the plan of an allreduce by `op`; `wire` as in the extension."""
    kind = AllreduceEach if op == Adasum else Allreduce
    return kind(name, process_set, op, prescale, postscale, wire)


class Allgather(Plan):
    """Gathers n arrays along the first dimension, all in flight at once.

    The results are n arrays, then n int64 arrays: the rows of each rank of the set.
    """

    kind = "allgather"

    def issue(self, arrays: Sequence[Any]) -> Pending:
        inputs = [_rows_of(a) for a in arrays]
        only = len(inputs) == 1
        reqs = [
            _hvd.allgather_async(_plain(a), **self._common(None if only else i))
            for i, a in enumerate(inputs)
        ]

        def finish(results: list[Any]) -> list[Any]:
            arrays = [_from_buffer(b, a) for (b, _), a in zip(results, inputs)]
            return arrays + [np.array(rows, np.int64) for _, rows in results]

        return Pending(reqs, finish)


class Broadcast(Plan):
    """Broadcasts n arrays; the results are n arrays of the same shapes."""

    kind = "broadcast"

    def __init__(self, name: str | None, process_set: int, root: int) -> None:
        super().__init__(name, process_set)
        self.root = root

    def issue(self, arrays: Sequence[Any]) -> Pending:
        sends = [_plain(a) for a in arrays]
        outs = [empty(a.shape, a.dtype) for a in arrays]
        only = len(sends) == 1
        reqs = [
            _hvd.broadcast_async(
                s, _plain(o), self.root, **self._common(None if only else i)
            )
            for i, (s, o) in enumerate(zip(sends, outs))
        ]
        return Pending(reqs, lambda _: outs)


class Alltoall(Plan):
    """Sends rows of an array to all ranks.

    issue() takes the array and, with `has_splits`, the rows for each rank.  The
    results are the array received, and the rows from each rank (int32).
    """

    kind = "alltoall"

    def __init__(self, name: str | None, process_set: int, has_splits: bool) -> None:
        super().__init__(name, process_set)
        self.has_splits = has_splits

    def issue(self, arrays: Sequence[Any]) -> Pending:
        like = _rows_of(arrays[0])
        splits = None
        if self.has_splits:
            if arrays[1].ndim != 1:
                raise ValueError(
                    f"splits must have one dimension, not {arrays[1].ndim}"
                )
            splits = [int(n) for n in arrays[1]]
        req = _hvd.alltoall_async(_plain(like), splits, **self._common())

        def finish(results: list[Any]) -> list[Any]:
            buffer, received = results[0]
            return [_from_buffer(buffer, like), np.array(received, np.int32)]

        return Pending([req], finish)


class Reducescatter(_Reduction):
    """Reduces n arrays as one group; the results are this rank's rows of each."""

    kind = "reducescatter"

    def issue(self, arrays: Sequence[Any]) -> Pending:
        inputs = [_rows_of(a) for a in arrays]
        outs = []
        for a in inputs:
            rows = _hvd.reducescatter_rows(a.shape[0], self.process_set)
            outs.append(empty((rows,) + a.shape[1:], a.dtype))
        return self._issue_group(
            _hvd.reducescatter_async, _hvd.grouped_reducescatter_async, inputs, outs
        )


class Join(Plan):
    """Says that this rank has no more data; the result is the last rank (int32)."""

    kind = "join"

    def issue(self, arrays: Sequence[Any]) -> Pending:
        req = _hvd.join_async(self.process_set)
        return Pending([req], lambda results: [np.array(results[0], np.int32)])


class Barrier(Plan):
    """Waits for all ranks of the set.  The result is True."""

    kind = "barrier"

    def issue(self, arrays: Sequence[Any]) -> Pending:
        req = _hvd.barrier_async(**self._common())
        return Pending([req], lambda _: [np.array(True)])


class Several(Plan):
    """Carries out several plans by one call, all of them in flight at once.

    `parts` holds (plan, n_in, n_out): each plan takes the next n_in arrays in,
    and gives the next n_out arrays out.
    """

    kind = "several"

    def __init__(self, parts: Sequence[tuple[Plan, int, int]]) -> None:
        super().__init__(None, 0)
        self.parts = list(parts)

    def issue(self, arrays: Sequence[Any]) -> Pending:
        pendings: list[Pending] = []
        at = 0
        for plan, n_in, _ in self.parts:
            pendings.append(plan.issue(arrays[at : at + n_in]))
            at += n_in
        requests = [req for p in pendings for req in p.requests]
        return Pending(requests, lambda _: [a for p in pendings for a in p.results()])
