# SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter of torch tensors.

All functions here have these parameters in common:

name         Names the operation.  Operations with a name may be issued in any
             order and from any thread; those without one are matched by their
             order.  A name must not be in flight twice.
op           Average (the default), Sum, Min, Max, Product or Adasum.
prescale_factor, postscale_factor
             Factors on the input and on the result.
process_set  The ranks that take part; this one must be among them.
priority     Operations that are ready together are carried out in the order of
             priority, the highest first.

Shape, dtype and layout of the tensors, and all parameters but priority, must be
the same on all ranks; else every rank gets an error that names two ranks and
what they differ in.  Errors: ValueError for arguments, HorovodInternalError when
a rank has died or left.  Functions without _async block; the others return a
handle for poll() and synchronize(), and until that has returned, the program
must not change the input, nor use the output.  Any thread may call them.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from hvd import _hvd
from hvd.common import (
    Adasum,
    Average,
    ProcessSet,
    Sum,
    global_process_set,
    process_set_id,
    resolve_op,
)
from hvd.torch.compression import Compression, wire_for
from hvd.torch.gather import allgather, allgather_async, grouped_allgather
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
)


def _start(
    send: torch.Tensor,
    recv: torch.Tensor,
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    priority: int,
    wire: int = 0,
) -> Any:
    """Issues an allreduce and returns its request."""
    return _hvd.allreduce_async(
        send,
        recv,
        op,
        scales[0],
        scales[1],
        wire,
        0,
        full_name("allreduce", name),
        process_set_id(process_set),
        priority,
        stream_of(send),
    )


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to reduce a tensor over all ranks, into a new tensor.

    The result has the shape, dtype and layout of tensor.  Autograd does not
    record it; see allreduce().
    """
    op = resolve_op(op, average)
    send = dense(tensor.detach())
    scales = (prescale_factor, postscale_factor)
    output = torch.empty_like(send)
    return Handle(_start(send, output, name, op, scales, process_set, priority))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to reduce a tensor over all ranks in place; the result is tensor."""
    op = resolve_op(op, average)
    work = dense(tensor)
    scales = (prescale_factor, postscale_factor)
    request = _start(work, work, name, op, scales, process_set, priority)
    return Handle(request, copy_back(tensor, work))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> torch.Tensor:
    """Reduces a tensor over all ranks in place, and returns it."""
    if average is not None or op is None:
        op = resolve_op(op, average)
    contiguous = tensor.is_contiguous() and not tensor.is_neg()
    if not contiguous and dense(tensor) is not tensor:
        return synchronize(
            allreduce_async_(
                tensor,
                None,
                name,
                op,
                prescale_factor,
                postscale_factor,
                process_set,
                priority=priority,
            )
        )
    return _hvd.allreduce(
        tensor,
        tensor,
        op,
        prescale_factor,
        postscale_factor,
        0,
        0,
        None if name is None else full_name("allreduce", name),
        process_set_id(process_set),
        priority,
        stream_of(tensor),
    )


class _Allreduce(torch.autograd.Function):
    """An allreduce whose backward is the same allreduce of the gradient."""

    @staticmethod
    def forward(ctx, tensor, name, op, scales, process_set, priority, wire):
        ctx.again = (op, scales, process_set, priority, wire)
        send = dense(tensor)
        output = torch.empty_like(send)
        return _start(
            send, output, name, op, scales, process_set, priority, wire
        ).wait()

    @staticmethod
    def backward(ctx, grad_output):
        op, scales, process_set, priority, wire = ctx.again
        grad = _Allreduce.apply(
            grad_output, None, op, scales, process_set, priority, wire
        )
        return grad, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> torch.Tensor:
    """Reduces a tensor over all ranks and returns the result as a new tensor.

    compression: how the tensor travels; see hvd.torch.Compression.

    The result has the shape, dtype and layout of tensor.  The backward pass
    reduces the gradient in the same way, so it must run on all ranks.
    """
    op = resolve_op(op, average)
    scales = (prescale_factor, postscale_factor)
    wire = wire_for(compression, tensor.dtype)
    ctx = None
    if wire is None:
        tensor, ctx = compression.compress(tensor)
    common = (name, op, scales, process_set, priority)
    if no_autograd(tensor):
        send = dense(tensor)
        output = _start(send, torch.empty_like(send), *common, wire or 0).wait()
    else:
        output = _Allreduce.apply(tensor, *common, wire or 0)
    return output if wire is not None else compression.decompress(output, ctx)


