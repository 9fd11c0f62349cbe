# SPDX-License-Identifier: Apache-2.0
"""States of hvd.elastic without a framework.

    hvdrun -np 3 [OPTION]... python3 elastic_states.py CASE

The cases are the functions below.
"""

import array
import os
import signal
import sys
import time

import hvd
from hvd import _hvd, elastic


class OfRankZero(elastic.State):
    """A state of a program, which knows nothing of other roots."""

    def __init__(self, value):
        super().__init__()
        self.value = self.saved = value

    def save(self):
        self.saved = self.value

    def restore(self):
        self.value = self.saved

    def sync(self):
        self.value = self.saved = self._bcast_object(self.value)


def synchronized(state, commits):
    """Returns what all ranks have after sync, if this one had that many commits."""
    state._commits = commits
    elastic._synchronize(state, False)
    everyone = hvd.allgather_object((state.value, state._commits))
    assert everyone.count(everyone[0]) == hvd.size(), everyone
    return everyone[0]


def newest():
    """Ranks that are behind, new, or have a part only, get the newest state."""
    me = hvd.rank()
    make = elastic.ObjectState
    # A commit ended on rank 1 only; rank 2 has just started.
    assert synchronized(make(value=me), [4, 5, -1][me]) == (1, 6)
    assert synchronized(make(value=me), [-2, 3, 3][me]) == (1, 4)
    assert synchronized(make(value=me), -1) == (0, 1)  # the start
    assert synchronized(OfRankZero(me), [4, 5, -1][me]) == (0, 6)
    # All have the same number of commits: nothing is sent.
    before = hvd.stats()["broadcast"]["count"]
    state = make(value=7)
    assert synchronized(state, 3) == (7, 3)
    assert hvd.stats()["broadcast"]["count"] == before
    for state, commits in ((make(value=me), [-1, -2, -1]), (OfRankZero(me), [-1, 2, 2])):
        try:
            synchronized(state, commits[me])
        except RuntimeError as error:
            assert "had the state" in str(error), error
        else:
            raise AssertionError(f"{commits} have a state")
    print("newest ok", flush=True)


def interrupted():
    """Ranks that wait to join interrupt a commit, which counts."""
    ask, waiting = _hvd.commit, [False, True, False, True]
    _hvd.commit = lambda: ask() or waiting.pop(0)
    resets = []

    @elastic.run
    def count(state):
        for state.step in range(state.step + 1, 5):
            if state.step % 2:
                state.commit()
            else:
                state.check_host_updates()
        return state.step

    state = elastic.ObjectState(step=0)
    state.register_reset_callbacks([lambda: resets.append(1)])
    assert count(state) == 4
    assert state._saved_state == {"step": 4}  # check_host_updates() has committed
    assert not waiting and not resets  # the world is the same
    print("interrupted ok", flush=True)


def dies():
    """Without a framework: a rank is killed, and the sum goes on."""
    start, sizes = hvd.rank(), []

    @elastic.run
    def count(state):
        while state.step < 40:
            if state.step == 17 and start == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            got = hvd.allreduce(array.array("q", [state.step]), op=hvd.Sum)
            assert got[0] == state.step * hvd.size()
            state.total += got[0] // hvd.size()
            state.step += 1
            state.commit()

    state = elastic.ObjectState(step=0, total=0)
    state.register_reset_callbacks([lambda: sizes.append(hvd.size())])
    count(state)
    assert state.total == sum(range(40))
    change = _hvd.change()
    assert (change["old_size"], change["size"], change["lost"]) == (3, 2, 1)
    assert change["generation"] == _hvd.generation() == 2
    assert (change["old_rank"], change["rank"]) == (start, hvd.rank())
    assert "killed by signal 9" in change["why"]
    print(f"rank {start} is {hvd.rank()}, {sizes}", flush=True)


def wrong():
    """What a reset callback raises ends run()."""
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    state = elastic.ObjectState()

    def callback():
        raise KeyError("made by the test")

    state.register_reset_callbacks([callback])
    try:
        elastic.run(lambda state: hvd.barrier())(state)
    except KeyError:
        print("wrong ok", flush=True)


def fails():
    """The third error in a row without a commit ends run()."""
    calls = []

    def mismatch():
        hvd.allreduce(array.array("q", [0] * (hvd.rank() + 1)))

    @elastic.run
    def never(state):
        calls.append(state.step)
        if state.step:
            state.step += 1
            state.commit()
        mismatch()

    for step, limit in ((0, 3), (1, 20)):
        state = elastic.ObjectState(step=step)
        del calls[:]
        state.register_reset_callbacks([lambda: len(calls) < limit or sys.exit(5)])
        try:
            never(state)
        except hvd.HorovodInternalError as error:
            assert calls == [0] * 3, calls
            text = "3 errors in a row before a commit, the last: allreduce: "
            assert text in str(error), error
            assert error.status, error
        except SystemExit as callback:
            assert callback.code == 5 and calls == list(range(1, limit + 1)), calls
    assert step == 1 and len(calls) == limit
    hvd.init()

    @elastic.run
    def twice(state):
        calls.append(state.step)
        if len(calls) < 3:
            mismatch()

    state = elastic.ObjectState(step=0)
    for _ in range(2):  # each call counts for itself
        del calls[:]
        twice(state)
    print("fails ok", flush=True)


def leaves():
    """The rank on host b is asked to leave, and exits with 0; no step is repeated."""
    start, steps = hvd.rank(), []

    @elastic.run
    def count(state):
        while hvd.size() == 3 or state.step < state.until:
            if state.step == 5 and start == 0:
                with open("going", "w") as f:
                    f.write("b 50\n")
            assert elastic.notice() is None or 0 < elastic.notice() <= 45
            steps.append(state.step)
            time.sleep(0.01)
            state.step += 1
            if hvd.size() == 3:
                state.until = state.step + 5
            state.commit()

    state = elastic.ObjectState(step=0, until=0)
    try:
        count(state)
    except SystemExit as left:
        assert start == 2 and left.code == 0 and not hvd.is_initialized()
        print("leaves ok", flush=True)
        raise
    assert steps == list(range(state.until)), steps
    change = _hvd.change()
    assert (change["lost"], change["removed"], change["size"]) == (0, 1, 2)
    assert "host b goes in 50 s" in change["why"]
    print("leaves ok", flush=True)


if __name__ == "__main__":
    hvd.init()
    globals()[sys.argv[1]]()
