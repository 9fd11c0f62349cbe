# SPDX-License-Identifier: Apache-2.0
"""The backend "hvd" of torch.distributed: every function against Gloo, or a formula.

Run it by hvdrun on 2 or more ranks.
"""

import datetime
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hvd.torch.distributed

DTYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]


class Case(unittest.TestCase):
    """Common to all cases: both backends, and tensors that ranks can foretell."""

    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()

    def equal(self, a, b):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)

    def tensor(self, rank, dtype=torch.float32, shape=(3, 4)):
        generator = torch.Generator().manual_seed(100 + rank)
        return torch.randint(1, 5, shape, generator=generator).to(dtype)

    def all_tensors(self, dtype=torch.float32, shape=(3, 4)):
        return [self.tensor(rank, dtype, shape) for rank in range(self.size)]


class Reductions(Case):
    def test_all_reduce_and_reduce(self):
        ops = dist.ReduceOp
        for dtype in DTYPES:
            for op in (ops.SUM, ops.MIN, ops.MAX, ops.PRODUCT):
                ours, theirs = self.tensor(self.rank, dtype), self.tensor(
                    self.rank, dtype
                )
                dist.all_reduce(ours, op)
                dist.all_reduce(theirs, op, group=gloo)
                self.equal(ours, theirs)
                root = self.size - 1
                ours, theirs = self.tensor(self.rank, dtype), self.tensor(
                    self.rank, dtype
                )
                before = ours.clone()
                dist.reduce(ours, root, op)
                dist.reduce(theirs, root, op, group=gloo)
                self.equal(ours, theirs if self.rank == root else before)

    def test_bitwise(self):
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            ours = self.tensor(self.rank, torch.int64)
            theirs = ours.clone()
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            self.equal(ours, theirs)

    def test_average(self):
        tensor = self.tensor(self.rank)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        self.equal(tensor, sum(self.all_tensors()) / self.size)

    def test_shapes(self):
        for shape in ((), (0,), (5,), (2, 3, 4)):
            tensor = torch.full(shape, self.rank + 1.0)
            dist.all_reduce(tensor)
            self.equal(tensor, torch.full(shape, self.size * (self.size + 1) / 2))

    def test_tensors_with_gaps_and_in_other_orders(self):
        for view in (
            lambda t: t.t(),
            lambda t: t[:, ::2],
            lambda t: t.unsqueeze(0).contiguous(memory_format=torch.channels_last)
            if t.dim() == 3
            else t[1:],
        ):
            whole = self.tensor(self.rank)
            part = view(whole)
            expected = sum(view(tensor) for tensor in self.all_tensors())
            dist.all_reduce(part)
            self.equal(part, expected)

    def test_complex(self):
        tensor = torch.complex(self.tensor(self.rank), self.tensor(self.rank) * 2)
        expected = sum(torch.complex(t, t * 2) for t in self.all_tensors())
        dist.all_reduce(tensor)
        self.equal(tensor, expected)

    def test_coalesced(self):
        shapes = [(2,), (3, 3), (1,)]
        tensors = [self.tensor(self.rank, shape=shape) for shape in shapes]
        dist.all_reduce_coalesced(tensors)
        for tensor, shape in zip(tensors, shapes):
            self.equal(tensor, sum(self.all_tensors(shape=shape)))

    def test_reduce_scatter(self):
        inputs = [self.tensor(self.rank * 10 + i) for i in range(self.size)]
        output = torch.empty(3, 4)
        expected = sum(self.tensor(r * 10 + self.rank) for r in range(self.size))
        dist.reduce_scatter(output, inputs)
        self.equal(output, expected)
        output.zero_()
        dist.reduce_scatter_tensor(output, torch.cat(inputs))
        self.equal(output, expected)
        output = torch.zeros(4, 3).t()
        dist.reduce_scatter(output, inputs, dist.ReduceOp.MAX)
        maxima = [self.tensor(r * 10 + self.rank) for r in range(self.size)]
        self.equal(output, torch.stack(maxima).amax(0))

    def test_complex_by_reduce(self):
        tensor = torch.full((2,), complex(self.rank, 1))
        dist.reduce(tensor, 0)
        if self.rank == 0:
            total = complex(self.size * (self.size - 1) / 2, self.size)
            self.equal(tensor, torch.full((2,), total))
        for op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MAX):
            with self.assertRaisesRegex(RuntimeError, "SUM and AVG only"):
                dist.reduce(tensor, 0, op)

    def test_what_autograd_records(self):
        leaf = torch.nn.Parameter(torch.ones(4, 3)[:, :2])
        leaf.data = torch.ones(4, 3)[:, :2]
        dist.all_reduce(leaf)
        self.equal(leaf.detach(), torch.full((4, 2), float(self.size)))
        leaves = [torch.nn.Parameter(torch.zeros(2)) for _ in range(self.size)]
        dist.all_gather(leaves, torch.full((2,), 1.0 + self.rank))
        self.equal(leaves[-1].detach(), torch.full((2,), float(self.size)))
        parts = [torch.ones(i + 1, requires_grad=True) * 2 for i in range(self.size)]
        output = torch.empty(self.rank + 1)
        dist.reduce_scatter(output, parts)
        self.assertFalse(output.requires_grad)
        with torch.inference_mode():
            outputs = [torch.zeros(1) for _ in range(self.size)]
            work = dist.all_gather(outputs, torch.ones(1), async_op=True)
        work.wait()
        self.equal(outputs[0], torch.ones(1))

    def test_reduce_scatter_of_unequal_parts(self):
        inputs = [torch.full((i + 1,), self.rank + i + 1.0) for i in range(self.size)]
        output = torch.empty(self.rank + 1)
        dist.reduce_scatter(output, inputs)
        value = sum(r + self.rank + 1.0 for r in range(self.size))
        self.equal(output, torch.full((self.rank + 1,), value))
        with self.assertRaisesRegex(RuntimeError, "12 of the output for each"):
            dist.reduce_scatter_tensor(torch.empty(3, 4), torch.empty(5))
        for output, wrong in (
            (torch.empty(self.rank + 2), inputs),
            (torch.empty(self.rank + 1), inputs + inputs),
        ):
            with self.assertRaisesRegex(RuntimeError, "the output of rank"):
                dist.reduce_scatter(output, wrong)
        dist.reduce_scatter_tensor(torch.empty(0, 3), torch.empty(0, 3))


