# SPDX-License-Identifier: Apache-2.0
"""Trainings that ranks die in.

    hvdrun -np 3 --min-np 2 python3 torch_elastic.py CASE [RANK:STEP:WHERE ...]

The cases are the functions below.  Ranks, as they are numbered at the start, kill
themselves in that step: WHERE is backward, step, commit, save, or a time in
milliseconds after the step has begun.  Every batch is divided among the ranks, so the
result does not depend on how many there are: one process computes it, too.
"""

import os
import signal
import sys
import threading

import torch
from torch import nn

import hvd.torch as hvd
from hvd import _hvd

STEPS, ROWS = 24, 24
START_RANK = int(os.environ["HVD_RANK"])


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def plan_of(rank):
    """Returns where a rank dies, by step."""
    plan = {}
    for word in sys.argv[2:]:
        who, step, where = word.split(":")
        if int(who) == rank:
            plan[int(step)] = where
    return plan


PLAN = plan_of(START_RANK)


def make_net(norm):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), norm, nn.Tanh(), nn.Linear(8, 1)).double()


def make_sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def batch(step, rank, size):
    """Returns a rank's rows of the batch of a step."""
    torch.manual_seed(1000 + step)
    x = torch.randn(ROWS, 6, dtype=torch.float64)
    x = x[rank * ROWS // size : (rank + 1) * ROWS // size]
    return x, x.sum(1, keepdim=True).sin()


def loss_of(net, step, rank, size):
    x, y = batch(step, rank, size)
    return nn.functional.mse_loss(net(x), y)


def reference():
    """Returns the parameters after all steps of one process."""
    net = make_net(nn.BatchNorm1d(8))
    sgd = make_sgd(net)
    for step in range(STEPS):
        sgd.zero_grad()
        loss_of(net, step, 0, 1).backward()
        sgd.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


class Deaths:
    """Ends this rank as planned."""

    def __init__(self, net):
        self.where = None
        next(net.parameters()).register_hook(lambda _: self.at("backward"))

    def begin(self, step):
        self.where = PLAN.get(step)
        if self.where and self.where.isdigit():
            threading.Timer(int(self.where) / 1000, die).start()

    def at(self, where):
        if self.where == where:
            die()


def check_equal(net):
    """Demands the same bits on all ranks, and the result of one process."""
    mine = torch.cat([p.detach().flatten() for p in net.parameters()])
    everyone = hvd.allgather_object(mine.numpy().tobytes())
    assert everyone.count(everyone[0]) == hvd.size(), "ranks have other parameters"
    torch.testing.assert_close(mine, reference(), rtol=1e-9, atol=1e-11)


def train(commit_every=1, fail=lambda step, calls: None):
    """Trains to the end, and checks that no step is lost but back to a commit."""
    hvd.init()
    net = make_net(hvd.SyncBatchNorm(8))
    sgd = hvd.DistributedOptimizer(make_sgd(net), net.named_parameters())
    state = hvd.elastic.TorchState(net, sgd, step=0)
    deaths = Deaths(net)
    calls, committed, sizes = 0, 0, []

    state.register_reset_callbacks([lambda: sizes.append(hvd.size())])
    save = state.save
    state.save = lambda: (deaths.at("save"), save())

    @hvd.elastic.run
    def loop(state):
        nonlocal calls, committed
        calls += 1
        # A commit that ended on another rank counts.
        assert committed <= state.step <= committed + commit_every, state.step
        while state.step < STEPS:
            deaths.begin(state.step)
            fail(state.step, calls)
            sgd.zero_grad()
            loss_of(net, state.step, hvd.rank(), hvd.size()).backward()
            sgd.synchronize()
            deaths.at("step")
            with sgd.skip_synchronize():
                sgd.step()
            state.step += 1
            deaths.at("commit")
            if state.step % commit_every == 0:
                state.commit()
                committed = state.step
        return "end"

    assert loop(state) == "end"
    check_equal(net)
    assert 0 <= hvd.join() < hvd.size()
    print(f"rank {START_RANK} is {hvd.rank()} of {hvd.size()}; {sizes}", flush=True)
    return calls


def every_step():
    train()


def every_third():
    train(commit_every=3)


def throws():
    """All ranks throw, without a death; and then one only."""

    def fail(step, calls):
        if step == 5 and calls == 1:
            raise hvd.HorovodInternalError("made by the test")
        if step == 9 and calls == 2 and hvd.rank() == 1:
            raise hvd.HorovodInternalError("made by the test")

    assert train(fail=fail) == 3


def sampler():
    """Each row is processed in a step that counts, however many ranks are left."""
    hvd.init()
    rows = list(range(53))
    sampler = hvd.elastic.ElasticSampler(rows, seed=3)
    state = hvd.elastic.TorchState(sampler=sampler, step=0)
    log = open(f"rows.{START_RANK}", "w", buffering=1)

    @hvd.elastic.run
    def loop(state):
        loader = torch.utils.data.DataLoader(rows, batch_size=2, sampler=state.sampler)
        for i, values in enumerate(loader):
            if PLAN.get(state.step) == "step":
                die()
            hvd.allreduce(values.sum(), name="rows")
            print(_hvd.generation(), state.step, *values.tolist(), file=log)
            state.sampler.record_batch(i, len(values))
            state.step += 1
            state.commit()

    loop(state)
    hvd.barrier()
    if hvd.rank() == 0:
        check_rows(len(rows), hvd.size())


def check_rows(count, left):
    """Demands that the steps that count, those done last, had all rows."""
    steps = {}
    for name in filter(lambda n: n.startswith("rows."), os.listdir()):
        for line in open(name):
            generation, step, *values = map(int, line.split())
            steps.setdefault(step, {}).setdefault(generation, []).extend(values)
    seen = []
    for generations in steps.values():
        seen += generations[max(generations)]
    assert set(seen) == set(range(count)), sorted(set(range(count)) - set(seen))
    assert len(seen) < count + 12, "rows were repeated"
    print(f"all rows, {left} ranks", flush=True)


def sets():
    """Process sets keep the ranks that are left; others can be made."""
    pair = hvd.ProcessSet([0, int(os.environ["HVD_SIZE"]) - 1])
    hvd.init(process_sets=[pair])
    number = pair.process_set_id

    def check_pair():
        assert pair.process_set_id == number
        assert pair.ranks == [0, hvd.size() - 1] == _hvd.process_set_ranks(number)

    net = nn.Linear(2, 1, bias=False)
    sgd = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1.0), process_set=pair
    )
    state = hvd.elastic.TorchState(net, sgd, step=0)
    state.register_reset_callbacks([check_pair])

    @hvd.elastic.run
    def loop(state):
        # The same set in each generation.
        assert hvd.add_process_set([0]).process_set_id == number + 1
        while state.step < 6:
            if PLAN.get(state.step) == "step":
                die()
            sgd.zero_grad()
            (net(torch.ones(1, 2)) * hvd.rank()).sum().backward()
            sgd.step()
            if pair.included():
                assert net.weight.grad[0, 0].item() == (hvd.size() - 1) / 2
            state.step += 1
            state.commit()

    loop(state)
    print(f"the pair is {pair.ranks}", flush=True)


def rejoins():
    """A program that leaves and enters by itself after a death."""
    hvd.init()
    size = hvd.size()
    if START_RANK == 1:
        die()
    try:
        while True:
            hvd.allreduce(torch.ones(1), name="step")
    except hvd.HorovodInternalError as error:
        assert "rank 1" in str(error), error
        assert error.status == 18
    hvd.shutdown()
    hvd.init()
    assert hvd.size() == size - 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size - 1
    assert _hvd.generation() > 1
    print("rejoined", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
