# SPDX-License-Identifier: Apache-2.0
"""Broadcast and allgather of Python objects, for all interfaces.

Objects travel pickled, by cloudpickle if it is installed, which knows more kinds of
them.  Unpickling runs code that the sender chooses: the ranks of a job trust each
other.
"""

from __future__ import annotations

import pickle
from typing import Any

from hvd import _hvd
from hvd.common import ProcessSet, global_process_set, process_set_id, rank


def _dumps(obj: Any) -> tuple[bytes, Exception | None]:
    """Pickles an object.  Returns its bytes, or none and the error.

    The caller tells the other ranks of the error before it raises it: they wait.
    """
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    try:
        return pickler.dumps(obj), None
    except Exception as e:
        return b"", e


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet | int = global_process_set,
) -> Any:
    """Copy an object of one rank to all, by pickle.

    Args:
        obj: on root, what is copied; elsewhere not looked at.
        root_rank: a rank of the world, in the process set.
        name: names the two broadcasts; needed if several threads call this.

    Returns:
        On root ``obj`` itself, elsewhere a copy.

    Blocks until this rank's part is done.  If root cannot pickle the object, root raises
    the error of pickle, and the others ValueError.
    """
    name = name or "broadcast_object"
    number = process_set_id(process_set)
    is_root = rank() == root_rank
    pickled, error = _dumps(obj) if is_root else (b"", None)
    data = bytearray(pickled)
    length = memoryview(bytearray(8)).cast("q")
    length[0] = len(data)
    _hvd.broadcast_async(length, length, root_rank, f"{name}.size", number).wait()
    if error is not None:
        raise error
    if length[0] == 0:
        raise ValueError(f"broadcast_object: rank {root_rank} cannot pickle its object")
    if not is_root:
        data = bytearray(length[0])
    _hvd.broadcast_async(data, data, root_rank, f"{name}.data", number).wait()
    return obj if is_root else pickle.loads(data)


def allgather_object(
    obj: Any,
    name: str | None = None,
    process_set: ProcessSet | int = global_process_set,
) -> list[Any]:
    """Gather an object of every rank, by pickle.

    Args:
        obj: this rank's object.
        name: names the allgather; needed if several threads call this.

    Returns:
        The list of all ranks' objects, in their order; the same on every rank.

    Blocks until this rank's part is done.  If a rank cannot pickle its object, it raises
    the error of pickle, and the others ValueError.
    """
    pickled, error = _dumps(obj)
    buffer, counts = _hvd.allgather_async(
        pickled, name or "allgather_object", process_set_id(process_set)
    ).wait()
    if error is not None:
        raise error
    view = memoryview(buffer)
    objects = []
    for place, count in enumerate(counts):
        if count == 0:
            raise ValueError(
                f"allgather_object: rank {place} of the process set cannot pickle its "
                "object"
            )
        objects.append(pickle.loads(view[:count]))
        view = view[count:]
    return objects
