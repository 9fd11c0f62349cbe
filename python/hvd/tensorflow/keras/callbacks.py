# SPDX-License-Identifier: Apache-2.0
"""The callbacks, for tf.keras.  Importing this module needs it."""

from __future__ import annotations

from . import _load_keras
from .._keras.callbacks import make_callbacks

globals().update(make_callbacks(_load_keras()))
