# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer against the same training in one process.

    hvdrun -np N python3 torch_optimizer.py       N from 2 to 4
"""

import copy
import itertools
import time
import unittest
import warnings

import torch
from torch import nn

import hvd.torch as hvd

ROWS = 8  # of a batch on each rank


def setUpModule():
    global rank, size, evens
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    evens = hvd.add_process_set(list(range(0, size, 2)))


class Net(nn.Module):
    """Two layers; the second may be left out of the loss."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.second = nn.Linear(5, 3)
        self.extra = nn.Linear(5, 3)

    def forward(self, x, extra=False):
        hidden = torch.tanh(self.first(x))
        return (self.extra if extra else self.second)(hidden)


def make_net():
    torch.manual_seed(7)
    return Net().double()


def batch(step, r):
    generator = torch.Generator().manual_seed(1000 * step + r)
    return torch.randn(ROWS, 6, generator=generator, dtype=torch.float64)


def loss_of(net, step, r, extra=False):
    return net(batch(step, r), extra).pow(2).mean()


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def reference(steps, ranks, passes=1, op=hvd.Average, missing=False):
    """Trains in this process alone on the batches of ranks."""
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        for r, turn in itertools.product(ranks, range(passes)):
            extra = missing and r == ranks[0]
            loss = loss_of(net, 10 * step + turn, r, extra)
            (loss / (len(ranks) if op == hvd.Average else 1)).backward()
        optimizer.step()
    return weights(net)


class Until(torch.autograd.Function):
    """Waits in its backward pass until a condition holds, for at most 30 s."""

    @staticmethod
    def forward(ctx, x, condition):
        ctx.condition = condition
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        end = time.monotonic() + 30
        while not ctx.condition():
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.001)
        return grad, None


class Case(unittest.TestCase):
    def close(self, got, want, limit=1e-12):
        gap = (got - want).abs().max().item()
        self.assertLess(gap, limit)

    def train(self, ranks, steps=3, passes=1, missing=False, net=None, **options):
        net = net or make_net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
            net.named_parameters(),
            backward_passes_per_step=passes,
            **options,
        )
        for step in range(steps):
            optimizer.zero_grad()
            for turn in range(passes):
                extra = missing and rank == ranks[0]
                loss_of(net, 10 * step + turn, rank, extra).backward()
            optimizer.step()
        return weights(net)


