# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several ranks: :func:`run`."""

from hvd.compat.launch import run

__all__ = ["run"]
