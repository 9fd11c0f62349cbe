# SPDX-License-Identifier: Apache-2.0
"""The backend "hvd" of torch.distributed.

    import torch.distributed as dist
    import hvd.torch.distributed

    dist.init_process_group("hvd")
    model = torch.nn.parallel.DistributedDataParallel(model)

hvdrun sets what init_process_group() reads from the environment.  Each process group is a
process set of the library, so its operations are in an order of their own, which must be
the same on all its ranks, as with any backend.  Operations return at once, and the
library works while the program computes.

A tensor whose elements have gaps between them is copied.  send and
recv do not exist: the library has collectives only.

Any thread may call; the GIL is free while a wait lasts.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from datetime import timedelta
from functools import reduce as fold
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    Work,
)

from hvd import _hvd, common
from hvd.torch.handle import dense, stream_of, tensor_of

__all__ = ["HvdProcessGroup", "HvdWork"]

_OPS = [
    (ReduceOp.SUM, common.Sum),
    (ReduceOp.AVG, common.Average),
    (ReduceOp.MIN, common.Min),
    (ReduceOp.MAX, common.Max),
    (ReduceOp.PRODUCT, common.Product),
]

_BITWISE = [
    (ReduceOp.BAND, torch.bitwise_and),
    (ReduceOp.BOR, torch.bitwise_or),
    (ReduceOp.BXOR, torch.bitwise_xor),
]

# PyTorch before 2.1 keeps only the C++ half of a Work that it got from Python, and that
# half does not know when the operation is done.  It waits for a few at a time.  So that
# works that are kept need little memory, those that are done let go of large outputs.
_KEPT = 256
_LARGE = 1024  # elements

# Has the attribute `notifies` in a thread that calls the callbacks of a future.
_thread = threading.local()


class HvdWork(Work):
    """An operation of a process group that has been issued.

    outputs: the tensors that receive the result; referenced until the operation is
             done, and small ones as long as the work.
    finish:  moves the result of the request into the outputs, where the library has not
             done so.  It runs once, in the thread that first learns of the end.
    """

    def __init__(
        self,
        request: Any,
        outputs: Sequence[torch.Tensor],
        finish: Callable[[Any], None] | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        super().__init__()
        self._request = request
        self._outputs: list[torch.Tensor] | None = list(outputs)
        self._refs = [weakref.ref(tensor) for tensor in outputs]
        self._finish = finish
        self._timeout = timeout
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._future: Any = None

    def _complete(self) -> None:
        """Takes the result of the request, which is done."""
        with self._lock:
            request, finish = self._request, self._finish
            if request is None:
                return
            try:
                result = request.result()
                if finish is not None:
                    # Outputs may be parameters, or tensors of inference mode.
                    with torch.inference_mode():
                        finish(result)
            except Exception as e:
                self._error = e
            self._request = self._finish = None
            if sum(tensor.numel() for tensor in self._outputs or []) > _LARGE:
                self._outputs = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until the operation is done and its outputs can be used.

        timeout: a limit; without one, or with 0, that of the process group.

        Returns True.  Raises HorovodInternalError if a rank has died or left, ValueError
        if the ranks disagree on the operation, TimeoutError.  Interruptible by Ctrl-C.
        """
        limit = timeout if timeout else self._timeout
        request = self._request
        if request is not None:
            self._wait_for(request, limit.total_seconds() if limit else None)
        if self._error is not None:
            raise self._error
        return True

    def _wait_for(self, request: Any, seconds: float | None) -> None:
        try:
            request.wait(seconds)
        except TimeoutError:
            raise
        except Exception:
            pass  # _complete gets it again, and keeps it
        self._complete()

    def synchronize(self) -> None:
        """Does what wait() does."""
        self.wait()

    def is_completed(self) -> bool:
        """Tells whether wait() would return at once."""
        request = self._request
        if request is not None and request.test():
            self._complete()
        return self._request is None

    def is_success(self) -> bool:
        """Tells whether the operation is done and has succeeded."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """Returns the error of an operation that is done, or None."""
        return self._error

    def source_rank(self) -> int:
        """Raises RuntimeError: only a receive has a source."""
        raise RuntimeError("source_rank: backend hvd has no recv")

    def result(self) -> list[torch.Tensor]:
        """Waits, and returns the outputs.

        After a wait(), large ones are missing to which the program does not refer.
        """
        outputs = self._outputs
        self.wait()
        if outputs is None:
            outputs = [ref() for ref in self._refs]
        return [tensor for tensor in outputs if tensor is not None]

    def get_future(self) -> Any:
        """Returns a torch.futures.Future of the outputs; does not wait.

        The library's notifier thread completes it.  In that thread, which calls the
        callbacks of futures, it waits, as nobody else could complete the future.
        """
        if hasattr(_thread, "notifies") and self._request is not None:
            self._wait_for(self._request, None)
        with self._lock:
            if self._future is not None:
                return self._future
            end = torch.futures.Future()
            request, outputs = self._request, self._outputs

            def value(_: Any) -> list[torch.Tensor] | None:
                self._complete()
                if self._error is not None:
                    raise self._error
                return outputs

            # C++ code such as that of DistributedDataParallel sees an error that a
            # callback raises; it takes that of set_exception() for a value.
            future = self._future = end.then(value)

        if request is None:
            outputs = self.result() if self._error is None else None
            end.set_result(None)
        else:
            request.add_done_callback(lambda _: _notify(end))
        return future

    # The names by which PyTorch's C++ code calls these.
    isCompleted = is_completed
    isSuccess = is_success
    sourceRank = source_rank
    getFuture = get_future


def _notify(end: Any) -> None:
    """Completes a future, in the notifier thread."""
    _thread.notifies = True
    try:
        end.set_result(None)
    finally:
        del _thread.notifies


def _reduce_op(options: Any) -> tuple[int | None, Callable | None]:
    """Returns the library's reduction for an option, or the function of a bitwise one."""
    op = getattr(options, "reduceOp", options)
    for theirs, ours in _OPS:
        if op == theirs:
            return ours, None
    for theirs, function in _BITWISE:
        if op == theirs:
            return None, function
    raise RuntimeError(f"backend hvd has no reduction {op}; use SUM and multiply")


