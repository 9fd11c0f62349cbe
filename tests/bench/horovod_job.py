# SPDX-License-Identifier: Apache-2.0
"""Times what a script that imports horovod.torch waits for, for tests/bench/horovod.

Prints one JSON object on rank 0: microseconds by the names of the cases there.
"""

import json
import statistics
import time

import torch

from resnet18 import resnet18
from resnet50 import resnet50_counts

begun = time.perf_counter()
import horovod.torch as hvd  # noqa: E402

imported = time.perf_counter()

SIZES = (4, 4096, 65536, 1 << 20, 8 << 20, 64 << 20)  # bytes


def median_us(call, seconds):
    """The median time of a call; as many calls on each rank."""
    for _ in range(3):
        call()
    start = time.perf_counter()
    call()
    guess = torch.tensor([seconds / max(time.perf_counter() - start, 1e-6)])
    rounds = int(min(max(hvd.broadcast(guess, 0).item(), 5), 2000))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def gradients(counts):
    """A function that reduces tensors as the hooks of an optimizer do."""
    tensors = [torch.zeros(n) for n in counts]

    def step():
        handles = [
            hvd.allreduce_async_(t, op=hvd.Sum, name=str(i))
            for i, t in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    return step


def training(model, x):
    """A function that takes a step of training."""
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters()
    )

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def idle_us():
    """Processor time that a second without operations costs."""
    start = time.process_time()
    time.sleep(1)
    return 1e6 * (time.process_time() - start)


def main():
    start = time.perf_counter()
    hvd.init()
    found = {
        "import": 1e6 * (imported - begun),
        "init": 1e6 * (time.perf_counter() - start),
    }
    for size in SIZES:
        x = torch.ones(size // 4)
        found[f"allreduce {size}"] = median_us(
            lambda x=x: hvd.allreduce_(x, op=hvd.Sum, name="x"), 0.2
        )
    found["small"] = median_us(gradients([1] * 161), 0.3)
    found["resnet50"] = median_us(gradients(resnet50_counts()), 1.0)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64) for _ in range(20)]
    small = training(torch.nn.Sequential(*layers), torch.ones(8, 64))
    found["step"] = median_us(small, 0.5)
    found["resnet18"] = median_us(training(resnet18(), torch.ones(1, 3, 224, 224)), 2.0)
    found["idle"] = idle_us()
    if hvd.rank() == 0:
        print(json.dumps(found), flush=True)
    hvd.shutdown()


main()
