# SPDX-License-Identifier: Apache-2.0
"""Process sets in the forms that Horovod's documentation shows.

    hvdrun -np 6 python3 torch_sets.py [static] [dynamic]
"""

import sys

import torch

import hvd.torch as hvd


def check(got, want):
    assert got.tolist() == want, f"{got.tolist()} instead of {want}"


def static():
    """Sets that are given to init(), also when it was called before."""
    hvd.init()
    low = hvd.ProcessSet([0, 1, 2])
    high = hvd.ProcessSet([5, 3, 4])
    assert low.process_set_id is None and low.size() is None
    hvd.init(process_sets=[low, high])
    assert low.included() == (hvd.rank() < 3)
    mine = low if low.included() else high
    assert (mine.size(), mine.rank()) == (3, hvd.rank() % 3)
    x = torch.full((2,), float(hvd.rank()))
    check(hvd.allgather(x[:1], process_set=mine), [float(r) for r in mine.ranks])
    for priority in (1, -1):
        got = hvd.allreduce(
            x, name="x", op=hvd.Sum, process_set=mine, priority=priority
        )
        check(got, [float(sum(mine.ranks))] * 2)
    check(hvd.allreduce(x, name="x"), [2.5, 2.5])  # the name of two sets


def dynamic():
    """Sets that come and go."""
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    x = torch.full((2,), float(hvd.rank()))
    for _ in range(2):
        odd = hvd.add_process_set([1, 3, 5])
        if odd.included():
            check(hvd.allreduce(x, process_set=odd), [3.0, 3.0])
        try:
            hvd.add_process_set([5, 3, 1])
            raise AssertionError("the same ranks twice")
        except ValueError:
            pass
        assert hvd.remove_process_set(odd) is True
        assert odd.process_set_id is None
        assert hvd.remove_process_set(odd) is False
        try:
            hvd.allreduce(x, process_set=odd)
            raise AssertionError("a set that was removed")
        except ValueError:
            pass
    assert hvd.remove_process_set(hvd.global_process_set) is False


for form in sys.argv[1:] or ("static", "dynamic"):
    {"static": static, "dynamic": dynamic}[form]()
if hvd.rank() == 0:
    print("sets ok")
