# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for Keras, on libhvd.

Importing this module imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

from typing import Any

from ..tensorflow._keras.functions import Functions
from ..tensorflow._keras.interface import *  # noqa: F403
from ..tensorflow._lazy import LazyModule, submodule_getter

_keras = LazyModule("keras", "install it with: pip install keras")


def _load_keras() -> Any:
    """Imports and returns Keras; raises ImportError if it is not installed."""
    return _keras.load()


_functions = Functions(_load_keras)
DistributedOptimizer = _functions.DistributedOptimizer
PartialDistributedOptimizer = _functions.PartialDistributedOptimizer
load_model = _functions.load_model
__getattr__ = submodule_getter(__name__, ("callbacks", "elastic"))
