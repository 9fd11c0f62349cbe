# SPDX-License-Identifier: Apache-2.0
"""Names that programs import from Horovod's module of this name."""

from __future__ import annotations

from ._lazy import executing_eagerly as _executing_eagerly  # noqa: F401
