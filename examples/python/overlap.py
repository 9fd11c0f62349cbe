# SPDX-License-Identifier: Apache-2.0
"""Shows that gradients are reduced while the backward pass goes on:

    hvdrun -np 2 python3 examples/python/overlap.py overlap.json

Writes a timeline of rank 0 for https://ui.perfetto.dev, and prints which part
of the reductions was over before backward() returned.
"""

import sys
import time

import torch
from torch import nn

import hvd.torch as hvd

LAYERS = 12
WIDTH = 512


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = sys.argv[1] if len(sys.argv) > 1 else "overlap.json"
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters()
    )
    x = torch.randn(64, WIDTH)
    for step in range(6):
        if step == 5:
            hvd.barrier()
            if hvd.rank() == 0:
                hvd.start_timeline(path)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        begun = hvd.stats()
        start = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        during = hvd.stats()["operations"] - begun["operations"]
        optimizer.synchronize()
        end = time.perf_counter()
        done = hvd.stats()["operations"] - begun["operations"]
        with optimizer.skip_synchronize():
            optimizer.step()
    if hvd.rank() == 0:
        hvd.stop_timeline()
        print(f"backward {1e3 * (backward - start):.2f} ms")
        print(f"waited afterwards {1e3 * (end - backward):.2f} ms")
        print(f"{during} of {done} operations were done during backward")
        print(f"timeline in {path}")


if __name__ == "__main__":
    main()
