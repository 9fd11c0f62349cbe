# SPDX-License-Identifier: Apache-2.0
"""Compression of what is sent, as in Horovod's TensorFlow API.

`none`, `fp16` and `bf16` cost no TensorFlow operation for float32 and float64:
libhvd converts while it sends, and sums in float32.  A class of the caller with
the same two static methods is called before and after the operation.
"""

from __future__ import annotations

from typing import Any

from ._lazy import tf


class Compressor:
    """What a compression class has to offer."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and a context for decompress()."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the result in the type that compress() was given."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def _cast_floating(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    if tensor.dtype.is_floating and tensor.dtype != dtype:
        return tf.cast(tensor, dtype), tensor.dtype
    return tensor, tensor.dtype


class FP16Compressor(Compressor):
    """Sends floating point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _cast_floating(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if tensor.dtype == ctx else tf.cast(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating point tensors as bfloat16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _cast_floating(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if tensor.dtype == ctx else tf.cast(tensor, ctx)


class Compression:
    """The compressions that `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_WIRES = {NoneCompressor: 0, FP16Compressor: 1, BF16Compressor: 2}


def wire_of(compression: Any, dtypes: Any) -> int | None:
    """Returns the `wire` option that does what `compression` does to all of
    `dtypes`, or None if compress() and decompress() have to be called."""
    wire = _WIRES.get(compression)
    if wire and any(d.is_floating and d.size < 4 for d in dtypes):
        return None
    return wire
