# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for tf.keras, on libhvd.

Importing this module imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

from typing import Any

from .._keras.functions import Functions
from .._keras.interface import *  # noqa: F403
from .._lazy import submodule_getter, tf


def _load_keras() -> Any:
    """Imports and returns tf.keras; raises ImportError without TensorFlow."""
    return tf.keras


_functions = Functions(_load_keras)
DistributedOptimizer = _functions.DistributedOptimizer
PartialDistributedOptimizer = _functions.PartialDistributedOptimizer
load_model = _functions.load_model
__getattr__ = submodule_getter(__name__, ("callbacks", "elastic"))
