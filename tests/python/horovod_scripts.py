# SPDX-License-Identifier: Apache-2.0
"""The calls that programs written for Horovod make, in their order.

    hvdrun --horovod=force -np 2 python3 horovod_scripts.py
"""

import contextlib
import unittest

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 3),
    )


def make_data():
    """Pictures of three classes, the same on all ranks."""
    generator = torch.Generator().manual_seed(1)
    classes = torch.arange(96) % 3
    pictures = torch.randn(3, 1, 8, 8, generator=generator)[classes]
    return TensorDataset(
        pictures + 0.1 * torch.randn(96, 1, 8, 8, generator=generator), classes
    )


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        hvd.init()
        torch.set_num_threads(1)

    def equal_on_all(self, net):
        flat = torch.cat([p.detach().flatten() for p in net.parameters()])
        for other in hvd.allgather_object(flat):
            self.assertTrue(torch.equal(flat, other))

    def script(self, compression, op, factor=1.0, passes=1):
        """Trains and tests as Horovod's examples do; returns the last accuracy."""
        torch.manual_seed(hvd.rank())
        data = make_data()
        sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
        loader = DataLoader(data, batch_size=8 * passes, sampler=sampler)
        net = make_net()
        scale = 1 if op == hvd.Adasum else hvd.size()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02 * scale, momentum=0.9)
        epoch = torch.tensor(3 if hvd.rank() == 0 else 0)
        epoch = hvd.broadcast(epoch, root_rank=0, name="resume_from_epoch").item()
        self.assertEqual(epoch, 3)
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=net.named_parameters(),
            compression=compression,
            backward_passes_per_step=passes,
            op=op,
            gradient_predivide_factor=factor,
        )
        for epoch in range(4):
            net.train()
            sampler.set_epoch(epoch)
            right = total = 0
            for pictures, classes in loader:
                optimizer.zero_grad()
                for x, y in zip(pictures.chunk(passes), classes.chunk(passes)):
                    output = net(x)
                    right += (output.argmax(1) == y).sum()
                    total += len(y)
                    (F.cross_entropy(output, y) / passes).backward()
                optimizer.step()
        self.equal_on_all(net)
        return hvd.allreduce(right / total, name="avg_accuracy").item()

    def test_plain(self):
        self.assertGreater(self.script(hvd.Compression.none, hvd.Average), 0.9)

    def test_predivide_and_passes(self):
        got = self.script(hvd.Compression.none, hvd.Average, factor=2.0, passes=2)
        self.assertGreater(got, 0.8)

    def test_fp16_allreduce(self):
        self.assertGreater(self.script(hvd.Compression.fp16, hvd.Average), 0.9)

    def test_adasum(self):
        self.assertGreater(self.script(hvd.Compression.none, hvd.Adasum), 0.8)

    def lightning_fit(self, net, optimizer, stack, batches):
        """What PyTorch Lightning's strategy "horovod" calls to train."""
        for group in optimizer.param_groups:
            group["lr"] *= hvd.size()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        if "horovod" not in str(optimizer.__class__):
            of_it = {p for group in optimizer.param_groups for p in group["params"]}
            named = [(n, p) for n, p in net.named_parameters() if p in of_it]
            optimizer = hvd.DistributedOptimizer(
                optimizer, backward_passes_per_step=1, named_parameters=named
            )
        stack.enter_context(optimizer.skip_synchronize())
        for x, y in batches:

            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(net.parameters(), 10.0)
                return loss

            optimizer.step(closure)
        return optimizer

    def test_lightning(self):
        torch.manual_seed(hvd.rank())
        net = make_net()
        data = make_data()
        sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
        batches = list(DataLoader(data, batch_size=8, sampler=sampler))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
        for _ in range(2):  # the second time with the optimizer of the first
            with contextlib.ExitStack() as stack:
                optimizer = self.lightning_fit(net, optimizer, stack, batches)
            hvd.join()
        self.equal_on_all(net)
        self.assertEqual(hvd.broadcast_object({"best": hvd.rank()}, 0), {"best": 0})
        for op, want in ((hvd.Average, (hvd.size() - 1) / 2), (hvd.Sum, None)):
            hvd.join()
            got = hvd.allreduce(torch.tensor(float(hvd.rank())), op=op).item()
            self.assertEqual(got, sum(range(hvd.size())) if want is None else want)
        hvd.join()
        got = hvd.allgather(torch.tensor(hvd.rank()).reshape(1))
        self.assertEqual(got.tolist(), list(range(hvd.size())))
        hvd.join()


if __name__ == "__main__":
    unittest.main(failfast=True)
