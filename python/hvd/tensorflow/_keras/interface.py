# SPDX-License-Identifier: Apache-2.0
"""The names that hvd.keras and hvd.tensorflow.keras offer alike."""

from __future__ import annotations

from ... import common as _common
from ...common import *  # noqa: F403
from ..compression import Compression
from .functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    reducescatter,
)

__all__ = [  # noqa: F405
    *_common.__all__,
    "Compression",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "reducescatter",
]