class Training(Case):
    def test_combinations(self):
        lists = "lists"
        for passes, groups, op, factor, missing in itertools.product(
            (1, 3), (None, 2, lists), (hvd.Average, hvd.Sum), (1.0, 4.0), (False, True)
        ):
            if factor != 1.0 and op != hvd.Average:
                continue
            net = make_net()
            given = groups
            if groups == lists:
                given = [list(net.second.parameters()), [net.first.weight]]
            with self.subTest(passes=passes, groups=groups, op=op, missing=missing):
                got = self.train(
                    list(range(size)),
                    passes=passes,
                    missing=missing,
                    net=net,
                    groups=given,
                    op=op,
                    gradient_predivide_factor=factor,
                )
                want = reference(3, list(range(size)), passes, op, missing)
                self.close(got, want)

    def test_process_set(self):
        if evens.included():
            for groups in (None, 2):
                got = self.train(evens.ranks, process_set=evens, groups=groups)
                self.close(got, reference(3, evens.ranks))
        else:
            self.close(self.train([rank], process_set=evens), reference(3, [rank]))

    def test_compression(self):
        class Own(hvd.Compression.none):
            @staticmethod
            def compress(tensor):
                return tensor * 2, None

            @staticmethod
            def decompress(tensor, ctx):
                return tensor / 2

        ranks = list(range(size))
        want = reference(3, ranks)
        for groups, (compression, limit) in itertools.product(
            (None, 2),
            (
                (hvd.Compression.fp16, 1e-3),
                (hvd.Compression.bf16, 1e-2),
                (Own, 1e-12),
            ),
        ):
            got = self.train(ranks, compression=compression, groups=groups)
            self.close(got, want, limit)

    def test_split_batch(self):
        # One process with a batch of 64, and the ranks with their shares.
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(64, 6, generator=generator, dtype=torch.float64)
        nets = []
        for shared in (False, True):
            net = make_net()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
            mine, share = x, 1.0
            if shared:
                optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
                hvd.broadcast_parameters(net.state_dict(), root_rank=0)
                hvd.broadcast_optimizer_state(optimizer, root_rank=0)
                mine = x.tensor_split(size)[rank]
                share = len(mine) * size / len(x)
            for _ in range(20):
                optimizer.zero_grad()
                (net(mine).pow(2).mean() * share).backward()
                optimizer.step()
            nets.append(weights(net))
        self.close(nets[1], nets[0])

    def test_adasum_of_equal_gradients(self):
        # Adasum of equal steps is one of them.
        net = make_net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
            net.named_parameters(),
            op=hvd.Adasum,
            backward_passes_per_step=2,
        )
        for step in range(3):
            optimizer.zero_grad()
            for turn in range(2):
                loss_of(net, 10 * step + turn, 0).backward()
            optimizer.step()
        self.close(weights(net), reference(3, [0], passes=2))
        gathered = hvd.allgather_object(weights(net))
        self.assertTrue(all(torch.equal(w, gathered[0]) for w in gathered))
        with self.assertRaises(AssertionError):
            optimizer.skip_synchronize()
        optimizer.synchronize()
        loss_of(net, 0, rank).backward()
        with self.assertRaises(AssertionError):
            for turn in range(2):
                loss_of(net, 0, rank).backward()
        optimizer.step()

    def test_adasum_of_two(self):
        # Two ranks with orthogonal steps: their sum.
        if size != 2:
            return
        p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([p], lr=1.0), [("p", p)], op=hvd.Adasum
        )
        p[rank].backward()
        optimizer.step()
        self.assertEqual(p.tolist(), [-1.0, -1.0])


    def test_adasum_of_later_parameters(self):
        # Those of a group that is added, and those that get a gradient later.
        frozen, added = (nn.Parameter(torch.zeros(2).double()) for _ in range(2))
        frozen.requires_grad_(False)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([frozen], lr=1.0), op=hvd.Adasum
        )
        optimizer.add_param_group({"params": [added]})
        frozen.requires_grad_(True)
        for value in (-1.0, -2.0):
            optimizer.zero_grad()
            (frozen + added).sum().backward()
            optimizer.step()
            self.assertEqual(frozen.tolist(), [value, value])
            self.assertEqual(added.tolist(), [value, value])


class Sparse(Case):
    def test_sparse(self):
        for op, as_dense, optim in itertools.product(
            (hvd.Average, hvd.Sum), (False, True), (torch.optim.SGD,)
        ):
            torch.manual_seed(1)
            table = nn.Embedding(10, 3, sparse=True).double()
            alone = copy.deepcopy(table)
            optimizer = hvd.DistributedOptimizer(
                optim(table.parameters(), lr=0.5),
                table.named_parameters(),
                op=op,
                sparse_as_dense=as_dense,
            )
            single = optim(alone.parameters(), lr=0.5)
            for step in range(4):
                optimizer.zero_grad()
                if step != 2 or rank != 0:  # rank 0 has no gradient in step 2
                    rows = torch.tensor([rank, step, 5])
                    table(rows).pow(2).sum().backward()
                optimizer.step()
                self.assertTrue(table.weight.grad.is_sparse)
                single.zero_grad()
                for r in range(size):
                    if step == 2 and r == 0:
                        continue
                    loss = alone(torch.tensor([r, step, 5])).pow(2).sum()
                    (loss / (size if op == hvd.Average else 1)).backward()
                single.step()
            self.close(weights(table), weights(alone))


