# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm against BatchNorm on the joined batch; the elastic classes.

    hvdrun -np N python3 torch_layers.py       N from 2 to 4
"""

import unittest

import torch
from torch import nn

import hvd.torch as hvd


def setUpModule():
    global rank, size
    hvd.init()
    rank, size = hvd.rank(), hvd.size()


class BatchNorm(unittest.TestCase):
    def close(self, got, want, limit=1e-6):
        self.assertEqual(got.shape, want.shape)
        if got.numel() == 0:
            return
        scale = max(want.abs().max().item(), 1)
        self.assertLess((got - want).abs().max().item(), limit * scale)

    def compare(self, shape, offset=0.0, rows=None, limit=1e-6, **options):
        """Compares with one layer that sees the batches of all ranks."""
        torch.manual_seed(4)
        counts = rows or [r + 2 for r in range(size)]
        parts = [torch.randn(n, *shape) * 2 + offset for n in counts]
        joined = torch.cat(parts).requires_grad_()
        kind = {1: nn.BatchNorm1d, 3: nn.BatchNorm2d}[len(shape)]
        alone = kind(shape[0], **options)
        mine = hvd.SyncBatchNorm(shape[0], **options)
        if options.get("affine", True):
            with torch.no_grad():
                alone.weight.uniform_(0.5, 2)
                alone.bias.uniform_(-1, 1)
        mine.load_state_dict(alone.state_dict())
        x = parts[rank].clone().requires_grad_()
        factor = torch.randn(sum(counts), *shape)
        first = sum(counts[:rank])
        own = slice(first, first + counts[rank])
        for _ in range(2):
            want, got = alone(joined), mine(x)
            self.close(got, want[own], limit)
        (want * factor).sum().backward()
        (got * factor[own]).sum().backward()
        self.close(x.grad, joined.grad[own], 10 * limit)
        if options.get("affine", True):
            for name in ("weight", "bias"):
                grad = getattr(mine, name).grad
                grad = hvd.allreduce(grad, op=hvd.Sum)
                self.close(grad, getattr(alone, name).grad, 10 * limit)
        if options.get("track_running_stats", True):
            self.close(mine.running_mean, alone.running_mean)
            self.close(mine.running_var, alone.running_var)
            self.assertEqual(mine.num_batches_tracked, alone.num_batches_tracked)
        mine.eval()
        alone.eval()
        if counts[rank]:
            self.close(mine(x), alone(joined)[own], limit)

    def test_against_joined_batch(self):
        self.compare((3,))
        self.compare((4, 3, 2))
        self.compare((3,), affine=False)
        self.compare((3,), momentum=None)

    def test_mean_far_from_zero(self):
        # Squares in float32 would lose the variance: 1e4 * 6e-8 / 4 and more.
        self.compare((3,), offset=100.0, limit=1e-5)

    def test_rank_without_rows(self):
        self.compare((3,), rows=[5] + [0] * (size - 1))

    def test_layer_of_one_rank(self):
        # A layer that is not trained changes nothing for the others.
        if rank == 0:
            hvd.SyncBatchNorm(3)
        layer = hvd.SyncBatchNorm(3, affine=False)
        got = layer(torch.full((2, 3), float(rank)))
        total = hvd.allreduce(got.sum(0), op=hvd.Sum)
        self.close(total, torch.zeros(3), 1e-5)

    def test_without_running_stats(self):
        layer = hvd.SyncBatchNorm(3, track_running_stats=False)
        layer.eval()
        got = layer(torch.full((2, 3), float(rank)))
        total = hvd.allreduce(got.sum(0), op=hvd.Sum)
        self.close(total, torch.zeros(3), 1e-5)

    def test_errors(self):
        with self.assertRaises(ValueError):
            hvd.SyncBatchNorm(3)(torch.ones(3))


class Elastic(unittest.TestCase):
    def test_state(self):
        net = nn.Linear(2, 2)
        with torch.no_grad():
            net.weight.fill_(rank)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (rank + 1))
        state = hvd.elastic.TorchState(net, optimizer, epoch=10 + rank)
        state.sync()
        self.assertEqual(net.weight.tolist(), [[0, 0], [0, 0]])
        self.assertEqual((state.epoch, optimizer.param_groups[0]["lr"]), (10, 0.1))
        state.epoch = 12
        with torch.no_grad():
            net.weight.fill_(5)
        state.restore()
        self.assertEqual((state.epoch, net.weight[0, 0].item()), (10, 0))
        for value in (6, 7):
            state.epoch = 12
            with torch.no_grad():
                net.weight.fill_(6)
            state.commit()
            with torch.no_grad():
                net.weight.fill_(value)
            state.restore()
            self.assertEqual((state.epoch, net.weight[0, 0].item()), (12, 6))

    def test_sampler(self):
        rows = list(range(4 * size + 1))
        sampler = hvd.elastic.ElasticSampler(rows, shuffle=True, seed=3)
        state = hvd.elastic.TorchState(sampler=sampler)
        state.sync()
        mine = list(sampler)
        self.assertEqual(len(mine), len(sampler))
        everyone = hvd.allgather_object(mine)
        self.assertEqual(set().union(*everyone), set(rows))
        sampler.record_batch(0, 2)
        state.commit()
        state.sync()  # divides what is left
        rest = hvd.allgather_object(list(sampler))
        seen = {r for part in everyone for r in part[:2]}
        self.assertEqual(set().union(*rest), set(rows) - seen)
        sampler.set_epoch(1)
        self.assertEqual(len(sampler), 5)
        self.assertNotEqual(list(sampler), mine)

    def test_run_again(self):
        calls = []
        resets = []

        @hvd.elastic.run
        def train(state, more):
            calls.append(state.step)
            if len(calls) == 1:
                state.step = 5
                state.commit()
                state.step = 6
                raise hvd.HorovodInternalError("made by the test")
            if len(calls) == 2:
                state.step = 8
                raise hvd.HostsUpdatedInterrupt()
            return more + hvd.allreduce(torch.ones(1), op=hvd.Sum).item()

        state = hvd.elastic.TorchState(step=rank)
        state.register_reset_callbacks([lambda: resets.append(hvd.size())])
        self.assertEqual(train(state, 1), 1 + size)
        self.assertEqual(calls[:2], [0, 5])
        self.assertEqual(resets, [size, size])


if __name__ == "__main__":
    unittest.main(failfast=True)