class Copies(Case):
    def test_broadcast(self):
        for root in range(self.size):
            for dtype in DTYPES + [torch.bool, torch.float16, torch.bfloat16]:
                tensor = self.tensor(self.rank, dtype)
                dist.broadcast(tensor, root)
                self.equal(tensor, self.tensor(root, dtype))

    def test_gathers(self):
        ours = [torch.empty(3, 4) for _ in range(self.size)]
        dist.all_gather(ours, self.tensor(self.rank))
        for tensor, expected in zip(ours, self.all_tensors()):
            self.equal(tensor, expected)
        output = torch.empty(3 * self.size, 4)
        dist.all_gather_into_tensor(output, self.tensor(self.rank))
        self.equal(output, torch.cat(self.all_tensors()))
        lists = [[torch.empty(2) for _ in range(self.size)] for _ in range(2)]
        inputs = [torch.full((2,), 10.0 * i + self.rank) for i in range(2)]
        dist.all_gather_coalesced(lists, inputs)
        for i, tensors in enumerate(lists):
            for rank, tensor in enumerate(tensors):
                self.equal(tensor, torch.full((2,), 10.0 * i + rank))

    def test_gather_of_other_sizes(self):
        outputs = [torch.empty((r + 1) % self.size) for r in range(self.size)]
        with self.assertRaisesRegex(RuntimeError, "the ranks sent"):
            dist.all_gather(outputs, torch.empty(self.rank))

    def test_gather_and_scatter(self):
        for root in range(self.size):
            mine = self.rank == root
            outputs = [torch.empty(3, 4) for _ in range(self.size)] if mine else None
            dist.gather(self.tensor(self.rank), outputs, root)
            for tensor, expected in zip(outputs or [], self.all_tensors()):
                self.equal(tensor, expected)
            output = torch.empty(3, 4)
            dist.scatter(output, self.all_tensors() if mine else None, root)
            self.equal(output, self.tensor(self.rank))

    def test_all_to_all(self):
        inputs = [self.tensor(self.rank * 10 + i, shape=(i + 1, 2)) for i in range(self.size)]
        outputs = [torch.empty(self.rank + 1, 2) for _ in range(self.size)]
        dist.all_to_all(outputs, inputs)
        for r, output in enumerate(outputs):
            shape = (self.rank + 1, 2)
            self.equal(output, self.tensor(r * 10 + self.rank, shape=shape))

    def test_all_to_all_single(self):
        input = torch.arange(self.size * 2.0).view(-1, 1) + 100 * self.rank
        output = torch.empty_like(input)
        dist.all_to_all_single(output, input)
        rows = [
            torch.arange(self.rank * 2.0, self.rank * 2 + 2) + 100 * r
            for r in range(self.size)
        ]
        self.equal(output, torch.cat(rows).view(-1, 1))
        splits = [r + 1 for r in range(self.size)]
        input = torch.full((sum(splits), 3), float(self.rank))
        output = torch.empty(self.size * (self.rank + 1), 3)
        dist.all_to_all_single(output, input, [self.rank + 1] * self.size, splits)
        expected = torch.arange(float(self.size)).repeat_interleave(self.rank + 1)
        self.equal(output[:, 0], expected)
        with self.assertRaisesRegex(RuntimeError, "do not add up"):
            dist.all_to_all_single(output, input, None, [1] * (self.size + 1))

    def test_objects(self):
        objects = [None] * self.size
        dist.all_gather_object(objects, {"rank": self.rank, "text": "x" * self.rank})
        for rank, value in enumerate(objects):
            self.assertEqual(value, {"rank": rank, "text": "x" * rank})
        values = [self.rank, "text"] if self.rank == 0 else [None, None]
        dist.broadcast_object_list(values)
        self.assertEqual(values, [0, "text"])

    def test_barrier(self):
        dist.barrier()
        dist.barrier(async_op=True).wait()


