# SPDX-License-Identifier: Apache-2.0
"""State that survives errors: what the frameworks' elastic modules share.

A job's ranks are started once, so the world never grows or shrinks: nothing
tells of new hosts.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from hvd.common import HorovodInternalError, HostsUpdatedInterrupt, rank


class State:
    """What a training needs to go on after an error.

    bcast_object: returns rank 0's argument on all ranks.
    get_rank:     returns the rank of this process.
    """

    def __init__(
        self,
        bcast_object: Callable[[Any], Any],
        get_rank: Callable[[], int] = rank,
    ):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Has callbacks called, without arguments, after each reset."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapts to the world after a reset."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps a copy of the state, to which an error returns."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Does nothing: the hosts of a job do not change."""

    def save(self) -> None:
        """Keeps a copy of the state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Prepares for another world; called before sync()."""


class ObjectState(State):
    """A state of objects that can be pickled, given as keywords.

    Each is an attribute.  Objects are kept by reference: a program that changes
    one in place, instead of assigning, changes the copy, too.
    """

    def __init__(
        self,
        bcast_object: Callable[[Any], Any],
        get_rank: Callable[[], int] = rank,
        **kwargs: Any,
    ):
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        self._saved_state = kwargs
        self._set_attrs()

    def save(self) -> None:
        """Keeps the present objects."""
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Returns to the objects of the last save()."""
        self._set_attrs()

    def sync(self) -> None:
        """Gives all ranks the objects that rank 0 has saved."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def _set_attrs(self) -> None:
        """Makes attributes of the saved objects."""
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run_with(
    func: Callable[..., Any], reset: Callable[[], None]
) -> Callable[..., Any]:
    """Makes a function that synchronises a state and starts over after errors.

    func:  takes a State first.
    reset: leaves the world and joins it again.

    The result synchronises the state and calls func, whose result it returns.
    After a HorovodInternalError it restores the state, after a
    HostsUpdatedInterrupt it keeps it; it resets and calls func again.  If a
    rank has died there is no world to join, and it raises HorovodInternalError
    with one line that says why the job ends.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        skip_sync = False
        while True:
            cause = None
            try:
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                cause = error
                skip_sync = False
                state.restore()
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            _reset_or_end(reset, cause)
            state.on_reset()

    return wrapper


def _reset_or_end(
    reset: Callable[[], None], cause: HorovodInternalError | None
) -> None:
    """Resets the world; HorovodInternalError if that cannot be done."""
    try:
        reset()
    except (HorovodInternalError, ValueError) as error:
        text = cause or error
        raise HorovodInternalError(
            f"the training cannot go on: {text}; the ranks of a job are started "
            "once, so start the job again, from its last checkpoint"
        ) from None
