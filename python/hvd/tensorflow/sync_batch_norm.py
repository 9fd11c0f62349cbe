# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks.  Importing this module needs
TensorFlow."""

from __future__ import annotations

from typing import Any

from . import mpi_ops
from ._lazy import tf
from .mpi_ops import Sum
from .. import _hvd


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """tf.keras.layers.BatchNormalization with the mean and variance of the
    ranks' batches taken together.

    The ranks add up number of elements, sum and sum of squares, so batches may
    differ in size.  Parameters are those of the base class.
    """

    def __init__(self, fused: Any = False, **kwargs: Any) -> None:
        """Raises ValueError for fused=True, or None, which cannot be split."""
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True")
        if not kwargs.get("name"):
            kwargs["name"] = "sync_batch_normalization"
        if _KERAS_3:
            super().__init__(**kwargs)
        else:
            super().__init__(fused=False, **kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if _hvd.size() == 1:
            return mean, variance
        elements = tf.cast(tf.size(inputs) / tf.size(mean), mean.dtype)
        total = tf.stack(
            [
                tf.fill(tf.shape(mean), elements),
                mean * elements,
                (variance + mean * mean) * elements,
            ]
        )
        count, first, second = tf.unstack(mpi_ops._allreduce(total, op=Sum))
        mean = first / count
        return mean, second / count - mean * mean


_KERAS_3 = not hasattr(
    tf.keras.layers.BatchNormalization, "_sync_calculate_mean_and_var"
)