class Works(Case):
    def test_many_in_flight_and_waited_for_backwards(self):
        tensors = [torch.full((100,), float(i + self.rank)) for i in range(300)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            self.assertTrue(work.wait())
            self.assertTrue(work.is_completed() and work.is_success())
        for i, tensor in enumerate(tensors):
            total = sum(float(i + rank) for rank in range(self.size))
            self.equal(tensor, torch.full((100,), total))

    def test_future(self):
        tensor = torch.ones(10)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        doubled = future.then(lambda f: f.value()[0] * 2)
        self.equal(doubled.wait(), torch.full((10,), 2.0 * self.size))

    def test_results(self):
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, async_op=True)
        self.equal(work.result()[0], torch.full((3,), float(self.size)))
        self.assertIsNone(work.exception())
        future = work.get_future()
        self.assertTrue(future.done())
        self.equal(future.value()[0], tensor)

    def test_result_after_wait(self):
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        self.equal(work.result()[0], torch.full((1,), float(self.size)))

    def test_wait_in_callback(self):
        def again(future):
            work = dist.all_reduce(future.value()[0], async_op=True)
            return work.get_future().wait()[0]

        last = self.rank == self.size - 1
        if last:
            dist.barrier(gloo)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        future = work.get_future().then(again)  # the others' are not done
        if not last:
            dist.barrier(gloo)
        self.equal(future.wait(), torch.full((1,), float(self.size**2)))

    def test_timeout(self):
        if self.rank == 0:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            with self.assertRaises(TimeoutError):
                work.wait(datetime.timedelta(milliseconds=20))
            dist.barrier(gloo)
            self.assertTrue(work.wait())
        else:
            dist.barrier(gloo)
            dist.all_reduce(torch.ones(1))

    def test_mismatch_names_both(self):
        work = dist.all_reduce(torch.ones(2 + self.rank % 2), async_op=True)
        with self.assertRaisesRegex(RuntimeError, "rank"):
            work.wait()
        self.assertFalse(work.is_success())
        self.assertIsNotNone(work.exception())
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.equal(tensor, torch.full((1,), float(self.size)))

    def test_what_there_is_not(self):
        for call in (
            lambda: dist.send(torch.ones(1), (self.rank + 1) % self.size),
            lambda: dist.recv(torch.ones(1), (self.rank + 1) % self.size),
            lambda: dist.isend(torch.ones(1), (self.rank + 1) % self.size),
        ):
            with self.assertRaisesRegex(RuntimeError, "backend hvd has no (send|recv)"):
                call()


