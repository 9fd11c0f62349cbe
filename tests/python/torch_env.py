# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch: a script for torchrun, which does not know of hvd.

Run it by hvdrun on 2 or more ranks.  `train` trains; `init` and `step` kill the
last rank before init_process_group and between two steps.  `fsdp` trains with
parameters that are divided among the ranks, for which PyTorch 2 is needed.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

EXPECTED = ("GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_NAME")


def end_last_rank():
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def check_environment():
    rank, size = dist.get_rank(), dist.get_world_size()
    assert all(name in os.environ for name in EXPECTED)
    assert not any(name.startswith("TORCHELASTIC_") for name in os.environ)
    assert os.environ["ROLE_RANK"] == os.environ["RANK"] == str(rank)
    assert os.environ["ROLE_WORLD_SIZE"] == os.environ["WORLD_SIZE"] == str(size)
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])


def fit(model, what, rate):
    """Returns the loss after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True)
    for step in range(60):
        if what == "step" and step == 30:
            end_last_rank()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def train(what):
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    loss = fit(model, what, 0.05)
    weight = model.module.weight.detach()[0]
    weights = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, weight)
    assert all(torch.equal(w, weight) for w in weights)
    assert loss < 0.1, loss


def train_divided():
    # Not with the others: PyTorch 1.13 cannot import it in Python 3.11.
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.manual_seed(0)
    model = FullyShardedDataParallel(
        torch.nn.Linear(4, 1), device_id=torch.device("cpu")
    )
    own = sum(p.numel() for p in model.parameters())
    torch.manual_seed(dist.get_rank())
    loss = fit(model, "fsdp", 0.05)
    assert own <= -(-5 // dist.get_world_size()), own
    assert loss < 0.1, loss


@record
def main(what):
    if what == "init":
        end_last_rank()
    dist.init_process_group("gloo")
    check_environment()
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    if what == "fsdp":
        train_divided()
    else:
        train(what)
    dist.barrier()
    if rank == 0:
        print("trained on", size, "ranks of", os.environ["GROUP_WORLD_SIZE"])
    dist.destroy_process_group()


main(sys.argv[1])
