# SPDX-License-Identifier: Apache-2.0
"""States of a training, and run(): training goes on when a rank dies.

In a job of ``hvdrun --min-np N`` the death of a rank makes the operations of the
others raise HorovodInternalError.  run() then returns to the last commit, joins the
world of the ranks that are left, and calls the function again.

A commit is complete on some ranks and not on others if a rank dies just then.  So
each state counts its commits, and sync() takes the state of the lowest rank that has
the most.  That of a rank which got only a part of it does not count.

A rank that was asked to leave, because its host goes away or the job stops at a
commit, exits with 0 there: run() raises SystemExit.  notice() tells it before.

In other jobs the world never changes; run() goes on after an error that all ranks
survive.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from hvd import _hvd, common
from hvd.common import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    init,
    rank,
    shutdown,
)
from hvd.objects import allgather_object, broadcast_object

# enum hvd_status: the world has changed; this rank was asked to leave
ERESIZED = 18
EREMOVED = 19

# Instead of a number of commits: this rank has just started; or has got a part
# of the job's state only.
_NEW = -1
_IN_PART = -2

# run() gives up after this number of errors in a row without a commit.
_ERRORS_MAX = 3


class State:
    """What a training needs to go on after an error.

    bcast_object: returns rank 0's argument on all ranks.
    get_rank:     returns the rank of this process.

    A class of your own has save(), restore() and sync(), which gives all ranks the
    state of rank 0, or, if it has a parameter root_rank, that of this rank, and
    changes what restore() returns to only at the end.  A commit() of its own calls
    this one.
    """

    _commits = _NEW
    _errors = 0  # since the last commit, without deaths

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
    ):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Has callbacks called, without arguments, after each change of the world.

        Process sets have lost the ranks that were lost by then.  Callbacks make no
        operation, as a new rank does not make it.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapts to the world after a reset."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps a copy of the state, to which an error returns.

        All ranks call it alike, as one of the world's operations.  Raises
        HostsUpdatedInterrupt if ranks wait to join, or are to leave; the commit
        counts.
        """
        changes = _ask_for_changes()
        self._keep()
        if changes:
            raise _interrupt()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt if the world is to change; then it commits.

        All ranks call it alike, as one of the world's operations.
        """
        if _ask_for_changes():
            self._keep()
            raise _interrupt()

    def _keep(self) -> None:
        """Saves, and counts that as a commit once ranks have the same state."""
        self.save()
        self._errors = 0
        if self._commits >= 0:
            self._commits += 1

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

    def takes_root(self) -> bool:
        """Tells whether sync() can take the state of any rank, by root_rank."""
        return "root_rank" in inspect.signature(self.sync).parameters


def _ask_for_changes() -> bool:
    """Asks all ranks whether the world is to change; False outside of jobs."""
    return _hvd.is_initialized() and _hvd.commit()


def _interrupt() -> HostsUpdatedInterrupt:
    """Makes the exception of a planned change."""
    interrupt = HostsUpdatedInterrupt()
    interrupt.status = ERESIZED
    return interrupt


class ObjectState(State):
    """A state of objects that can be pickled, given as keywords.

    Each is an attribute.  Objects are kept by reference: a program that changes
    one in place, instead of assigning, changes the copy, too.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
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

    def sync(self, root_rank: int = 0) -> None:
        """Gives all ranks the objects that root_rank has saved."""
        if not self._saved_state:
            return
        if root_rank == 0:  # a function for Horovod takes no rank
            self._saved_state = self._bcast_object(self._saved_state)
        else:
            self._saved_state = broadcast_object(self._saved_state, root_rank)
        self._set_attrs()

    def _set_attrs(self) -> None:
        """Makes attributes of the saved objects."""
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def notice() -> float | None:
    """Returns the seconds until this rank is killed, if it is asked to leave.

    None: it is not.  It leaves at the next commit; if it does so in time, it is not
    killed.  The result may be infinite.
    """
    ms = _hvd.notice()
    if ms < 0:
        return None
    return ms / 1e3 if ms < 2**63 - 1 else float("inf")


