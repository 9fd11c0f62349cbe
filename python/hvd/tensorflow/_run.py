# SPDX-License-Identifier: Apache-2.0
"""Runs plans on tensors: eagerly, in a tf.function, or in a graph of a session.

Eagerly, a plan is issued and waited for.  In a tf.function, one tf.numpy_function
does that: TensorFlow runs the stateful operations of a function in the order of the
program, which is the same on all ranks.

In a graph of a session, the order of independent operations is the executor's
choice and differs from rank to rank, and its threads are few.  If each operation
blocked a thread until the peers take part, two ranks whose threads all block in
different operations would wait for each other for ever.  So a plan becomes

    start    issues the operations and returns at once, or soon: a handle
    poll     a loop that waits a few milliseconds each time, and then goes to the
             end of the executor's queue, so that other operations start in between
    fetch    gives the results

Operations in graphs have names, which are the same on all ranks: those of their
caller, or the order in which the operations of a graph were made.
"""

from __future__ import annotations

import itertools
import re
import threading
from typing import Any, Sequence

from ._errors import translate
from ._lazy import executing_eagerly, in_v1_graph, np, tf
from ._plans import ALIGN, Pending, Plan

_START_WAIT = 0.001  # seconds; most operations are done by then
_POLL_WAITS = (0.001, 0.002, 0.004, 0.008, 0.016)

_lock = threading.Lock()  # protects the next two
_pending: dict[int, tuple[Pending, list[int]]] = {}
_handles = itertools.count(1)


def _start(plan: Plan, arrays: Sequence[Any]) -> tuple[Any, Any]:
    pending = plan.issue(arrays)
    done = pending.done(_START_WAIT)
    with _lock:
        handle = next(_handles)
        _pending[handle] = (pending, [0])
    return np.int64(handle), np.bool_(done)


def _poll(handle: Any) -> Any:
    with _lock:
        pending, polls = _pending[int(handle)]
    wait = _POLL_WAITS[min(polls[0], len(_POLL_WAITS) - 1)]
    polls[0] += 1
    try:
        return np.bool_(pending.done(wait))
    except BaseException:
        with _lock:
            _pending.pop(int(handle), None)
        raise


def _fetch(handle: Any) -> list[Any]:
    with _lock:
        pending, _ = _pending.pop(int(handle))
    return pending.results()


def _pass_queue(graph: Any) -> Any:
    """Adds an operation that ends in a thread which is not of the executor.

    What depends on it goes to the end of the executor's queue.  A loop would
    otherwise keep its thread from iteration to iteration, and operations that are
    ready would wait for it.  Getting an element from a dataset is such an operation.
    """
    iterator = getattr(graph, "_hvd_iterator", None)
    if iterator is None:
        with tf.control_dependencies(None), tf.name_scope("HvdYield"):
            numbers = tf.data.Dataset.range(1).repeat()
            iterator = tf.compat.v1.data.make_one_shot_iterator(numbers)
        graph._hvd_iterator = iterator
    return iterator


def _wait_in_graph(handle: Any, done: Any) -> Any:
    """Adds the loop that waits; returns a tensor that is there when it has ended."""
    iterator = _pass_queue(tf.compat.v1.get_default_graph())

    def poll(_: Any) -> list[Any]:
        with tf.control_dependencies([iterator.get_next()]):
            again = tf.numpy_function(_poll, [handle], tf.bool, name="poll")
        again.set_shape([])
        return [again]

    loop = tf.compat.v1.while_loop(
        tf.logical_not, poll, [done], parallel_iterations=1, name="wait"
    )
    return loop[0] if isinstance(loop, (list, tuple)) else loop


def _run_in_graph(
    plan: Plan, tensors: Sequence[Any], dtypes: Sequence[Any], shapes: Sequence[Any]
) -> list[Any]:
    call = tf.numpy_function
    dtypes = list(dtypes)
    with tf.name_scope("Hvd" + plan.kind.capitalize()):
        if not in_v1_graph():
            outs = call(lambda *a: plan.issue(a).results(), tensors, dtypes, name="run")
        else:
            handle, done = call(
                lambda *a: _start(plan, a), tensors, [tf.int64, tf.bool], name="start"
            )
            handle.set_shape([])
            done.set_shape([])
            with tf.control_dependencies([_wait_in_graph(handle, done)]):
                outs = call(_fetch, [handle], dtypes, name="fetch")
    if not isinstance(outs, (list, tuple)):
        outs = [outs]
    for out, shape in zip(outs, shapes):
        out.set_shape(shape)
    return list(outs)


# Types that TensorFlow takes from NumPy without a copy, by DLPack.
_BY_DLPACK = frozenset("iuf")


def _to_tensor(array: Any) -> Any:
    """Returns a tensor that has, where possible, the memory of `array`.

    TensorFlow ends the process, later, if memory that DLPack gave it is not aligned.
    """
    aligned = array.__array_interface__["data"][0] % ALIGN == 0
    if array.size and aligned and array.dtype.kind in _BY_DLPACK:
        try:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        except (BufferError, tf.errors.InvalidArgumentError):
            pass  # read-only, or of a type that one of both lacks
    return tf.convert_to_tensor(array)


def run(
    plan: Plan, tensors: Sequence[Any], dtypes: Sequence[Any], shapes: Sequence[Any]
) -> list[Any]:
    """Carries out a plan on tensors, and returns its tensors.

    `dtypes` and `shapes` are those of the results; a shape may be unknown.
    Eagerly it blocks until the ranks of the set took part, and raises what
    _errors.translate() says.  In a graph it adds operations; their errors are
    TensorFlow's InvalidArgumentError for a ValueError, else its UnknownError,
    with libhvd's text.
    """
    if not executing_eagerly():
        return _run_in_graph(plan, tensors, dtypes, shapes)
    try:
        arrays = plan.issue([np.asarray(t) for t in tensors]).results()
    except Exception as err:
        new = translate(err)
        if new is err:
            raise
        raise new from err
    return [_to_tensor(a) for a in arrays]


def _outermost(graph: Any) -> Any:
    """Returns the graph whose trace, or whose session, `graph` is a part of."""
    stop_at_functions = not in_v1_graph()
    while True:
        outer = getattr(graph, "outer_graph", None)
        if outer is None:
            return graph
        if stop_at_functions and getattr(outer, "outer_graph", None) is None:
            if not getattr(outer, "building_function", False):
                return graph
        graph = outer


def graph_name(name: str | None) -> str | None:
    """Returns the name for an operation made now, whose caller gave `name`.

    Eagerly: `name`; operations without one match in the order of the calls.  In
    a graph an operation without a name gets the number of the operation among
    those of the graph, so the ranks have to make the same operations in the
    same order, which they do when they run the same program.
    """
    if name is not None or executing_eagerly():
        return name
    graph = tf.compat.v1.get_default_graph()
    top = _outermost(graph)
    number = getattr(top, "_hvd_operations", 0) + 1
    top._hvd_operations = number
    inner = re.sub("[^A-Za-z_]+", "", str(getattr(graph, "name", ""))).strip("_")
    return f"{inner or 'graph'}.{number}"
