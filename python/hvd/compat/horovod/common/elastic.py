# SPDX-License-Identifier: Apache-2.0
"""States that can be saved and restored, from :mod:`hvd.elastic`."""

from hvd.elastic import ObjectState, State
from hvd.elastic import run_with as run_fn

__all__ = ["ObjectState", "State", "run_fn"]