class Names(Case):
    def test_class(self):
        inner = torch.optim.Adam(make_net().parameters(), lr=0.3)
        optimizer = hvd.DistributedOptimizer(inner)
        self.assertIsInstance(optimizer, torch.optim.Adam)
        self.assertEqual(type(optimizer).__name__, "Adam")
        self.assertIsNot(type(optimizer), torch.optim.Adam)
        self.assertEqual(optimizer.defaults["lr"], 0.3)
        self.assertIs(optimizer.state, inner.state)

    def test_errors(self):
        net = make_net()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        named = list(net.named_parameters())
        for wrong in (
            [p for _, p in named],
            named[:-1],
            named + [(named[0][0], named[1][1])],
        ):
            with self.assertRaises(ValueError):
                hvd.DistributedOptimizer(sgd, wrong)
        twice = [[net.first.weight], [net.first.weight]]
        for options in (
            dict(op=hvd.Sum, gradient_predivide_factor=2.0),
            dict(backward_passes_per_step=0),
            dict(groups=twice),
            dict(groups=[["first.weight"]]),
            dict(groups=-1),
        ):
            with self.assertRaises(ValueError):
                hvd.DistributedOptimizer(sgd, named, **options)
        with self.assertRaises(NotImplementedError):
            hvd.DistributedOptimizer(sgd, named, op=hvd.Adasum, process_set=evens)
        with self.assertWarns(DeprecationWarning):
            hvd.DistributedOptimizer(sgd, named, num_groups=1)

    def test_wrapped_twice(self):
        net = make_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for op in (hvd.Average, hvd.Adasum):
            wrapped = hvd.DistributedOptimizer(optimizer, op=op)
            with self.assertRaisesRegex(ValueError, "already"):
                hvd.DistributedOptimizer(wrapped)

    def test_two_without_names(self):
        nets = [make_net(), make_net()]
        optimizers = [
            hvd.DistributedOptimizer(torch.optim.SGD(n.parameters(), lr=0.1))
            for n in nets
        ]
        for net in nets if rank % 2 else nets[::-1]:
            loss_of(net, 0, rank).backward()
        for optimizer in optimizers:
            optimizer.step()
        self.close(weights(nets[0]), weights(nets[1]))


