# SPDX-License-Identifier: Apache-2.0
"""Collective operations on tensors, with gradients.

Tensors are copied to host memory if they are not there: `device_dense` and
`device_sparse` of Horovod's functions are accepted, and change nothing.

Ordering: eagerly, operations without a name match in the order of the calls,
and those with a name by the name, which must not be in flight twice.  In a
graph all operations have names, see _run.graph_name().  Eager operations block
until the ranks of the process set took part; so does running a graph.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Sequence

from . import _plans
from ._lazy import executing_eagerly, np, tf
from ._run import graph_name, run
from .. import _hvd
from .. import common as _common
from ..common import (  # noqa: F401
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    global_process_set,
    remove_process_set,
)


class _Basics:
    """The object by which programs of Horovod reach what all frameworks share."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_common, name)

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Returns the world ranks of each registered process set, by its number."""
        return {n: _hvd.process_set_ranks(n) for n in _hvd.process_sets()}


_basics = _Basics()


def _set_id(process_set: Any) -> int:
    """Returns the number of a registered process set, or raises ValueError."""
    number = _common.process_set_id(process_set)
    if not executing_eagerly():
        _hvd.process_set_size(number)  # ValueError while the graph is built
    return number


def _tensor(value: Any) -> Any:
    """Returns `value` as a tensor; a variable is read."""
    return tf.convert_to_tensor(_raw(value))


def _raw(variable: Any) -> Any:
    """Returns TensorFlow's variable inside a variable of Keras 3, or `variable`."""
    if hasattr(variable, "value") and not callable(variable.value):
        return variable.value
    return variable


# Passes (forward, backward) of a call to the operation below, which takes only tensors.
_work = threading.local()


@functools.lru_cache(maxsize=None)
def _operation() -> Callable[..., Any]:
    """Makes the function that has a gradient of our own.

    It is made once, as that takes longer than a small operation.
    """

    @tf.custom_gradient
    def operation(*inputs: Any) -> Any:
        forward, backward = _work.todo
        tensors = list(inputs)
        outputs = forward(tensors)

        def gradient(*grads: Any) -> Any:
            result = backward(tensors, outputs, list(grads))
            return result if len(result) > 1 else result[0]

        return tuple(outputs), gradient

    return operation


@functools.lru_cache(maxsize=None)
def _no_tape() -> Callable[[], bool]:
    """Returns a function that tells whether no gradient tape records.

    TensorFlow does not publish it; where it cannot be found, a tape may record.
    """
    try:
        from tensorflow.python import pywrap_tfe

        return pywrap_tfe.TFE_Py_TapeSetIsEmpty
    except (ImportError, AttributeError):
        return lambda: False


def _with_gradient(
    tensors: Sequence[Any],
    forward: Callable[[list[Any]], list[Any]],
    backward: Callable[[list[Any], list[Any], list[Any]], list[Any]],
) -> list[Any]:
    """Returns forward(tensors), whose gradient is backward(tensors, results,
    gradients of the results)."""
    tensors = [_tensor(t) for t in tensors]
    if executing_eagerly() and _no_tape()():
        return forward(tensors)
    operation = _operation()
    _work.todo = (forward, backward)
    try:
        return list(operation(*tensors))
    finally:
        _work.todo = None