def _start_group(
    sends: Sequence[torch.Tensor],
    recvs: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    priority: int,
    wire: int = 0,
) -> Any:
    """Issues a grouped allreduce and returns its request."""
    return _hvd.grouped_allreduce_async(
        sends,
        recvs,
        op,
        scales[0],
        scales[1],
        wire,
        0,
        full_name("grouped_allreduce", name),
        process_set_id(process_set),
        priority,
        stream_of(sends[0]),
    )


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to reduce several tensors as one operation, into new tensors.

    The tensors may be of different dtypes.  synchronize() returns a list.
    """
    op = resolve_op(op, average)
    sends = [dense(t.detach()) for t in check_list(tensors)]
    outputs = [torch.empty_like(t) for t in sends]
    scales = (prescale_factor, postscale_factor)
    return Handle(
        _start_group(sends, outputs, name, op, scales, process_set, priority), list
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to reduce several tensors as one operation, in place."""
    op = resolve_op(op, average)
    tensors = check_list(tensors)
    work = [dense(t) for t in tensors]
    scales = (prescale_factor, postscale_factor)

    def finish(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        for tensor, mine, result in zip(tensors, work, results):
            finish_one = copy_back(tensor, mine)
            if finish_one:
                finish_one(result)
        return tensors

    request = _start_group(work, work, name, op, scales, process_set, priority)
    return Handle(request, finish)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> list[torch.Tensor]:
    """Reduces several tensors as one operation in place, and returns them."""
    op = resolve_op(op, average)
    handle = grouped_allreduce_async_(
        tensors,
        None,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        priority=priority,
    )
    return synchronize(handle)


class _GroupedAllreduce(torch.autograd.Function):
    """A grouped allreduce; its backward reduces the gradients likewise."""

    @staticmethod
    def forward(ctx, name, op, scales, process_set, priority, *tensors):
        ctx.again = (None, op, scales, process_set, priority)
        sends = [dense(t) for t in tensors]
        outputs = [torch.empty_like(t) for t in sends]
        return tuple(
            _start_group(
                sends, outputs, name, op, scales, process_set, priority
            ).wait()
        )

    @staticmethod
    def backward(ctx, *grad_outputs):
        grads = _GroupedAllreduce.apply(*ctx.again, *grad_outputs)
        return (None, None, None, None, None, *grads)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> list[torch.Tensor]:
    """Reduces several tensors as one operation, and returns new tensors.

    The tensors may be of different dtypes.  The backward pass reduces the
    gradients in the same way, as one operation.
    """
    op = resolve_op(op, average)
    scales = (prescale_factor, postscale_factor)
    packed = [compression.compress(t) for t in check_list(tensors)]
    sends = [t for t, _ in packed]
    if no_autograd(*sends):
        sends = [dense(t) for t in sends]
        recvs = [torch.empty_like(t) for t in sends]
        outputs = _start_group(
            sends, recvs, name, op, scales, process_set, priority
        ).wait()
    else:
        outputs = _GroupedAllreduce.apply(
            name, op, scales, process_set, priority, *sends
        )
    return [compression.decompress(o, ctx) for o, (_, ctx) in zip(outputs, packed)]


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
    *,
    priority: int = 0,
) -> Callable[[], torch.Tensor]:
    """Starts to reduce a sparse tensor, by gathering all indices and values.

    op: Average or Sum.

    Returns a function of no arguments, which waits and returns the reduced
    tensor, sparse, with the ranks' entries one after another (coalesce() adds
    up those of the same index).  The ranks may have different numbers of
    entries.
    """
    if op not in (Average, Sum):
        raise ValueError("a sparse allreduce needs op Average or Sum")
    if not tensor.is_sparse:
        raise ValueError("sparse_allreduce_async needs a sparse tensor")
    tensor = tensor.detach()
    names = (None, None) if name is None else (f"{name}.indices", f"{name}.values")
    indices = allgather_async(
        tensor._indices().t().contiguous(), names[0], process_set, priority=priority
    )
    values = allgather_async(
        tensor._values(), names[1], process_set, priority=priority
    )

    def finish() -> torch.Tensor:
        all_values = synchronize(values)
        all_indices = synchronize(indices).t()
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices, all_values, tensor.shape)

    return finish


