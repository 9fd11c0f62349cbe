# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for tf.keras, on libhvd.

Importing this module imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

import importlib
from typing import Any

from ...common import *  # noqa: F403
from .._keras.functions import (  # noqa: F401
    Functions,
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    reducescatter,
)
from .._lazy import tf
from ..compression import Compression  # noqa: F401


def _load_keras() -> Any:
    """Imports and returns tf.keras."""
    return tf.keras


_functions = Functions(_load_keras)
DistributedOptimizer = _functions.DistributedOptimizer
PartialDistributedOptimizer = _functions.PartialDistributedOptimizer
load_model = _functions.load_model


def __getattr__(name: str) -> Any:
    if name in ("callbacks", "elastic"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
