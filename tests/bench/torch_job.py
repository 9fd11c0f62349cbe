# SPDX-License-Identifier: Apache-2.0
"""Times operations on torch tensors, for tests/bench/python.

    hvdrun -np 2 python3 torch_job.py hvd|gloo|none CASE SECONDS

none is Gloo, but the case ddp reduces no gradients: what remains is the step itself.

Prints one JSON object on rank 0: {"us": the median of a call in microseconds}.
The cases are the functions below; each makes a function that is timed.
"""

import json
import os
import statistics
import sys
import time

import torch

from resnet50 import resnet50_counts


class Sums(torch.nn.Module):
    """A model whose backward costs little beside its gradients' reduction."""

    def __init__(self, counts):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros(n) for n in counts)

    def forward(self):
        return torch.stack([p.sum() for p in self.all]).sum()


def no_reduction(_, bucket):
    """Completes a bucket of gradients of DistributedDataParallel as it is."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def ddp(counts, hook=None):
    """A step of a model in DistributedDataParallel, without an optimizer."""
    model = torch.nn.parallel.DistributedDataParallel(Sums(counts))
    if hook is not None:
        model.register_comm_hook(None, hook)

    def step():
        model.zero_grad()
        model().backward()

    return step


class Hvd:
    """The operations through hvd.torch."""

    def __init__(self):
        import hvd.torch as hvd

        hvd.init()
        self.hvd = hvd

    def one(self, name):
        x = torch.ones(1)
        allreduce = self.hvd.allreduce_
        if name is None:
            return lambda: allreduce(x, op=1)
        return lambda: allreduce(x, op=1, name=name)

    def autograd(self):
        x = torch.ones(1, requires_grad=True)
        return lambda: self.hvd.allreduce(x, op=1)

    def many(self, counts):
        """The gradients of one step: hooks, then synchronize()."""
        parameters = [torch.nn.Parameter(torch.zeros(n)) for n in counts]
        optimizer = self.hvd.DistributedOptimizer(
            torch.optim.SGD(parameters, lr=0.0),
            [(str(i), p) for i, p in enumerate(parameters)],
            op=self.hvd.Sum,
        )
        for p in parameters:
            p.grad = torch.zeros_like(p)
        hooks = [optimizer._make_hook(optimizer._slots[p]) for p in parameters]

        def step():
            for hook in hooks:
                hook()
            optimizer.synchronize()

        step.issue = hooks
        step.finish = optimizer.synchronize
        return step

    def ddp(self, counts):
        import torch.distributed as dist

        import hvd.torch.distributed  # noqa: F401  registers the backend

        dist.init_process_group("hvd")
        return ddp(counts)


class Gloo:
    """The operations through torch.distributed with Gloo."""

    def __init__(self):
        import torch.distributed as dist

        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{os.environ['MASTER_ADDR']}"
            f":{os.environ['MASTER_PORT']}",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )
        self.dist = dist

    def one(self, _):
        x = torch.ones(1)
        return lambda: self.dist.all_reduce(x)

    def many(self, counts):
        grads = [torch.zeros(n) for n in counts]

        def step():
            works = [self.dist.all_reduce(g, async_op=True) for g in grads]
            for work in works:
                work.wait()

        return step

    def ddp(self, counts):
        return ddp(counts)


class NoReduction(Gloo):
    """Gloo, but for the gradients of DistributedDataParallel."""

    def ddp(self, counts):
        return ddp(counts, no_reduction)


def timed(call, seconds):
    """The median time of a call in microseconds; the ranks stop together."""
    for _ in range(5):
        call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    # As many rounds on each rank: rank 0's guess counts.
    guess = torch.tensor([seconds / once])
    rounds = int(min(max(share(guess).item(), 5), 20000))
    block = max(1, min(rounds // 20, 100))
    times = []
    for _ in range(rounds // block + 1):
        start = time.perf_counter()
        for _ in range(block):
            call()
        times.append((time.perf_counter() - start) / block)
    return 1e6 * statistics.median(times)


def issue_one(library, seconds):
    """The time that a hook takes to issue one gradient."""
    step = library.many([1000] * 161)
    for _ in range(5):
        step()
    rounds = int(max(20, 200 * seconds))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for hook in step.issue:
            hook()
        times.append((time.perf_counter() - start) / len(step.issue))
        step.finish()
    return 1e6 * statistics.median(times)


def main():
    global share
    which, case, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(1)
    library = {"hvd": Hvd, "gloo": Gloo, "none": NoReduction}[which]()
    if which == "hvd":
        share = lambda x: library.hvd.broadcast(x, 0)  # noqa: E731
        rank = library.hvd.rank()
    else:
        rank = library.dist.get_rank()

        def share(x):
            library.dist.broadcast(x, 0)
            return x

    if case == "issue":
        us = issue_one(library, seconds)
    else:
        calls = {
            "unnamed": lambda: library.one(None),
            "named": lambda: library.one("x"),
            "autograd": lambda: library.autograd(),
            "burst": lambda: library.many([1] * 161),
            "resnet50": lambda: library.many(resnet50_counts()),
            "ddp": lambda: library.ddp(resnet50_counts()),
        }
        us = timed(calls[case](), seconds)
    if rank == 0:
        print(json.dumps({"us": us}), flush=True)
    if which != "hvd":
        # Gloo's threads of PyTorch 1.13 may abort the process at its end.
        library.dist.barrier()
        sys.stdout.flush()
        os._exit(0)


main()
