# SPDX-License-Identifier: Apache-2.0
"""Compression of what is sent, as in Horovod's TensorFlow API.

`none`, `fp16` and `bf16` cost no TensorFlow operation for float32 and float64:
libhvd converts while it sends, and sums in float32.  A class of the caller with
the same two static methods is called before and after the operation.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

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


class _CastCompressor(Compressor):
    """Sends floating point tensors as the type that a subclass names."""

    _sent_as = ""

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        sent_as = tf.as_dtype(cls._sent_as)
        if tensor.dtype.is_floating and tensor.dtype != sent_as:
            return tf.cast(tensor, sent_as), tensor.dtype
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16."""

    _sent_as = "float16"


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16."""

    _sent_as = "bfloat16"


class Compression:
    """The compressions that `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_WIRES = {NoneCompressor: 0, FP16Compressor: 1, BF16Compressor: 2}


def _wire_of(compression: Any, dtypes: Any) -> int | None:
    """Returns the `wire` option that does what `compression` does to all of
    `dtypes`, or None if compress() and decompress() have to be called."""
    wire = _WIRES.get(compression)
    if wire and any(d.is_floating and d.size < 4 for d in dtypes):
        return None
    return wire


def compress_all(
    compression: Any, tensors: Sequence[Any]
) -> tuple[list[Any], int, Callable[[Sequence[Any]], list[Any]]]:
    """Prepares tensors for an allreduce.

    Returns the tensors to send, the `wire` option of the operation, and a function
    that turns its results, in the same order, into the types of `tensors`.
    """
    wire = _wire_of(compression, [t.dtype for t in tensors])
    if wire is not None:
        return list(tensors), wire, list
    pairs = [compression.compress(t) for t in tensors]

    def restore(results: Sequence[Any]) -> list[Any]:
        return [compression.decompress(r, c) for r, (_, c) in zip(results, pairs)]

    return [t for t, _ in pairs], 0, restore