def _scatter_output(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Makes the output of this rank's share of a reducescatter."""
    if tensor.dim() == 0:
        raise ValueError("reducescatter needs a tensor of at least one dimension")
    rows = _hvd.reducescatter_rows(tensor.shape[0], number)
    return tensor.new_empty((rows, *tensor.shape[1:]))


def _check_scatter(op: int) -> None:
    """Refuses an Adasum, whose result no rank has in parts, as Horovod does."""
    if op == Adasum:
        raise NotImplementedError("reducescatter: there is no Adasum of parts")


def _start_scatter(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet,
    scales: tuple[float, float],
    priority: int,
) -> Any:
    """Issues a reducescatter and returns its request."""
    number = process_set_id(process_set)
    send = c_order(tensor)
    _check_scatter(op)
    return _hvd.reducescatter_async(
        send,
        _scatter_output(send, number),
        op,
        scales[0],
        scales[1],
        name=full_name("reducescatter", name),
        process_set=number,
        priority=priority,
        stream=stream_of(send),
    )


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    priority: int = 0,
) -> Handle:
    """Starts to reduce a tensor over all ranks; each gets a share of its rows.

    op is Average or Sum.  The result has the dimensions of tensor but for the
    first, which is divided among the ranks in their order; if it cannot be
    divided evenly, the first ranks get one row more.
    """
    scales = (prescale_factor, postscale_factor)
    return Handle(
        _start_scatter(tensor.detach(), name, op, process_set, scales, priority)
    )


class _Reducescatter(torch.autograd.Function):
    """A reducescatter; its backward gathers the gradients of all shares."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, scales, priority):
        ctx.factor = _backward_factor(op, process_set, scales)
        ctx.process_set = process_set
        return _start_scatter(tensor, name, op, process_set, scales, priority).wait()

    @staticmethod
    def backward(ctx, grad_output):
        grad = allgather(grad_output * ctx.factor, process_set=ctx.process_set)
        return grad, None, None, None, None, None


def _backward_factor(
    op: int, process_set: ProcessSet, scales: tuple[float, float]
) -> float:
    """Returns the factor on the gradient of a reducescatter's result."""
    return scales[0] * scales[1] * (process_set.size() if op == Sum else 1)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    priority: int = 0,
) -> torch.Tensor:
    """Reduces a tensor over all ranks and returns this rank's share of the rows.

    See reducescatter_async().  The backward pass gathers the gradients of all
    shares, multiplied by the factors and, for Sum, by the number of ranks.
    """
    scales = (prescale_factor, postscale_factor)
    send, ctx = compression.compress(tensor)
    if no_autograd(send):
        output = _start_scatter(send, name, op, process_set, scales, priority).wait()
    else:
        output = _Reducescatter.apply(send, name, op, process_set, scales, priority)
    return compression.decompress(output, ctx)


def _start_grouped_scatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    process_set: ProcessSet,
    scales: tuple[float, float],
    priority: int,
) -> Any:
    """Issues a grouped reducescatter and returns its request."""
    number = process_set_id(process_set)
    sends = [c_order(t) for t in tensors]
    recvs = [_scatter_output(t, number) for t in sends]
    _check_scatter(op)
    return _hvd.grouped_reducescatter_async(
        sends,
        recvs,
        op,
        scales[0],
        scales[1],
        name=full_name("grouped_reducescatter", name),
        process_set=number,
        priority=priority,
        stream=stream_of(sends[0]),
    )


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    priority: int = 0,
) -> Handle:
    """Starts a reducescatter of several tensors as one operation."""
    scales = (prescale_factor, postscale_factor)
    sends = [t.detach() for t in check_list(tensors)]
    request = _start_grouped_scatter(sends, name, op, process_set, scales, priority)
    return Handle(request, list)


class _GroupedReducescatter(torch.autograd.Function):
    """A grouped reducescatter; its backward is a grouped allgather."""

    @staticmethod
    def forward(ctx, name, op, process_set, scales, priority, *tensors):
        ctx.factor = _backward_factor(op, process_set, scales)
        ctx.process_set = process_set
        return tuple(
            _start_grouped_scatter(
                tensors, name, op, process_set, scales, priority
            ).wait()
        )

    @staticmethod
    def backward(ctx, *grad_outputs):
        grads = grouped_allgather(
            [g * ctx.factor for g in grad_outputs], process_set=ctx.process_set
        )
        return (None, None, None, None, None, *grads)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    priority: int = 0,
) -> list[torch.Tensor]:
    """Reduces several tensors as one operation and returns shares of their rows."""
    scales = (prescale_factor, postscale_factor)
    packed = [compression.compress(t) for t in check_list(tensors)]
    sends = [t for t, _ in packed]
    common = (name, op, process_set, scales, priority)
    if no_autograd(*sends):
        outputs = _start_grouped_scatter(sends, *common).wait()
    else:
        outputs = _GroupedReducescatter.apply(*common, *sends)
    return [compression.decompress(o, ctx) for o, (_, ctx) in zip(outputs, packed)]