class Order(Case):
    """What is called when, and what must not be."""

    def setUp(self):
        self.net = make_net()
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9),
            self.net.named_parameters(),
        )

    def backward(self):
        loss_of(self.net, 0, rank).backward()

    def test_too_many_passes(self):
        self.backward()
        with self.assertRaises(AssertionError):
            self.backward()
        self.optimizer.step()

    def test_zero_grad_in_flight(self):
        self.backward()
        with self.assertRaises(AssertionError):
            self.optimizer.zero_grad()
        self.optimizer.synchronize()
        self.optimizer.zero_grad(set_to_none=True)
        self.assertIsNone(self.net.first.weight.grad)
        self.optimizer.zero_grad(set_to_none=False)
        with self.optimizer.skip_synchronize():
            self.optimizer.step()

    def test_skip_synchronize(self):
        self.backward()
        self.optimizer.synchronize()
        grad = self.net.first.weight.grad.clone()
        nn.utils.clip_grad_norm_(self.net.parameters(), 100.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
        self.close(self.net.first.weight.grad, grad)
        got = hvd.allgather_object(grad)
        self.assertTrue(all(torch.equal(g, grad) for g in got))

    def test_reduced_twice(self):
        self.backward()
        self.optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "skip_synchronize"):
            self.optimizer.step()

    def test_passes_change(self):
        self.optimizer.set_backward_passes_per_step(2)
        self.backward()
        self.backward()
        self.optimizer.step()
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        self.optimizer.zero_grad()
        self.backward()  # step() does not wait for the second
        self.optimizer.step()
        gathered = hvd.allgather_object(weights(self.net))
        self.assertTrue(torch.equal(gathered[0], gathered[-1]))

    def test_overlap(self):
        # The backward pass does not go on before a gradient has been reduced.
        net = nn.ModuleList(nn.Linear(512, 512) for _ in range(3))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
        )
        for _ in range(6):
            optimizer.zero_grad()
            begun = hvd.stats()["operations"]
            x = Until.apply(
                net[0](torch.ones(1, 512)),
                lambda: hvd.stats()["operations"] > begun,
            )
            net[2](net[1](x)).sum().backward()
            optimizer.step()

    def test_scheduler(self):
        for first in (True, False):
            net = make_net()
            inner = torch.optim.SGD(net.parameters(), lr=1.0)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if first:
                    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
                optimizer = hvd.DistributedOptimizer(inner, net.named_parameters())
                if not first:
                    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
                for _ in range(3):
                    optimizer.zero_grad()
                    loss_of(net, 0, rank).backward()
                    optimizer.step()
                    scheduler.step()
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.125)

    def test_closure(self):
        def closure():
            self.optimizer.zero_grad()
            loss = loss_of(self.net, step, rank)
            loss.backward()
            return loss

        for step in (0, 10, 20):
            self.assertIsInstance(self.optimizer.step(closure), torch.Tensor)
        self.close(weights(self.net), reference(3, list(range(size))))

    def test_lbfgs(self):
        net, alone = make_net(), make_net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.LBFGS(net.parameters(), max_iter=4), net.named_parameters()
        )
        single = torch.optim.LBFGS(alone.parameters(), max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(net, 0, rank)
            loss.backward()
            return hvd.allreduce(loss.detach(), name="loss")

        def closure_alone():
            single.zero_grad()
            loss = sum(loss_of(alone, 0, r) for r in range(size)) / size
            loss.backward()
            return loss

        optimizer.step(closure)
        single.step(closure_alone)
        self.close(weights(net), weights(alone), 1e-9)

    def test_grad_scaler(self):
        # Without a GPU, GradScaler of torch 1.13 passes everything through.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scaler = torch.cuda.amp.GradScaler()
        for step in range(3):
            self.optimizer.zero_grad()
            scaler.scale(loss_of(self.net, 10 * step, rank)).backward()
            self.optimizer.synchronize()
            scaler.unscale_(self.optimizer)
            with self.optimizer.skip_synchronize():
                scaler.step(self.optimizer)
            scaler.update()
        self.close(weights(self.net), reference(3, list(range(size))))

    def test_scaled_loss(self):
        # What GradScaler does on a GPU: an infinite gradient on one rank is one
        # on all, so that all skip the step.
        scale = 2.0**16
        for step in range(4):
            self.optimizer.zero_grad()
            loss = loss_of(self.net, 10 * step, rank) * scale
            if step == 3 and rank == 0:
                loss = loss * float("inf")
            loss.backward()
            self.optimizer.synchronize()
            grads = [p.grad for p in self.net.parameters()]
            finite = all(g.div_(scale).isfinite().all() for g in grads)
            self.assertEqual(finite, step < 3)
            if finite:
                with self.optimizer.skip_synchronize():
                    self.optimizer.step()
        self.close(weights(self.net), reference(3, list(range(size))))

    def test_add_param_group(self):
        more = nn.Linear(2, 2).double()
        hvd.broadcast_parameters(more.state_dict(), 0)
        self.optimizer.add_param_group({"params": list(more.parameters())})
        (more(torch.full((1, 2), float(rank)).double()).sum()).backward()
        self.optimizer.step()
        gathered = hvd.allgather_object(weights(more))
        self.assertTrue(all(torch.equal(w, gathered[0]) for w in gathered))

    def test_frozen_later(self):
        self.net.extra.requires_grad_(False)
        self.backward()
        self.optimizer.step()
        self.assertIsNone(self.net.extra.weight.grad)

    def test_channels_last(self):
        torch.manual_seed(2)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        net = net.to(memory_format=torch.channels_last)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
        )
        x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last) + rank
        net(x).sum().backward()
        mine = net[0].weight.grad.clone()
        optimizer.synchronize()
        got = net[0].weight.grad
        self.assertEqual(got.stride(), net[0].weight.stride())
        want = sum(hvd.allgather_object(got)) / size
        self.close(got, want, 1e-6)
        self.assertEqual(mine.shape, got.shape)

    def test_compile(self):
        if not hasattr(torch, "compile"):
            self.skipTest("this torch has no compile()")
        net = torch.compile(self.net, backend="eager")
        net(batch(0, rank)).sum().backward()
        self.optimizer.step()


