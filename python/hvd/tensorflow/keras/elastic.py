# SPDX-License-Identifier: Apache-2.0
"""States and callbacks for elastic training with tf.keras.

Importing this module imports Keras.
"""

from __future__ import annotations

from . import _load_keras
from .._keras.elastic import make_elastic

globals().update(make_elastic(_load_keras()))
