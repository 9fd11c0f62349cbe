# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with PyTorch, by the API of Horovod.

    import hvd.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

`hvdrun -np 4 python train.py` runs such a program.  docs/python.md says how it
differs from Horovod.
"""

from hvd.torch import elastic
from hvd.torch.compression import Compression
from hvd.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from hvd.torch.mpi_ops import *  # noqa: F403
from hvd.torch.mpi_ops import __all__ as _operations
from hvd.torch.optimizer import DistributedOptimizer
from hvd.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    *_operations,
]