def _like(grads: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Returns gradients in the types of their outputs.

    TensorFlow passes zeros of type float32 for an output that was not used.
    """
    return [
        g if g.dtype == o.dtype else tf.cast(g, o.dtype)
        for g, o in zip([tf.convert_to_tensor(g) for g in grads], outputs)
    ]


def _gradient_name(name: str | None) -> str | None:
    """Returns the name of the operation that computes the gradient of another."""
    return None if name is None else name + ".gradient"


def _reduce_group(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    wire: int = 0,
) -> list[Any]:
    number = _set_id(process_set)
    def forward(inputs: list[Any]) -> list[Any]:
        plan = _plans.allreduce(
            graph_name(name), number, op, prescale_factor, postscale_factor, wire
        )
        dtypes = [t.dtype for t in inputs]
        return run(plan, inputs, dtypes, [t.shape for t in inputs])

    def backward(_: list[Any], outputs: list[Any], grads: list[Any]) -> list[Any]:
        return _reduce_group(
            _like(grads, outputs),
            _gradient_name(name),
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            wire,
        )

    return _with_gradient(tensors, forward, backward)


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
    wire: int = 0,
) -> Any:
    """Allreduces one dense tensor; see hvd.tensorflow.allreduce()."""
    return _reduce_group(
        [tensor], name, op, prescale_factor, postscale_factor, process_set, wire
    )[0]


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
    wire: int = 0,
) -> list[Any]:
    """Allreduces dense tensors as one group."""
    return _reduce_group(
        tensors, name, op, prescale_factor, postscale_factor, process_set, wire
    )


def _gather_group(
    tensors: Sequence[Any], name: str | None, process_set: Any
) -> list[Any]:
    number = _set_id(process_set)
    count = len(tensors)

    def forward(inputs: list[Any]) -> list[Any]:
        dtypes = [t.dtype for t in inputs] + [tf.int64] * count
        shapes = [_any_rows(t.shape) for t in inputs] + [[None]] * count
        plan = _plans.Allgather(graph_name(name), number)
        return run(plan, inputs, dtypes, shapes)

    def backward(_: list[Any], outputs: list[Any], grads: list[Any]) -> list[Any]:
        # The average, as in Horovod, of which each rank keeps its own rows.
        reduced = _reduce_group(
            _like(grads[:count], outputs[:count]),
            _gradient_name(name),
            Average,
            process_set=process_set,
        )
        me = _hvd.process_set_rank(number)
        own = []
        for grad, rows in zip(reduced, outputs[count:]):
            begin = tf.reduce_sum(rows[:me])
            own.append(grad[begin : begin + rows[me]])
        return own

    return _with_gradient(tensors, forward, backward)[:count]


def _any_rows(shape: Any) -> Any:
    if shape.rank is None or shape.rank == 0:
        return tf.TensorShape(None)
    return tf.TensorShape([None]).concatenate(shape[1:])


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the ranks' tensors, joined along the first dimension.

    Args:
        tensor: of at least one dimension; only the first may differ by rank.
        name: of the operation, see the module.
        ignore_name_scope: accepted; names do not depend on name scopes.
        process_set: the ranks that take part.

    Returns: a new tensor, rank 0's rows first.  Its gradient: the average of
    the ranks' gradients, from which each rank keeps the rows that it gave.

    Raises: tf.errors.InvalidArgumentError for a scalar or a rank that is not in
    the set; tf.errors.FailedPreconditionError if ranks disagree (in a graph:
    tf.errors.UnknownError).

    Source: MPI_Allgatherv; Horovod's allgather.
    """
    return _gather_group([tensor], name, process_set)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Gathers several tensors by one call; the rest is as in allgather()."""
    if not tensors:
        return []
    return _gather_group(tensors, name, process_set)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the tensor of rank `root_rank`.

    Args:
        tensor: of any type but strings, the same type and shape on all ranks;
            its values are used on the root only.
        root_rank: a rank of the world that is in the set; the same everywhere.
        name, ignore_name_scope, process_set: as in allgather().

    Returns: a new tensor.  Its gradient: on the root the average of the ranks'
    gradients, elsewhere zeros.

    Raises: as allgather().

    Source: MPI_Bcast; Horovod's broadcast.
    """
    number = _set_id(process_set)

    def forward(inputs: list[Any]) -> list[Any]:
        plan = _plans.Broadcast(graph_name(name), number, root_rank)
        return run(plan, inputs, [inputs[0].dtype], [inputs[0].shape])

    def backward(_: list[Any], outputs: list[Any], grads: list[Any]) -> list[Any]:
        grad = _allreduce(
            _like(grads, outputs)[0],
            _gradient_name(name),
            Average,
            process_set=process_set,
        )
        if _hvd.rank() == root_rank:
            return [grad]
        # A session would leave out an allreduce of which only the shape is used.
        with tf.control_dependencies([grad]):
            return [tf.zeros_like(grad)]

    return _with_gradient([tensor], forward, backward)[0]


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Sets variables to the values of rank `root_rank`.

    Args:
        variables: TensorFlow's or Keras's, resource or reference variables, of
            the same types and shapes in the same order on all ranks.
        root_rank, name, process_set: as in broadcast().

    Returns: the new values, as tensors.  In a graph of a session, running any
    of them sets all the variables.

    Raises: as allgather().
    """
    variables = list(variables)
    if not variables:
        return []
    values = _broadcast_values(variables, root_rank, name, process_set)
    assigned = [_raw(v).assign(x) for v, x in zip(variables, values)]
    if executing_eagerly():
        return [tf.convert_to_tensor(_raw(v)) for v in variables]
    with tf.control_dependencies(assigned):
        return [tf.identity(x) for x in values]


def _broadcast_values(
    variables: Sequence[Any], root_rank: int, name: str | None, process_set: Any
) -> list[Any]:
    number = _set_id(process_set)
    values = [_tensor(v) for v in variables]
    plan = _plans.Broadcast(
        graph_name("variables" if name is None else name), number, root_rank
    )
    return run(plan, values, [v.dtype for v in values], [v.shape for v in values])


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> Any:
    """Sends rows of a tensor to all ranks, and returns those received.

    Args:
        tensor: of at least one dimension; only the first may differ by rank.
        splits: integers of shape [size of the set], the rows for each rank;
            None: the same number for each, and the rows must divide evenly.
            Rows beyond the sum of the splits are not sent.
        name, ignore_name_scope, process_set: as in allgather().

    Returns: a new tensor, rank 0's rows first; with `splits` a pair of it and
    an int32 tensor, the rows from each rank.  The gradient: the alltoall back,
    and zeros for rows that were not sent.

    Raises: as allgather(), and tf.errors.InvalidArgumentError for splits
    that are negative, are not one for each rank, or add up to more than the
    rows; or if there are no splits and the rows do not divide evenly.

    Source: MPI_Alltoallv; Horovod's alltoall.
    """
    number = _set_id(process_set)
    has_splits = splits is not None
    if has_splits:
        splits = tf.convert_to_tensor(splits)

    def forward(inputs: list[Any]) -> list[Any]:
        plan = _plans.Alltoall(graph_name(name), number, has_splits)
        tensors = inputs + ([splits] if has_splits else [])
        shapes = [_any_rows(inputs[0].shape), [None]]
        return run(plan, tensors, [inputs[0].dtype, tf.int32], shapes)

    def backward(
        inputs: list[Any], outputs: list[Any], grads: list[Any]
    ) -> list[Any]:
        back, _received = alltoall(
            _like(grads[:1], outputs[:1])[0],
            outputs[1],
            _gradient_name(name),
            process_set=process_set,
        )
        return [_pad_rows(back, inputs[0]) if has_splits else back]

    output, received = _with_gradient([tensor], forward, backward)
    return (output, received) if has_splits else output


def _pad_rows(tensor: Any, like: Any) -> Any:
    """Returns `tensor` with rows of zeros at its end, as many rows as `like`."""
    missing = tf.shape(like)[:1] - tf.shape(tensor)[:1]
    zeros = tf.zeros(tf.concat([missing, tf.shape(like)[1:]], 0), tensor.dtype)
    return tf.concat([tensor, zeros], 0)


def _scatter_group(
    tensors: Sequence[Any],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: Any,
) -> list[Any]:
    number = _set_id(process_set)

    def forward(inputs: list[Any]) -> list[Any]:
        plan = _plans.Reducescatter(
            graph_name(name), number, op, prescale_factor, postscale_factor
        )
        shapes = [_own_rows(t.shape, number) for t in inputs]
        return run(plan, inputs, [t.dtype for t in inputs], shapes)

    def backward(_: list[Any], outputs: list[Any], grads: list[Any]) -> list[Any]:
        factor = prescale_factor * postscale_factor
        if op == Sum:
            factor *= _hvd.process_set_size(number)
        grads = _like(grads, outputs)
        if factor != 1.0:
            grads = [g * tf.cast(factor, g.dtype) for g in grads]
        return _gather_group(grads, _gradient_name(name), process_set)

    return _with_gradient(tensors, forward, backward)


def _own_rows(shape: Any, number: int) -> Any:
    if shape.rank is None or shape.rank == 0:
        return tf.TensorShape(None)
    rows = shape[0]
    if rows is not None:
        rows = _hvd.reducescatter_rows(int(rows), number)
    return tf.TensorShape([rows]).concatenate(shape[1:])


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces one tensor; see hvd.tensorflow.reducescatter()."""
    return _scatter_group(
        [tensor], name, op, prescale_factor, postscale_factor, process_set
    )[0]


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduces several tensors as one group."""
    return _scatter_group(
        tensors, name, op, prescale_factor, postscale_factor, process_set
    )


def join(process_set: Any = global_process_set) -> Any:
    """Says that this rank has no more data, and takes part in the others'
    operations until all ranks of the set have said so.

    Meanwhile this rank contributes nothing to the others' operations; an average
    still divides by the size of the set.

    Returns: an int32 scalar tensor, the last rank that joined.

    Raises: tf.errors.InvalidArgumentError if an operation of this rank is in
    flight.

    Source: Horovod's join.
    """
    plan = _plans.Join(None, _set_id(process_set))
    return run(plan, [], [tf.int32], [[]])[0]


def barrier(process_set: Any = global_process_set) -> Any:
    """Waits until all ranks of the set have called it.

    In a graph it returns the operation to run; eagerly None.
    """
    plan = _plans.Barrier(graph_name(None), _set_id(process_set))
    done = run(plan, [], [tf.bool], [[]])[0]
    return None if executing_eagerly() else done.op


def _number_op(read: Callable[[], int], name: str | None) -> Any:
    if executing_eagerly():
        return tf.constant(read(), tf.int32)
    value = tf.numpy_function(lambda: np.int32(read()), [], tf.int32, name=name)
    value.set_shape([])
    return value


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns the size of a process set as an int32 scalar tensor, which a graph
    determines when it runs."""
    return _number_op(lambda: _hvd.process_set_size(process_set_id), name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns 1 if this rank is in the process set, else 0, like size_op(); -1
    before hvd.init(), and -2 if there is no such set."""

    def included() -> int:
        if not _hvd.is_initialized():
            return -1
        if process_set_id not in _hvd.process_sets():
            return -2
        return int(_hvd.rank() in _hvd.process_set_ranks(process_set_id))

    return _number_op(included, name)


def local_size_op(name: str | None = None) -> Any:
    """Returns the number of ranks on this host, like size_op()."""
    return _number_op(_hvd.local_size, name)


def rank_op(name: str | None = None) -> Any:
    """Returns this process's rank, like size_op()."""
    return _number_op(_hvd.rank, name)


def local_rank_op(name: str | None = None) -> Any:
    """Returns this process's rank on its host, like size_op()."""
    return _number_op(_hvd.local_rank, name)