# ---- run ----------------------------------------------------------------------


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that synchronises its state and starts over after errors.

    func: takes a State first.

    The result synchronises the state and calls func, whose result it returns.
    After a HorovodInternalError it restores the state, after a
    HostsUpdatedInterrupt it keeps it; then it joins the next generation, calls the
    state's on_reset() and sync(), and calls func again.

    A rank that has just started must issue no operation before this one: the others
    wait for it here.  Process sets are given to init(), where such a rank finds them,
    or made in func.  Operations after this one are
    not repeated when a rank dies.

    The third error in a row without a commit between them is raised: training gets
    no further.  The death of another rank does not count.

    In a rank that is asked to leave it raises SystemExit with code 0, once the state
    is that of a commit.

    In a job that is not elastic all ranks leave the world and join it again.  If a
    rank has died there is no world to join, and it raises HorovodInternalError with
    one line that says why the job ends.
    """
    return run_with(func, _rejoin)


def _rejoin() -> None:
    """Leaves the world and joins it again."""
    shutdown()
    init()


def run_with(
    func: Callable[..., Any], reset: Callable[[], None]
) -> Callable[..., Any]:
    """Makes a function like run().

    reset: leaves the world and joins it again.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        marks = common.Ordinals.mark()
        state._errors = 0
        differs = restarted = False
        while True:
            try:
                if restarted:
                    state.on_reset()
                    common.tell_changed()
                _synchronize(state, differs)
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                if error.status == EREMOVED:
                    raise SystemExit(0) from None
                _count_error(state, error)
                state.restore()
                cause: str | None = str(error)
                status, differs = error.status, False
            except HostsUpdatedInterrupt as interrupt:
                cause = None
                status = interrupt.status
                differs = not status and not interrupt.skip_sync
            # Here, where the error and the frames that it refers to are gone.
            common.Ordinals.go_back(marks)
            restarted = status != ERESIZED
            if restarted:
                _reset_or_end(reset, cause)

    return wrapper


def _count_error(state: State, error: HorovodInternalError) -> None:
    """Counts an error, and raises it if it is one too many without a commit."""
    if error.status == ERESIZED:
        return
    state._errors += 1
    if state._errors < _ERRORS_MAX:
        return
    last = HorovodInternalError(
        f"the training cannot go on: {_ERRORS_MAX} errors in a row before a commit, "
        f"the last: {error}"
    )
    last.status = error.status
    raise last from error


def _reset_or_end(reset: Callable[[], None], cause: str | None) -> None:
    """Resets the world; HorovodInternalError if that cannot be done."""
    try:
        reset()
    except (HorovodInternalError, ValueError) as error:
        raise HorovodInternalError(
            f"the training cannot go on: {cause or error}; start the job again, from "
            "its last checkpoint; hvdrun --min-np N goes on while N ranks are left"
        ) from None


def _synchronize(state: State, differs: bool) -> None:
    """Joins the next generation if this one has ended, and gives all ranks the
    newest state.

    differs: the state may be another one than on ranks with as many commits.
    """

    def on_change() -> None:
        common.enter_generation()
        state.on_reset()
        common.tell_changed()

    _hvd.sync(on_change)
    ranks = allgather_object((state._commits, differs), name="elastic.commits")
    commits = [count for count, _ in ranks]
    newest = max(commits)
    takes_root = state.takes_root()
    root = commits.index(newest) if takes_root else 0
    if newest < 0 and _IN_PART in commits or commits[root] < 0 <= newest:
        raise RuntimeError(
            "the ranks that had the state of the training have ended; start the job "
            "again, from its last checkpoint"
        )
    if takes_root and 0 <= newest == min(commits) and not any(d for _, d in ranks):
        return
    if newest > state._commits and (state._commits < 0 or not takes_root):
        state._commits = _IN_PART
    if takes_root:
        state.sync(root_rank=root)
    else:
        state.sync()
    state._commits = max(newest, 0) + 1


__all__ = ["ObjectState", "State", "notice", "run", "run_with"]
