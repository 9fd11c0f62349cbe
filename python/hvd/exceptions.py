# SPDX-License-Identifier: Apache-2.0
"""The exceptions of hvd that are not Python's own."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """An operation failed for a reason outside this program's arguments.

    A rank died or left, ranks disagree on what the operation is, a connection
    broke, or memory ran out.  The text is libhvd's and names the rank and host that
    caused it.

    Attributes:
        status: the number of the failure, as in ``enum hvd_status`` of hvd_status.h;
            0 if Python raised the exception.
    """

    status: int = 0


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added to or removed from an elastic job.

    Attributes:
        skip_sync: True if the state of the ranks needs no synchronization.
        status: as in HorovodInternalError; 0 if a program has raised it.
    """

    status: int = 0

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts were added or removed")
        self.skip_sync = skip_sync


__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
