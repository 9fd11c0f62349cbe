# SPDX-License-Identifier: Apache-2.0
"""Variables and Python objects: broadcast and gathered."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from . import mpi_ops
from ._lazy import executing_eagerly, tf
from .mpi_ops import global_process_set
from .. import objects as _objects


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: Any = global_process_set,
    inplace: bool = False,
) -> Any:
    """Sets variables to the values that they have on rank `root_rank`.

    Args:
        variables: TensorFlow's or Keras's variables, in the same order and of
            the same types and shapes on all ranks; on the root of a graph they
            have to be initialised.
        root_rank: a rank of the world that is in the set; the same everywhere.
        process_set: the ranks that take part.
        inplace: accepted; the values pass through new memory in either case.

    Returns: in a graph of a session an operation to run; eagerly and in a
    tf.function None.  All variables are one call, in flight at once.

    Raises: as mpi_ops.broadcast().
    """
    values = mpi_ops.broadcast_(variables, root_rank, process_set=process_set)
    if executing_eagerly():
        return None
    return tf.group(*values)


def global_variables() -> list[Any]:
    """Returns the variables of the default graph's collection of that name."""
    return tf.compat.v1.global_variables()


def optimizer_variables(optimizer: Any) -> list[Any]:
    """Returns a Keras optimizer's variables, in a new list."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns an operation that sets the global variables of the default graph to
    the values of rank `root_rank`, when a session runs it.

    Raises: RuntimeError if operations run eagerly, where there is no such list;
    use broadcast_variables() there.
    """
    if executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() needs a graph; eagerly, use"
            " hvd.broadcast_variables(model.variables, root_rank) instead"
        )
    return broadcast_variables(global_variables(), root_rank)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the object of rank `root_rank`: see hvd.broadcast_object().

    Needs no graph and no session: `session` is accepted and not used.
    """
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function of one object that does what broadcast_object() does.

    Making the function communicates nothing; all ranks call it in the same order.
    """

    def broadcast_it(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return broadcast_it


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Returns the list of all ranks' objects: see hvd.allgather_object().

    `session` is accepted and not used.
    """
    return _objects.allgather_object(obj, name, process_set)
