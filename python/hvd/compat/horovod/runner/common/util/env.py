# SPDX-License-Identifier: Apache-2.0
"""What the launcher's variables say about this process."""

from __future__ import annotations

import os

_NAMES = [
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
]


def get_env_rank_and_size() -> tuple[int, int]:
    """Returns rank and size by the variables of hvdrun or mpirun; (0, 1) without.

    Raises:
        RuntimeError: only one of two variables is set.
    """
    for names in _NAMES:
        rank, size = (os.environ.get(name) for name in names)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(f"only one of {names[0]} and {names[1]} is set")
    return 0, 1
