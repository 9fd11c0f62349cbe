# SPDX-License-Identifier: Apache-2.0
"""Handles of asynchronous operations, and what tensors need for the library.

A handle keeps the tensors of its operation alive until the operation is done,
also if the program drops the handle.  Handles belong to no thread.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Callable

import torch

from hvd import _hvd

_DTYPES = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
    "bfloat16": 10,
    "float8_e4m3fn": 11,
    "float8_e5m2": 12,
}

NAME_MAX = 255  # bytes, as in hvd.h

for _name, _number in _DTYPES.items():
    if hasattr(torch, _name):
        _hvd.register_dtype(getattr(torch, _name), _number)


class Handle:
    """An asynchronous operation, until synchronize() has returned its result."""

    __slots__ = ("request", "finish", "__weakref__")

    def __init__(self, request: Any, finish: Callable[[Any], Any] | None = None):
        self.request = request
        self.finish = finish

    def __repr__(self) -> str:
        if self.request is None:
            return "<hvd.torch handle, synchronized>"
        return "<hvd.torch handle>"


def poll(handle: Handle) -> bool:
    """Tells whether an operation is done, so that synchronize() will not block.

    Raises ValueError for what is not the handle of an operation, and for one
    that was given to synchronize() before.  Any thread; does not block.
    """
    if type(handle) is not Handle or handle.request is None:
        raise ValueError("this handle was not created, or has been synchronized")
    return handle.request.test()


def synchronize(handle: Any) -> Any:
    """Waits for an asynchronous operation and returns its result.

    handle: what an _async function returned.  The callable that
    sparse_allreduce_async() returns is called.

    Returns the output tensor, or a list or tuple of them; None for a handle
    that was synchronized before, and for anything else.  Raises
    HorovodInternalError when a rank has died or left, and ValueError when the
    ranks disagree on the operation.  Any thread; blocks, interruptible by
    Ctrl-C.  For tensors on a GPU the result is ready on the current stream.
    """
    if type(handle) is not Handle:
        return handle() if callable(handle) else None
    request = handle.request
    if request is None:
        return None
    finish = handle.finish
    handle.request = handle.finish = None
    result = request.wait()
    return result if finish is None else finish(result)


@lru_cache(maxsize=65536)
def full_name(kind: str, name: str | None) -> str | None:
    """Makes the name that an operation has in the library and in timelines.

    Returns None for None.  A name of more than 255 bytes is cut to 200 bytes
    and gets a hash of the whole, so that different names stay different.
    """
    if name is None or name == "":
        return None
    text = f"{kind}.{name}"
    data = text.encode("utf-8", "surrogateescape")
    if len(data) <= NAME_MAX:
        return text
    digest = hashlib.sha256(data).hexdigest()[:32]
    return data[:200].decode("utf-8", "ignore") + "#" + digest


def stream_of(tensor: torch.Tensor) -> int | None:
    """Returns the stream on which a tensor's work is ordered; None on the CPU.

    The library takes 0 for "the host waits", so CUDA's default stream is given
    as cudaStreamLegacy, whose handle is 1.
    """
    if not tensor.is_cuda:
        return None
    return torch.cuda.current_stream(tensor.device).cuda_stream or 1


def c_order(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor, or a copy of it, whose memory has its values, row-major."""
    return tensor.resolve_neg().contiguous()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor, or a copy of it, whose memory has its values without gaps."""
    tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        return tensor
    if torch.empty_like(tensor).stride() == tensor.stride():
        return tensor  # in another order, for example channels_last
    return tensor.contiguous()


def copy_back(
    tensor: torch.Tensor, work: torch.Tensor
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Returns what writes a result into tensor and returns that.

    None if work, in whose memory the result is, is tensor itself.
    """
    if work is tensor:
        return None

    def finish(result: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():  # tensor may be of that mode, or a parameter
            tensor.copy_(result)
        return tensor

    return finish


def check_list(tensors: Any) -> list[torch.Tensor]:
    """Returns the tensors of a group as a list; ValueError if there is none."""
    tensors = list(tensors)
    if not tensors:
        raise ValueError("a group needs at least one tensor")
    return tensors


def no_autograd(*tensors: torch.Tensor) -> bool:
    """Tells whether an operation on tensors need not be recorded."""
    return not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors)


def tensor_of(buffer: Any, like: torch.Tensor, rows: int) -> torch.Tensor:
    """Makes a tensor of a gathered buffer, without a copy.

    buffer: memory of the library, which the tensor keeps alive.
    like:   a tensor of the same dtype, device and dimensions but the first.
    rows:   the first dimension of the result.
    """
    shape = (rows, *like.shape[1:])
    if like.device.type != "cpu":
        return torch.from_dlpack(buffer).view(like.dtype).view(shape)
    if 0 in shape:
        return like.new_empty(shape)
    return torch.frombuffer(buffer, dtype=like.dtype).view(shape)