class Groups(Case):
    def test_new_group(self):
        for members in ([0], list(range(1, self.size)), list(range(self.size))):
            group = dist.new_group(members)
            if self.rank not in members:
                continue
            self.assertEqual(dist.get_world_size(group), len(members))
            tensor = torch.full((4,), float(self.rank))
            dist.all_reduce(tensor, group=group)
            self.equal(tensor, torch.full((4,), float(sum(members))))
            dist.broadcast(tensor.fill_(self.rank), members[-1], group=group)
            self.equal(tensor, torch.full((4,), float(members[-1])))

    def test_more_groups_than_there_are_process_sets(self):
        everyone = list(range(self.size))
        tensor = torch.ones(2)
        for turn in range(300):
            group = dist.new_group(everyone)
            if turn % 50 == 0:
                dist.all_reduce(tensor.fill_(turn), group=group)
                self.equal(tensor, torch.full((2,), float(turn * self.size)))
            dist.destroy_process_group(group)
            del group

    def test_two_groups_in_different_orders(self):
        everyone = list(range(self.size))
        groups = [dist.new_group(everyone), dist.new_group(everyone)]
        tensors = [torch.full((2,), float(i + 1)) for i in range(2)]
        order = (0, 1) if self.rank % 2 else (1, 0)
        works = [
            dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order
        ]
        for work in works:
            work.wait()
        for i in range(2):
            self.equal(tensors[i], torch.full((2,), float((i + 1) * self.size)))


class Parallel(Case):
    def model(self):
        torch.manual_seed(3)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 36, 10),
        ).double()

    def train(self, group):
        model = self.model()
        if self.rank:
            for parameter in model.parameters():
                parameter.data.zero_()  # must come from rank 0
        parallel = DistributedDataParallel(
            model, process_group=group, bucket_cap_mb=0.005
        )
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(self.rank)
        for _ in range(4):
            optimizer.zero_grad()
            data = torch.randn(4, 1, 8, 8, generator=generator, dtype=torch.float64)
            parallel(data).pow(2).mean().backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    def test_as_gloo(self):
        for ours, theirs in zip(self.train(None), self.train(gloo)):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)

    def test_complex(self):
        model = torch.nn.Linear(2, 1, bias=False, dtype=torch.complex64)
        parallel = DistributedDataParallel(model)
        parallel(torch.full((1, 2), complex(self.rank, 1))).real.sum().backward()
        mean = complex((self.size - 1) / 2, -1)
        self.equal(model.weight.grad, torch.full((1, 2), mean))

    def test_uneven_inputs(self):
        parallel = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
        with parallel.join():
            for step in range(1 + self.rank):
                parallel.zero_grad()
                parallel(torch.ones(1, 3)).sum().backward()

    def test_error_in_backward(self):
        parallel = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
        output = parallel(torch.ones(1, 3)).sum()
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "rank 0 has"):
                output.backward()
        else:
            with self.assertRaisesRegex(RuntimeError, "rank 0 has"):
                dist.all_reduce(torch.ones(2))

    def test_hook_of_the_user(self):
        parallel = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
        seen = []

        def hook(state, bucket):
            seen.append(bucket.index())
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda f: f.value()[0] / self.size)

        parallel.register_comm_hook(None, hook)
        parallel(torch.full((1, 3), float(self.rank))).sum().backward()
        mean = (self.size - 1) / 2
        self.equal(parallel.module.weight.grad, torch.full((1, 3), mean))
        self.assertEqual(seen, [0])


if __name__ == "__main__":
    dist.init_process_group("hvd")
    gloo = dist.new_group(backend="gloo")
    unittest.main(verbosity=0)
