# SPDX-License-Identifier: Apache-2.0
"""allgather, broadcast, alltoall, barrier and join for torch tensors.

The parameters name, process_set and priority, the errors and the rules for
handles and threads are those of hvd.torch.reduce.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

from hvd import _hvd
from hvd.common import (
    Average,
    ProcessSet,
    global_process_set,
    process_set_id,
    rank,
)
from hvd.torch.handle import (
    Handle,
    c_order,
    check_list,
    copy_back,
    dense,
    full_name,
    no_autograd,
    stream_of,
    synchronize,
    tensor_of,
)


def _average(grad: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """Returns the average of a gradient over the ranks of a set."""
    grad = c_order(grad)
    return _hvd.allreduce(
        grad,
        torch.empty_like(grad),
        Average,
        process_set=process_set_id(process_set),
        stream=stream_of(grad),
    )


def _rows_tensor(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Returns a tensor in C order; ValueError if it has no first dimension."""
    if tensor.dim() == 0:
        raise ValueError(
            f"{what} needs a tensor of at least one dimension; use "
            "tensor.reshape(1) for a scalar"
        )
    return c_order(tensor)


# ---- allgather ---------------------------------------------------------


def _start_gather(
    send: torch.Tensor, name: str | None, process_set: ProcessSet, priority: int
) -> Any:
    """Issues an allgather and returns its request."""
    return _hvd.allgather_async(
        send,
        name=full_name("allgather", name),
        process_set=process_set_id(process_set),
        priority=priority,
        stream=stream_of(send),
    )


def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to concatenate the tensors of all ranks along the first dimension.

    tensor: at least one dimension; ranks may differ in the first one only.
    """
    send = _rows_tensor(tensor.detach(), "allgather")

    def finish(result: Any) -> torch.Tensor:
        return tensor_of(result[0], send, sum(result[1]))

    return Handle(_start_gather(send, name, process_set, priority), finish)


class _Allgather(torch.autograd.Function):
    """An allgather; its backward averages, and takes this rank's own rows."""

    @staticmethod
    def forward(ctx, tensor, name, process_set, priority):
        send = _rows_tensor(tensor, "allgather")
        buffer, rows = _start_gather(send, name, process_set, priority).wait()
        ctx.rows = rows
        ctx.process_set = process_set
        return tensor_of(buffer, send, sum(rows))

    @staticmethod
    def backward(ctx, grad_output):
        grad = _average(grad_output, ctx.process_set)
        return _own_rows(grad, ctx.rows, ctx.process_set), None, None, None


def _own_rows(
    gathered: torch.Tensor, rows: Sequence[int], process_set: ProcessSet
) -> torch.Tensor:
    """Returns this rank's part of a tensor that holds those of all ranks."""
    place = process_set.rank()
    return gathered.narrow(0, sum(rows[:place]), rows[place])


