# SPDX-License-Identifier: Apache-2.0
"""Callbacks for tf.keras.  Importing this module imports Keras."""

from __future__ import annotations

from . import _load_keras
from .._keras.callbacks import make_callbacks

globals().update(make_callbacks(_load_keras()))
