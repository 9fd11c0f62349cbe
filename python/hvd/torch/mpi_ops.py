# SPDX-License-Identifier: Apache-2.0
"""All operations on torch tensors, under the module name of Horovod's API."""

from hvd.common import *  # noqa: F403
from hvd.torch.gather import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    join,
)
from hvd.torch.handle import poll, synchronize
from hvd.torch.reduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)

__all__ = [name for name in dir() if not name.startswith("_")]
