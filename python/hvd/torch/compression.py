# SPDX-License-Identifier: Apache-2.0
"""Smaller numbers on the way between ranks.

A compressor is a class with two static methods, so that a program can write
its own.  For those of this module the allreduce functions and the optimizers do
not call these methods: the library converts on the way, with sums in float32.
"""

from __future__ import annotations

from typing import Any

import torch

_WIDE = (torch.float32, torch.float64)


class Compressor:
    """The interface of a compressor."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Returns the tensor to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns a received tensor in the form of the original."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Sends floating-point tensors as those of another dtype."""

    wire_dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if tensor.dtype.is_floating_point:
            return tensor.type(cls.wire_dtype), tensor.dtype
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.type(ctx) if ctx.is_floating_point else tensor


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    wire_dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16, with the range of float32."""

    wire_dtype = torch.bfloat16


class Compression:
    """The compressors that come with the package."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_WIRES = {NoneCompressor: 0, FP16Compressor: 1, BF16Compressor: 2}


def wire_for(compression: type, dtype: torch.dtype) -> int | None:
    """Returns the library's wire format that does what a compressor does.

    Returns an `enum hvd_wire` of hvd.h, or None when the compressor's own
    methods have to be called: it is not one of this module, or its conversion
    is not one that the library makes.
    """
    wire = _WIRES.get(compression)
    if wire == 0 or (wire is not None and dtype in _WIDE):
        return wire
    return None
