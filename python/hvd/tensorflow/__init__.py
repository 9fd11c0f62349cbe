# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for TensorFlow, on libhvd.

Importing this module does not import TensorFlow; the first operation does.

Operations take tensors on the host: eagerly by a direct call, in a tf.function
and in a graph of a session by tf.numpy_function, one call for all gradients of
a step.  So they hold Python's lock for a moment, do not run under XLA
(`jit_compile=True`), and copy tensors that are in a GPU's memory.  Communication
does not overlap with the backward pass; hvd.torch does that.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..common import *  # noqa: F403
from . import mpi_ops, util  # noqa: F401
from ._lazy import executing_eagerly as _executing_eagerly  # noqa: F401
from ._lazy import submodule_getter as _submodule_getter
from .compression import Compression  # noqa: F401
from .functions import (  # noqa: F401
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .mpi_ops import (  # noqa: F401
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from .ops import (  # noqa: F401
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from .optimizer import DistributedOptimizer  # noqa: F401
from .tape import (  # noqa: F401
    DistributedGradientTape,
    PartialDistributedGradientTape,
)

# What needs TensorFlow to be defined, and where it is.
_LATE = {
    "BroadcastGlobalVariablesHook": ".hooks",
    "SyncBatchNormalization": ".sync_batch_norm",
}
_get_submodule = _submodule_getter(
    __name__, ("elastic", "keras", "hooks", "sync_batch_norm")
)


def __getattr__(name: str) -> Any:
    if name in _LATE:
        value = getattr(importlib.import_module(_LATE[name], __name__), name)
        globals()[name] = value
        return value
    return _get_submodule(name)


def gpu_available(ext_base_name: str = "tensorflow") -> bool:
    """Returns whether TensorFlow sees a GPU."""
    from ._lazy import tf

    return bool(tf.config.list_physical_devices("GPU"))
