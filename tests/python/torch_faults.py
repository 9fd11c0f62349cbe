# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, throw or fork in the middle of a training.

    hvdrun -np 2 python3 torch_faults.py CASE

The cases are the functions below; tests/system/test_torch.sh says what each
must end like.
"""

import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

import hvd.torch as hvd


class Bomb(torch.autograd.Function):
    """Does something when the backward pass arrives."""

    @staticmethod
    def forward(ctx, x, act):
        ctx.act = act
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        ctx.act()
        return grad, None


def make_training():
    torch.manual_seed(0)
    net = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
    )
    return net, optimizer


def train_step(net, optimizer, act=lambda: None):
    optimizer.zero_grad()
    hidden = Bomb.apply(net[0](torch.ones(4, 8)), act)
    net[1](hidden).sum().backward()
    optimizer.step()


def train_until(act):
    """Takes two steps, then a third in whose backward pass rank 1 acts."""
    net, optimizer = make_training()
    for step in range(3):
        due = step == 2 and hvd.rank() == 1
        train_step(net, optimizer, act if due else lambda: None)


def killed():
    """Rank 1 is killed inside backward; rank 0 gets an error that names it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # hvdrun ends the job
    try:
        train_until(lambda: os.kill(os.getpid(), signal.SIGKILL))
    except hvd.HorovodInternalError as error:
        print("rank 0 got:", error, flush=True)
        raise


def killed_elastic():
    """The same inside an elastic function."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    @hvd.elastic.run
    def train(state):
        train_until(lambda: os.kill(os.getpid(), signal.SIGKILL))

    train(hvd.elastic.TorchState(step=0))


def throws():
    """Rank 1 throws inside backward."""

    def act():
        raise RuntimeError("thrown by the test")

    train_until(act)


def interrupted():
    """Rank 0 waits for rank 1, and gets Ctrl-C."""
    if hvd.rank() == 1:
        signal.pause()  # until the job ends
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        hvd.allreduce(torch.ones(1), name="never")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise


class Rows(torch.utils.data.Dataset):
    """Eight rows that tell whether the process could use the library."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor([float(i), float(hvd.is_initialized())])


def workers():
    """Training goes on beside forked and spawned workers, and os.fork."""
    net, optimizer = make_training()
    for context in ("fork", "spawn"):
        loader = DataLoader(
            Rows(), batch_size=4, num_workers=1, multiprocessing_context=context
        )
        seen = []
        for rows in loader:
            seen += rows[:, 0].tolist()
            assert rows[:, 1].sum() == 0, "a worker looks initialised"
            train_step(net, optimizer)
        assert sorted(seen) == list(range(8)), seen
    handle = hvd.allreduce_async(torch.ones(1), name="over the fork")
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            hvd.allreduce(torch.ones(1))
        except (ValueError, hvd.HorovodInternalError):
            failed = 0
        os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0, "the child could use the library"
    assert hvd.synchronize(handle).item() == 1
    train_step(net, optimizer)
    print("went on", flush=True)


def exits():
    """The interpreter exits with operations in flight."""
    net, optimizer = make_training()
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    net[1](net[0](torch.ones(4, 8))).sum().backward()
    for i in range(100):
        hvd.allreduce_async(torch.ones(1000), name=f"left.{i}")


if __name__ == "__main__":
    hvd.init()
    globals()[sys.argv[1]]()