def allgather(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> torch.Tensor:
    """Concatenates the tensors of all ranks along the first dimension.

    tensor: at least one dimension; ranks may differ in the first one only.

    The result, on every rank, is a new tensor with the rows of rank 0, of rank
    1, and so on.  The backward pass averages the gradient over the ranks, and
    gives each the rows that it has contributed.
    """
    if not no_autograd(tensor):
        return _Allgather.apply(tensor, name, process_set, priority)
    return synchronize(allgather_async(tensor, name, process_set, priority=priority))


def _start_grouped_gather(
    sends: Sequence[torch.Tensor],
    name: str | None,
    process_set: ProcessSet,
    priority: int,
) -> Any:
    """Issues a grouped allgather and returns its request."""
    return _hvd.grouped_allgather_async(
        sends,
        name=full_name("grouped_allgather", name),
        process_set=process_set_id(process_set),
        priority=priority,
        stream=stream_of(sends[0]),
    )


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts an allgather of several tensors as one operation.

    synchronize() returns a list.
    """
    sends = [
        _rows_tensor(t.detach(), "grouped_allgather") for t in check_list(tensors)
    ]

    def finish(results: Any) -> list[torch.Tensor]:
        return [tensor_of(b, t, sum(rows)) for (b, rows), t in zip(results, sends)]

    request = _start_grouped_gather(sends, name, process_set, priority)
    return Handle(request, finish)


class _GroupedAllgather(torch.autograd.Function):
    """A grouped allgather; its backward averages, and takes own rows."""

    @staticmethod
    def forward(ctx, name, process_set, priority, *tensors):
        sends = [_rows_tensor(t, "grouped_allgather") for t in tensors]
        results = _start_grouped_gather(sends, name, process_set, priority).wait()
        ctx.rows = [rows for _, rows in results]
        ctx.process_set = process_set
        return tuple(
            tensor_of(buffer, send, sum(rows))
            for (buffer, rows), send in zip(results, sends)
        )

    @staticmethod
    def backward(ctx, *grad_outputs):
        grads = [c_order(g) for g in grad_outputs]
        request = _hvd.grouped_allreduce_async(
            grads,
            [torch.empty_like(g) for g in grads],
            Average,
            process_set=process_set_id(ctx.process_set),
            stream=stream_of(grads[0]),
        )
        own = [
            _own_rows(grad, rows, ctx.process_set)
            for grad, rows in zip(request.wait(), ctx.rows)
        ]
        return (None, None, None, *own)


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> list[torch.Tensor]:
    """Concatenates each of several tensors over all ranks, as one operation."""
    tensors = check_list(tensors)
    if not no_autograd(*tensors):
        return list(_GroupedAllgather.apply(name, process_set, priority, *tensors))
    return synchronize(
        grouped_allgather_async(tensors, name, process_set, priority=priority)
    )


# ---- broadcast ---------------------------------------------------------


def _start_broadcast(
    send: torch.Tensor,
    recv: torch.Tensor,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    priority: int,
) -> Any:
    """Issues a broadcast and returns its request."""
    return _hvd.broadcast_async(
        send,
        recv,
        root_rank,
        name=full_name("broadcast", name),
        process_set=process_set_id(process_set),
        priority=priority,
        stream=stream_of(send),
    )


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to copy root_rank's tensor to a new tensor on every rank.

    root_rank: a rank of the world, also with a process set.
    """
    send = dense(tensor.detach())
    output = torch.empty_like(send)
    return Handle(
        _start_broadcast(send, output, root_rank, name, process_set, priority)
    )


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to copy root_rank's tensor into tensor on every rank."""
    work = dense(tensor)
    request = _start_broadcast(work, work, root_rank, name, process_set, priority)
    return Handle(request, copy_back(tensor, work))


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> torch.Tensor:
    """Copies root_rank's tensor into tensor on every rank, and returns it."""
    return synchronize(
        broadcast_async_(tensor, root_rank, name, process_set, priority=priority)
    )


class _Broadcast(torch.autograd.Function):
    """A broadcast; its backward averages at the root, and is 0 elsewhere."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set, priority):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        send = dense(tensor)
        return _start_broadcast(
            send, torch.empty_like(send), root_rank, name, process_set, priority
        ).wait()

    @staticmethod
    def backward(ctx, grad_output):
        grad = _average(grad_output, ctx.process_set)
        if rank() != ctx.root_rank:
            grad.zero_()
        return grad, None, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> torch.Tensor:
    """Returns a copy of root_rank's tensor, on every rank.

    tensor: the same shape and dtype on all ranks; its values count on
            root_rank only.

    The backward pass gives root_rank the average of the gradients, and zeros to
    the others.
    """
    if not no_autograd(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set, priority)
    return synchronize(
        broadcast_async(tensor, root_rank, name, process_set, priority=priority)
    )


# ---- alltoall ----------------------------------------------------------


def _check_splits(
    tensor: torch.Tensor, splits: Any, process_set: ProcessSet
) -> list[int] | None:
    """Returns splits as a list of rows; ValueError if they do not fit tensor."""
    size, rows = process_set.size(), tensor.shape[0]
    if splits is None:
        if rows % size:
            raise ValueError(
                f"alltoall: {rows} rows cannot be divided evenly among {size} "
                "ranks; give splits"
            )
        return None
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32 or splits.dim() != 1:
            raise ValueError("alltoall: splits must be a vector of int32")
        splits = splits.tolist()
    splits = [int(n) for n in splits]
    if len(splits) != size:
        raise ValueError(f"alltoall: {len(splits)} splits for {size} ranks")
    if min(splits) < 0 or sum(splits) > rows:
        raise ValueError(f"alltoall: splits {splits} of {rows} rows")
    return splits


def _start_alltoall(
    tensor: torch.Tensor,
    splits: list[int] | None,
    name: str | None,
    process_set: ProcessSet,
    priority: int,
) -> Any:
    """Issues an alltoall of a tensor in C order and returns its request."""
    return _hvd.alltoall_async(
        tensor,
        splits,
        name=full_name("alltoall", name),
        process_set=process_set_id(process_set),
        priority=priority,
        stream=stream_of(tensor),
    )


def _alltoall_result(
    result: Any, send: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes the two output tensors of an alltoall."""
    buffer, received = result
    output = tensor_of(buffer, send, sum(received))
    return output, torch.tensor(received, dtype=torch.int32)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Sequence[int] | torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to send each rank some rows of tensor, and to collect theirs.

    See alltoall().  synchronize() returns a pair: the rows, and how many came
    from each rank.
    """
    send = _rows_tensor(tensor.detach(), "alltoall")
    counts = _check_splits(send, splits, process_set)
    request = _start_alltoall(send, counts, name, process_set, priority)
    return Handle(request, lambda result: _alltoall_result(result, send))


class _Alltoall(torch.autograd.Function):
    """An alltoall; its backward sends each rank the gradient of its rows."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set, priority):
        send = _rows_tensor(tensor, "alltoall")
        counts = _check_splits(send, splits, process_set)
        request = _start_alltoall(send, counts, name, process_set, priority)
        output, received = _alltoall_result(request.wait(), send)
        ctx.process_set = process_set
        ctx.received = received.tolist()
        ctx.rows = send.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, grad_output, _):
        send = c_order(grad_output)
        request = _start_alltoall(send, ctx.received, None, ctx.process_set, 0)
        grad, _ = _alltoall_result(request.wait(), send)
        if grad.shape[0] < ctx.rows:  # splits left rows out
            rest = grad.new_zeros((ctx.rows - grad.shape[0], *grad.shape[1:]))
            grad = torch.cat((grad, rest))
        return grad, None, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Sequence[int] | torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends each rank some rows of tensor, and returns the rows that they sent.

    tensor: at least one dimension; ranks may differ in the first one only.
    splits: how many rows each rank of the set gets, in their order; a sequence
            or a vector of int32.  None: the rows are divided evenly, which must
            be possible.

    Returns the rows of rank 0, of rank 1, and so on; with splits also a vector
    of int32, the number of rows of each.  ValueError if splits do not fit.
    """
    if no_autograd(tensor):
        handle = alltoall_async(tensor, splits, name, process_set, priority=priority)
        output, received = synchronize(handle)
    else:
        output, received = _Alltoall.apply(
            tensor, splits, name, process_set, priority
        )
    return output if splits is None else (output, received)


# ---- barrier, join -----------------------------------------------------


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the set have called it."""
    _hvd.barrier_async(process_set=process_set_id(process_set)).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all have said so.

    device: ignored; where a GPU is used, its memory follows from the tensors of
            the other ranks.

    Meanwhile the other ranks' operations go on without this one: it counts as
    zeros in sums and averages, and contributes nothing to gathers.  Returns the
    rank that joined last.  Blocks.
    """
    return _hvd.join_async().wait()
