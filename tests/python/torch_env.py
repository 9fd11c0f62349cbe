# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch: a script for torchrun, which does not know of hvd.

Run it by hvdrun on 2 or more ranks.  `train` trains; `init` and `step` kill the
last rank before init_process_group and between two steps.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EXPECTED = ("GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_NAME")


def end_last_rank():
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def main(what):
    if what == "init":
        end_last_rank()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert all(name in os.environ for name in EXPECTED)
    assert not any(name.startswith("TORCHELASTIC_") for name in os.environ)
    assert os.environ["ROLE_RANK"] == os.environ["RANK"] == str(rank)
    assert os.environ["ROLE_WORLD_SIZE"] == os.environ["WORLD_SIZE"] == str(size)
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True)
    for step in range(60):
        if what == "step" and step == 30:
            end_last_rank()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    weight = model.module.weight.detach()[0]
    weights = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(weights, weight)
    assert all(torch.equal(w, weight) for w in weights)
    assert loss < 0.1, loss
    dist.barrier()
    if rank == 0:
        print("trained on", size, "ranks of", os.environ["GROUP_WORLD_SIZE"])


main(sys.argv[1])