def _real(tensor: torch.Tensor, options: Any = None) -> torch.Tensor:
    """Returns a complex tensor as one of pairs of numbers; others as they are.

    options: those of a reduction, if there is one; RuntimeError if it is not one that
             treats both numbers of a pair alike.
    """
    if not tensor.is_complex():
        return tensor
    if options is not None and _reduce_op(options)[0] not in (
        common.Sum,
        common.Average,
    ):
        raise RuntimeError("backend hvd reduces complex tensors by SUM and AVG only")
    return torch.view_as_real(tensor)


def _one(tensors: Any) -> torch.Tensor:
    """Returns the only tensor of a list; RuntimeError if there are several."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise RuntimeError(
            f"backend hvd takes one tensor of each rank, not {len(tensors)}; a rank has "
            "one device"
        )
    return tensors[0]


def _nest(tensors: Any) -> list[list[torch.Tensor]]:
    """Returns lists of tensors, made of one list where there is no other."""
    return [tensors] if tensors and isinstance(tensors[0], torch.Tensor) else tensors


def _join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the elements of tensors in a row."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _deal(flat: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
    """Copies elements in a row to tensors, one after the other."""
    for part, output in zip(flat.split([t.numel() for t in outputs]), outputs):
        output.copy_(part.view(output.shape))


def _copy_back(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    after: Callable[[], None] | None = None,
) -> Callable[[Any], None] | None:
    """Returns a function that copies each first tensor to the second, if another.

    after: what it does then.  Returns None if there is nothing to do.
    """
    different = [(a, b) for a, b in pairs if a is not b]
    if not different and after is None:
        return None

    def finish(_: Any) -> None:
        for a, b in different:
            b.copy_(a)
        if after is not None:
            after()

    return finish


class HvdProcessGroup(ProcessGroup):
    """A process group on a process set of the library.

    set_id:  the process set.
    ranks:   the world ranks of its members, ascending.
    rank:    this rank's place among them.
    timeout: the limit of a wait that has no other.
    """

    def __init__(
        self, set_id: int, ranks: Sequence[int], rank: int, timeout: timedelta | None
    ) -> None:
        super().__init__(rank, len(ranks))
        self._set = set_id
        self._ranks = list(ranks)
        self._rank = rank
        self._timeout = timeout
        self._kept: deque[HvdWork] = deque(maxlen=_KEPT)
        self._coalesced: list[HvdWork] | None = None
        self._sequence = 0

    # ---- What it is ----

    def rank(self) -> int:
        """Returns this rank's place in the group."""
        return self._rank

    def size(self) -> int:
        """Returns the number of members."""
        return len(self._ranks)

    def name(self) -> str:
        """Returns "hvd"."""
        return "hvd"

    getBackendName = name
    _get_backend_name = name

    def abort(self) -> None:
        """Does nothing: a rank that ends makes the others' operations fail."""

    def shutdown(self) -> None:
        """Forgets the works; the process set stays until hvd.shutdown()."""
        self._kept.clear()

    def _set_sequence_number_for_group(self) -> None:
        """Begins to count operations; for PyTorch's debugging."""
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        """Returns how many operations have been issued."""
        return self._sequence

    # ---- Issuing ----

    def _issue(
        self,
        request: Any,
        outputs: Sequence[torch.Tensor],
        finish: Callable[[Any], None] | None = None,
    ) -> HvdWork:
        work = HvdWork(request, outputs, finish, self._timeout)
        self._sequence += 1
        self._kept.append(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _where(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Returns the keywords that say where an operation runs."""
        return {"process_set": self._set, "stream": stream_of(tensor)}

    def _start_coalescing(self, device: Any = None) -> None:
        """Begins to collect works; they are issued all the same."""
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> Work:
        """Returns a work that stands for all since _start_coalescing()."""
        works, self._coalesced = self._coalesced or [], None
        return _All(works)

    # ---- Reductions ----

    def _reduce_into(
        self,
        tensors: Sequence[torch.Tensor],
        options: Any,
        keep: bool = True,
        after: Callable[[], None] | None = None,
    ) -> HvdWork:
        """Reduces tensors in place, or, without `keep`, leaves them as they were.

        after: what to do when the tensors have their new values.
        """
        op, bitwise = _reduce_op(options)
        if bitwise is not None:
            return self._reduce_bitwise(tensors, bitwise, keep, after)
        reals = [_real(tensor, options) for tensor in tensors]
        sends = [dense(tensor) for tensor in reals]
        recvs = sends if keep else [torch.empty_like(tensor) for tensor in sends]
        finish = _copy_back(list(zip(recvs, reals)) if keep else [], after)
        where = self._where(tensors[0])
        if len(sends) == 1:
            request = _hvd.allreduce_async(sends[0], recvs[0], op, **where)
        else:
            request = _hvd.grouped_allreduce_async(sends, recvs, op, **where)
        return self._issue(request, tensors, finish)

    def _reduce_bitwise(
        self,
        tensors: Sequence[torch.Tensor],
        function: Callable,
        keep: bool,
        after: Callable[[], None] | None,
    ) -> HvdWork:
        """Reduces tensors of integers by gathering those of all ranks."""
        flat = _join(tensors)
        request = _hvd.allgather_async(flat, **self._where(flat))

        def finish(result: Any) -> None:
            rows = tensor_of(result[0], flat, sum(result[1])).view(self.size(), -1)
            if keep:
                _deal(fold(function, rows), tensors)
            if after is not None:
                after()

        return self._issue(request, tensors, finish)

    def allreduce(self, tensors: Any, opts: Any = AllreduceOptions()) -> Work:
        """Reduces a tensor of all ranks; all get the result, in place."""
        return self._reduce_into([_one(tensors)], opts)

    def allreduce_coalesced(
        self, tensors: Sequence[torch.Tensor], opts: Any = AllreduceCoalescedOptions()
    ) -> Work:
        """Reduces several tensors in place, as one group."""
        return self._reduce_into(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = ReduceOptions()) -> Work:
        """Reduces a tensor to the root, in place; by an allreduce."""
        root = getattr(opts, "rootRank", 0)
        return self._reduce_into([_one(tensors)], opts, root == self._rank)

    def _scatter_sum(
        self, output: torch.Tensor, flat: torch.Tensor, options: Any
    ) -> HvdWork:
        """Reduces elements in a row; each rank gets an equal part of them."""
        op, bitwise = _reduce_op(options)
        if flat.numel() != output.numel() * self.size():
            raise RuntimeError(
                f"reduce_scatter: the input has {flat.numel()} elements; "
                f"{output.numel()} of the output for each of {self.size()} ranks are "
                "expected"
            )
        if bitwise is not None or flat.numel() == 0:
            start = self._rank * output.numel()
            return self._scatter_any(output, flat.clone(), options, start)
        recv = output
        if not output.is_contiguous():
            recv = torch.empty(output.shape, dtype=output.dtype, device=output.device)
        request = _hvd.reducescatter_async(
            flat.view(self.size(), -1), recv.view(1, -1), op, **self._where(flat)
        )
        return self._issue(request, [output], _copy_back([(recv, output)]))

    def _scatter_any(
        self, output: torch.Tensor, flat: torch.Tensor, options: Any, start: int
    ) -> HvdWork:
        """Reduces elements in a row, in place, and takes those from `start` on."""

        def take() -> None:
            output.copy_(flat[start : start + output.numel()].view(output.shape))

        return self._reduce_into([flat], options, after=take)

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = ReduceScatterOptions()
    ) -> Work:
        """Reduces a list of tensors, one for each rank; each rank gets its own."""
        output = _real(_one(outputs))
        parts = [_real(tensor, opts) for tensor in _nest(inputs)[0]]
        counts = [part.numel() for part in parts]
        if len(counts) != self.size() or counts[self._rank] != output.numel():
            raise RuntimeError(
                f"reduce_scatter: inputs of {counts} elements for {self.size()} ranks; "
                f"the output of rank {self._rank} has {output.numel()}"
            )
        flat = _join(parts)
        if len(set(counts)) == 1:
            return self._scatter_sum(output, flat, opts)
        return self._scatter_any(output, flat, opts, sum(counts[: self._rank]))

    def _reduce_scatter_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        opts: Any = ReduceScatterOptions(),
    ) -> Work:
        """Reduces a tensor; each rank gets an equal part of its elements."""
        flat = _real(input, opts).reshape(-1)
        return self._scatter_sum(_real(output), flat, opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any = ReduceScatterOptions(),
    ) -> Work:
        """Does _reduce_scatter_base() for several tensors."""
        pairs = zip(outputs, inputs)
        return _All([self._reduce_scatter_base(o, i, opts) for o, i in pairs])

    # ---- From one rank, and to one ----

    def broadcast(self, tensors: Any, opts: Any = BroadcastOptions()) -> Work:
        """Copies the root's tensor to all ranks, in place."""
        tensor = _real(_one(tensors))
        root = self._ranks[getattr(opts, "rootRank", opts)]
        send = dense(tensor)
        request = _hvd.broadcast_async(send, send, root, **self._where(tensor))
        return self._issue(request, [tensor], _copy_back([(send, tensor)]))

    def gather(self, outputs: Any, inputs: Any, opts: Any = GatherOptions()) -> Work:
        """Copies a tensor of each rank to the root's list; by an allgather."""
        root = getattr(opts, "rootRank", opts)
        if root != self._rank:
            return self._gather([[]], [_one(inputs)])
        return self._gather(_nest(outputs), [_one(inputs)])

    def scatter(self, outputs: Any, inputs: Any, opts: Any = ScatterOptions()) -> Work:
        """Copies each tensor of the root's list to a rank; by an alltoall."""
        root = getattr(opts, "rootRank", opts)
        output = _real(_one(outputs))
        flat, splits = output.new_empty(0), [0] * self.size()
        if root == self._rank:
            parts = [_real(tensor) for tensor in _nest(inputs)[0]]
            if len(parts) != self.size():
                raise RuntimeError(
                    f"scatter: {len(parts)} tensors for {self.size()} ranks"
                )
            flat, splits = _join(parts), [part.numel() for part in parts]
        return self._exchange([output], flat, splits)

    # ---- From all ranks to all ----

    def _gather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor]
    ) -> HvdWork:
        """Gathers tensors; each has a list of outputs, by rank, or an empty list."""
        outputs = [[_real(tensor) for tensor in part] for part in outputs]
        for part in outputs:
            if part and len(part) != self.size():
                raise RuntimeError(
                    f"{len(part)} output tensors for {self.size()} ranks"
                )
        flat = [_real(tensor).reshape(-1) for tensor in inputs]
        where = self._where(flat[0])

        def finish(result: Any) -> None:
            for (buffer, rows), send, parts in zip(result, flat, outputs):
                if not parts:
                    continue
                counts = [part.numel() for part in parts]
                if counts != list(rows):
                    raise RuntimeError(
                        f"the ranks sent {list(rows)} elements; the outputs have "
                        f"{counts}"
                    )
                _deal(tensor_of(buffer, send, sum(rows)), parts)

        every = [tensor for part in outputs for tensor in part]
        if len(flat) == 1:
            request = _hvd.allgather_async(flat[0], **where)
            return self._issue(request, every, lambda result: finish([result]))
        request = _hvd.grouped_allgather_async(flat, **where)
        return self._issue(request, every, finish)

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = AllgatherOptions()
    ) -> Work:
        """Copies a tensor of each rank to a list on all ranks."""
        return self._gather([_nest(outputs)[0]], [_one(inputs)])

    def allgather_coalesced(
        self, output_lists: Any, inputs: Any, opts: Any = AllgatherOptions()
    ) -> Work:
        """Does allgather() for several tensors, as one group.

        output_lists: a list for each tensor.
        """
        return self._gather(output_lists, inputs)

    def _allgather_base(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = AllgatherOptions()
    ) -> Work:
        """Copies a tensor of each rank to one tensor on all ranks."""
        return self.allgather_into_tensor_coalesced([output], [input])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any = AllgatherOptions(),
    ) -> Work:
        """Does _allgather_base() for several tensors, as one group."""
        lists = []
        for output, input in zip(outputs, inputs):
            if output.numel() != input.numel() * self.size():
                raise RuntimeError(
                    f"all_gather: the output has {output.numel()} elements; "
                    f"{input.numel()} for each of {self.size()} ranks are expected"
                )
            flat = _real(output).view(-1)
            lists.append(list(flat.chunk(self.size())) if flat.numel() else [])
        return self._gather(lists, inputs)

    def _exchange(
        self, outputs: Sequence[torch.Tensor], flat: torch.Tensor, splits: list[int]
    ) -> HvdWork:
        """Sends elements in a row to all ranks; what arrives fills the outputs."""
        request = _hvd.alltoall_async(flat, splits, **self._where(flat))
        expected = sum(output.numel() for output in outputs)

        def finish(result: Any) -> None:
            buffer, rows = result
            if sum(rows) != expected:
                raise RuntimeError(
                    f"{sum(rows)} elements arrived; the outputs have {expected}"
                )
            _deal(tensor_of(buffer, flat, expected), outputs)

        return self._issue(request, outputs, finish)

    def alltoall(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any = AllToAllOptions(),
    ) -> Work:
        """Sends a tensor to each rank, and gets one of each."""
        parts = [_real(tensor) for tensor in inputs]
        splits = [part.numel() for part in parts]
        return self._exchange([_real(t) for t in outputs], _join(parts), splits)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = AllToAllOptions(),
    ) -> Work:
        """Sends rows of a tensor to each rank, and gets rows of each.

        input_split_sizes, output_split_sizes: how many, by rank; without them equally
        many.
        """
        output, input = _real(output), _real(input)
        rows = self._split_rows(input, input_split_sizes)
        self._split_rows(output, output_split_sizes)
        width = input[0].numel() if input.shape[0] else 0
        splits = [count * width for count in rows]
        return self._exchange([output], input.reshape(-1), splits)

    all_to_all_single = alltoall_base

    def _split_rows(self, tensor: torch.Tensor, sizes: Sequence[int]) -> list[int]:
        """Returns the rows of a tensor by rank; RuntimeError if they do not fit."""
        rows = tensor.shape[0]
        if not sizes:
            if rows % self.size():
                raise RuntimeError(
                    f"{rows} rows cannot be divided among {self.size()} ranks"
                )
            return [rows // self.size()] * self.size()
        if len(sizes) != self.size() or sum(sizes) != rows:
            raise RuntimeError(
                f"splits {list(sizes)} do not add up to {rows} rows for "
                f"{self.size()} ranks"
            )
        return list(sizes)

    def barrier(self, opts: Any = BarrierOptions()) -> Work:
        """Waits for all ranks."""
        return self._issue(_hvd.barrier_async(process_set=self._set), [])

    # ---- What it does not have ----

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Work:
        """Raises RuntimeError."""
        raise RuntimeError(_NO_POINT_TO_POINT.format("send"))

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        """Raises RuntimeError."""
        raise RuntimeError(_NO_POINT_TO_POINT.format("recv"))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """Raises RuntimeError."""
        raise RuntimeError(_NO_POINT_TO_POINT.format("recv"))

    recvAnysource = recv_anysource


_NO_POINT_TO_POINT = (
    "backend hvd has no {}: it has collectives only; use broadcast, scatter or "
    "all_to_all, or a second group with backend gloo"
)


class _All(HvdWork):
    """Several works as one."""

    def __init__(self, works: Sequence[HvdWork]) -> None:
        outputs = [ref() for work in works for ref in work._refs]
        super().__init__(None, [t for t in outputs if t is not None])
        self._works = list(works)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for all of them."""
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        """Tells whether all are done."""
        return all([work.is_completed() for work in self._works])

    def is_success(self) -> bool:
        """Tells whether all are done and have succeeded."""
        return all([work.is_success() for work in self._works])

    def exception(self) -> Exception | None:
        """Returns the first error, or None."""
        errors = [work.exception() for work in self._works]
        return next((error for error in errors if error is not None), None)

    def get_future(self) -> Any:
        """Returns a future of all outputs."""
        futures = [work.get_future() for work in self._works]

        def results(all_futures: Any) -> list[torch.Tensor]:
            return [t for future in all_futures.value() for t in future.value()]

        return torch.futures.collect_all(futures).then(results)

    isCompleted = is_completed
    isSuccess = is_success
    getFuture = get_future


# ---- Making groups ----


def _members(store: Any, rank: int, size: int) -> list[int]:
    """Returns the world ranks of a group, by their place in it."""
    store.set(f"hvd.rank.{rank}", str(common.rank()))
    ranks = [int(store.get(f"hvd.rank.{place}")) for place in range(size)]
    if ranks != sorted(set(ranks)):
        raise RuntimeError(
            f"backend hvd: the group's ranks are {ranks} of hvdrun's job; they must be "
            "different and ascending; was the program started with hvdrun -np "
            f"{size}?"
        )
    return ranks


def _process_set(ranks: list[int], tag: str) -> int:
    """Returns a process set of these ranks, which its members make together.

    An MPI launcher has no store by which members could meet: there, groups of all
    ranks share the set of the world, and its order of operations.
    """
    if common.mpi_enabled() and len(ranks) == common.size():
        return 0
    return _hvd.process_set_add_members(ranks, tag)


# Process sets of groups that the program has dropped, which new groups of the same ranks
# take: by tag, the number of worlds left before, and that of the set.  In an elastic job
# they lose members as the other sets do.
_dropped: dict[str, tuple[int, int]] = {}


def _is_set(number: int, ranks: list[int]) -> bool:
    """Tells whether a process set exists and has exactly these ranks."""
    there = number in _hvd.process_sets()
    return there and _hvd.process_set_ranks(number) == ranks


def _take_dropped(store: Any, rank: int, ranks: list[int]) -> tuple[str, int] | None:
    """Returns the tag and number of a set that all members have dropped, or None.

    Members may drop their halves of a group at different times, so each says which it has.
    """
    mine = [
        tag
        for tag, (world, number) in _dropped.items()
        if world == common.worlds_left() and _is_set(number, ranks)
    ]
    store.set(f"hvd.dropped.{rank}", ",".join(["", *mine]))
    all_tags = set(mine)
    for place in range(len(ranks)):
        all_tags &= set(store.get(f"hvd.dropped.{place}").decode().split(","))
    tag = min(all_tags, default=None)
    return (tag, _dropped.pop(tag)[1]) if tag else None


def _keep_dropped(world: int, tag: str, number: int) -> None:
    """Keeps the set of a group that is being freed."""
    _dropped[tag] = (world, number)


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> HvdProcessGroup:
    """Makes a process group; called by its members.

    store: where the members of this group, and no others, exchange values.
    """
    common.init()
    if common.size() < size:
        raise RuntimeError(
            f"backend hvd: the group has {size} ranks, but hvdrun's job has "
            f"{common.size()}; start the program with hvdrun -np {size}"
        )
    ranks = _members(store, rank, size)
    found = _take_dropped(store, rank, ranks)
    if found:
        tag, number = found
    else:
        if rank == 0:
            _create.count += 1
            maker = f"{_hvd.generation()}.{ranks[0]}"
            store.set("hvd.tag", f"torch.distributed.{maker}.{_create.count}")
        tag = store.get("hvd.tag").decode()
        number = _process_set(ranks, tag)
    group = HvdProcessGroup(number, ranks, rank, timeout)
    weakref.finalize(group, _keep_dropped, common.worlds_left(), tag, number)
    return group


_create.count = 0  # type: ignore[attr-defined]

if not hasattr(dist.Backend, "HVD"):
    dist.Backend.register_backend("hvd", _create)