class States(Case):
    def test_each_optimizer(self):
        skipped = (torch.optim.LBFGS, torch.optim.SparseAdam)
        for name in sorted(vars(torch.optim)):
            kind = getattr(torch.optim, name)
            if (
                not isinstance(kind, type)
                or not issubclass(kind, torch.optim.Optimizer)
                or kind in (torch.optim.Optimizer, *skipped)
            ):
                continue
            for wrapped in (False, True):
                self.broadcast(kind, wrapped)
        with self.assertRaises(ValueError):
            lbfgs = torch.optim.LBFGS(make_net().parameters())
            hvd.broadcast_optimizer_state(lbfgs, 0)

    def broadcast(self, kind, wrapped):
        net = make_net()
        optimizer = kind(net.parameters(), lr=0.1 * (rank + 1))
        # Rank 0 alone has taken steps, as after loading a checkpoint.
        if rank == 0:
            for _ in range(2):
                loss_of(net, 0, 0).backward()
                optimizer.step()
        if wrapped:
            optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        described = hvd.allgather_object(repr(optimizer.state_dict()))
        self.assertEqual(set(described), {described[0]})
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
        optimizer.zero_grad()
        loss_of(net, 0, 0).backward()
        optimizer.step()
        gathered = hvd.allgather_object(weights(net))
        self.assertTrue(all(torch.equal(w, gathered[0]) for w in gathered))

    def test_empty_state(self):
        net = make_net()
        before = weights(net)
        optimizer = torch.optim.Adam(net.parameters(), weight_decay=0.5)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.assertTrue(torch.equal(before, weights(net)))
        self.assertEqual(len(optimizer.state), 0)

    def test_state_in_other_layouts(self):
        net = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if rank == 0:
            net(torch.ones(1, 2, 4, 4)).sum().backward()
            optimizer.step()
            gaps = torch.arange(4.0).view(2, 2)[:, 0]
            optimizer.state[net.bias]["gaps"] = gaps
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        described = hvd.allgather_object(repr(optimizer.state_dict()))
        self.assertEqual(set(described), {described[0]})
        momentum = optimizer.state[net.weight]["momentum_buffer"]
        self.assertTrue(momentum.is_contiguous(memory_format=torch.channels_last))

    def test_parameters(self):
        net = make_net()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(rank)
        want = weights(make_net())
        hvd.broadcast_parameters(list(net.named_parameters()), root_rank=0)
        self.assertTrue(torch.equal(weights(net), want))
        with torch.no_grad():
            net.first.weight.add_(rank)
        hvd.broadcast_parameters(list(net.parameters()), root_rank=0)
        self.assertTrue(torch.equal(weights(net), want))
        with self.assertRaises(ValueError):
            hvd.broadcast_parameters(net.parameters(), root_rank=0)

    def test_objects(self):
        made = {"a": [1, 2], "r": rank}
        last = size - 1
        got = hvd.broadcast_object(made if rank == last else None, root_rank=last)
        self.assertEqual(got, {"a": [1, 2], "r": last})
        got = hvd.allgather_object("x" * rank)
        self.assertEqual(got, ["x" * r for r in range(size)])
        if evens.included():
            got = hvd.broadcast_object(rank, evens.ranks[-1], process_set=evens)
            self.assertEqual(got, evens.ranks[-1])
            got = hvd.allgather_object(rank, process_set=evens)
            self.assertEqual(got, evens.ranks)


if __name__ == "__main__":
    unittest.main(failfast=True)
