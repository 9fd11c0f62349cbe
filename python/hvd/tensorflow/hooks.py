# SPDX-License-Identifier: Apache-2.0
"""The session hook.  Importing this module needs TensorFlow."""

from __future__ import annotations

from typing import Any

from ._lazy import tf
from .functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Sets all global variables to those of one rank when a session is made.

    So ranks start from the same random values, or from the checkpoint that the
    root has restored.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Takes the rank to copy from; `device` is accepted and not used."""
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operation to the default graph, if it is not there yet."""
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph is not graph:
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Broadcasts; blocks until all ranks have made their session."""
        session.run(self.bcast_op)
