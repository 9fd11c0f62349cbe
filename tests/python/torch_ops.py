# SPDX-License-Identifier: Apache-2.0
"""The operations of hvd.torch, against formulas that each rank can compute.

    hvdrun -np N python3 torch_ops.py       N from 2 to 4
"""

import gc
import itertools
import threading
import unittest

import torch

import hvd.torch as hvd

FLOATS = (torch.float32, torch.float64)
REDUCED = (torch.int32, torch.int64, torch.float16, torch.bfloat16, *FLOATS)
ALL = (*REDUCED, torch.uint8, torch.int8, torch.int16)
SHAPES = ((), (5,), (3, 4), (2, 0, 3))


def setUpModule():
    global rank, size, evens
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    evens = hvd.add_process_set(list(range(0, size, 2)))


def numbers(shape, dtype, seed):
    """Small whole numbers, whose sums every dtype here holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def of_all(shape, dtype, ranks):
    return torch.stack([numbers(shape, dtype, 100 + r) for r in ranks])


def reduced(stack, op):
    """The formula of an op, over the first dimension."""
    wide = stack.double()
    if op == hvd.Sum:
        return wide.sum(0)
    if op == hvd.Average:
        return wide.sum(0) / len(wide)
    if op == hvd.Min:
        return wide.min(0).values
    if op == hvd.Max:
        return wide.max(0).values
    return wide.prod(0)


def expected(shape, dtype, op, ranks):
    result = reduced(of_all(shape, dtype, ranks), op)
    if not dtype.is_floating_point:
        result = result.trunc()
    return result.to(dtype)


class Case(unittest.TestCase):
    def same(self, got, want, tolerance=0.0):
        self.assertEqual(got.dtype, want.dtype)
        self.assertEqual(got.shape, want.shape)
        if got.numel() == 0:
            return
        gap = (got.double() - want.double()).abs().max().item()
        limit = tolerance * max(want.double().abs().max().item(), 1)
        self.assertLessEqual(gap, limit, f"{got} instead of {want}")


class Reductions(Case):
    def sets(self):
        yield hvd.global_process_set, range(size)
        if evens.included():
            yield evens, evens.ranks

    def test_allreduce(self):
        for (pset, ranks), dtype, shape, op in itertools.product(
            self.sets(),
            REDUCED,
            SHAPES,
            (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product),
        ):
            mine = numbers(shape, dtype, 100 + rank)
            want = (
                expected(shape, dtype, op, ranks)
                if mine.numel()
                else torch.empty(shape, dtype=dtype)
            )
            tolerance = 0.01 if dtype in (torch.float16, torch.bfloat16) else 1e-6
            for name in (None, f"x.{dtype}.{shape}.{op}.{len(ranks)}"):
                kwargs = dict(op=op, name=name, process_set=pset)
                before = mine.clone()
                self.same(hvd.allreduce(mine, **kwargs), want, tolerance)
                handle = hvd.allreduce_async(mine, **kwargs)
                self.same(hvd.synchronize(handle), want, tolerance)
                self.assertTrue(torch.equal(mine, before))
                other = mine.clone()
                self.assertIs(hvd.allreduce_(other, **kwargs), other)
                self.same(other, want, tolerance)
                other = mine.clone()
                handle = hvd.allreduce_async_(other, priority=1, **kwargs)
                self.assertIs(hvd.synchronize(handle), other)
                self.same(other, want, tolerance)

    def test_bool(self):
        mine = torch.tensor([rank == 0, True, False])
        got = hvd.allreduce(mine, op=hvd.Max)
        self.assertEqual(got.tolist(), [True, True, False])
        got = hvd.allreduce(mine, op=hvd.Min)
        self.assertEqual(got.tolist(), [False, True, False])
        got = hvd.allgather(mine)
        self.assertEqual(got.dtype, torch.bool)
        self.assertEqual(got.tolist()[:3], [True, True, False])

    def test_scales(self):
        x = torch.full((4,), float(rank + 1))
        got = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        self.same(got, torch.full((4,), 1.5 * size * (size + 1) / 2), 1e-6)

    def test_average_argument(self):
        x = torch.full((2,), float(rank))
        with self.assertWarns(DeprecationWarning):
            got = hvd.allreduce(x, average=False)
        self.same(got, torch.full((2,), float(sum(range(size)))))
        with self.assertRaises(ValueError):
            hvd.allreduce(x, average=True, op=hvd.Sum)

    def test_any_layout(self):
        x = torch.arange(120.0).view(2, 3, 4, 5)
        for mine in (
            x.to(memory_format=torch.channels_last),
            x.permute(3, 1, 0, 2),
            x[:, ::2, :, 1:3],
            x[:1].expand(4, 3, 4, 5),
        ):
            scaled = mine * (rank + 1)
            want = mine.contiguous() * (size + 1) / 2
            got = hvd.allreduce(scaled)
            self.same(got.contiguous(), want, 1e-6)
            if scaled.is_contiguous(memory_format=torch.channels_last):
                self.assertEqual(got.stride(), scaled.stride())
        base = torch.full((4, 6), float(rank))
        hvd.allreduce_(base[:, 1:3], op=hvd.Sum)
        total = float(sum(range(size)))
        self.assertEqual(base[0].tolist(), [rank, total, total, rank, rank, rank])
        hvd.broadcast_(base[:, 4], root_rank=0)
        self.assertEqual(base[0].tolist(), [rank, total, total, rank, 0, rank])

    def test_negated_views(self):
        """A view that negates what is in memory is sent with its values."""
        x = torch.complex(torch.zeros(1), torch.tensor([1.0 + hvd.rank()]))
        view = x.conj().imag
        self.assertTrue(view.is_neg() and view.is_contiguous())
        total = -float(sum(range(1, hvd.size() + 1)))
        self.assertEqual(hvd.allreduce(view, op=hvd.Sum).tolist(), [total])
        self.assertEqual(hvd.broadcast(view, 0).tolist(), [-1.0])
        self.assertEqual(hvd.allgather(view)[0], -1.0)
        hvd.allreduce_(view, op=hvd.Sum)
        self.assertEqual(view.tolist(), [total])

    def test_compression(self):
        x = torch.linspace(0, 1, 1000) + rank
        want = torch.linspace(0, 1, 1000) + (size - 1) / 2
        for compression, tolerance in (
            (hvd.Compression.none, 1e-6),
            (hvd.Compression.fp16, 2e-3),
            (hvd.Compression.bf16, 2e-2),
        ):
            got = hvd.allreduce(x, compression=compression)
            self.same(got, want, tolerance)
            got = hvd.reducescatter(x, compression=compression)
            self.assertEqual(got.dtype, x.dtype)

        class Half(hvd.Compression.fp16):
            calls = 0

            @classmethod
            def compress(cls, tensor):
                Half.calls += 1
                return super().compress(tensor)

        self.same(hvd.allreduce(x, compression=Half), want, 2e-3)
        self.assertEqual(Half.calls, 1)

    def test_grouped(self):
        kinds = (torch.float32, torch.float64, torch.float32, torch.int64)
        for op in (hvd.Average, hvd.Sum):
            mine = [numbers((i + 1, 3), d, 100 + rank) for i, d in enumerate(kinds)]
            want = [
                expected((i + 1, 3), d, op, range(size)) for i, d in enumerate(kinds)
            ]
            for name in (None, f"group.{op}"):
                got = hvd.grouped_allreduce(mine, op=op, name=name)
                handle = hvd.grouped_allreduce_async(mine, op=op, name=name)
                again = hvd.synchronize(handle)
                work = [t.clone() for t in mine]
                hvd.grouped_allreduce_(work, op=op, name=name)
                self.assertIsInstance(got, list)
                for g, a, w, x in zip(got, again, work, want):
                    self.same(g, x, 1e-6)
                    self.same(a, x, 1e-6)
                    self.same(w, x, 1e-6)

    def test_reducescatter(self):
        for rows, dtype, op in itertools.product(
            (0, 1, size, 2 * size + 1), (torch.int64, *FLOATS), (hvd.Average, hvd.Sum)
        ):
            mine = numbers((rows, 3), dtype, 100 + rank)
            whole = of_all((rows, 3), dtype, range(size)).double().sum(0)
            if op == hvd.Average:
                whole = whole / size
            first = sum(self.share(rows, r) for r in range(rank))
            want = whole[first : first + self.share(rows, rank)]
            want = (want if dtype.is_floating_point else want.trunc()).to(dtype)
            self.same(hvd.reducescatter(mine, op=op), want, 1e-6)
            got = hvd.synchronize(hvd.reducescatter_async(mine, name="rs", op=op))
            self.same(got, want, 1e-6)
            for got in hvd.grouped_reducescatter([mine, mine], op=op, name="grs"):
                self.same(got, want, 1e-6)

    @staticmethod
    def share(rows, r):
        return rows // size + (r < rows % size)

    def test_sparse(self):
        index = torch.tensor([[0, rank], [1, 2]])
        mine = torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0]), (size, 3))
        for op in (hvd.Sum, hvd.Average):
            handle = hvd.sparse_allreduce_async(mine, name="sparse", op=op)
            self.assertTrue(callable(handle))
            want = torch.zeros(size, 3)
            for r in range(size):
                want[0, 1] += 1
                want[r, 2] += 2
            if op == hvd.Average:
                want /= size
            self.same(handle().to_dense(), want, 1e-6)


class Moves(Case):
    def test_allgather(self):
        for dtype, name in itertools.product(ALL, (None, "gather")):
            mine = torch.full((rank + 1, 2, 3), rank, dtype=dtype)
            want = torch.cat(
                [torch.full((r + 1, 2, 3), r, dtype=dtype) for r in range(size)]
            )
            self.same(hvd.allgather(mine, name=name), want)
            self.same(hvd.synchronize(hvd.allgather_async(mine, name=name)), want)
            for got in hvd.grouped_allgather([mine, mine], name=name):
                self.same(got, want)
        with self.assertRaises(ValueError):
            hvd.allgather(torch.tensor(1.0))
        got = hvd.allgather(torch.empty(0, 3) if rank else torch.ones(2, 3))
        self.same(got, torch.ones(2, 3))
        self.same(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3))

    def test_gather_in_any_order(self):
        sent = torch.full((rank + 1,), float(rank))
        names = [f"order.{i}" for i in range(8)]
        order = names if rank % 2 else names[::-1]
        handles = {n: hvd.allgather_async(sent, name=n) for n in order}
        for n in names:
            self.assertEqual(len(hvd.synchronize(handles[n])), size * (size + 1) // 2)

    def test_gather_and_barrier(self):
        # Ranks wait before and after the barrier; the gather's place in the
        # order of operations without a name must not depend on that.
        mine = torch.full((rank + 1,), float(rank))
        handle = hvd.allgather_async(mine)
        if rank % 2:
            hvd.barrier()
            got = hvd.synchronize(handle)
        else:
            got = hvd.synchronize(handle)
            hvd.barrier()
        self.assertEqual(len(got), size * (size + 1) // 2)

    def test_broadcast(self):
        for dtype, shape, root in itertools.product(ALL, SHAPES, range(size)):
            mine = numbers(shape, dtype, 100 + rank)
            want = numbers(shape, dtype, 100 + root)
            self.same(hvd.broadcast(mine, root), want)
            other = mine.clone()
            self.assertIs(hvd.broadcast_(other, root, name="b"), other)
            self.same(other, want)
            handle = hvd.broadcast_async(mine, root, name="b")
            self.same(hvd.synchronize(handle), want)
        if evens.included():
            got = hvd.broadcast(
                torch.tensor([rank]), evens.ranks[-1], process_set=evens
            )
            self.assertEqual(got.item(), evens.ranks[-1])

    def test_alltoall(self):
        for dtype in ALL:
            mine = torch.full((size, 2), rank, dtype=dtype)
            got = hvd.alltoall(mine)
            self.assertEqual(got[:, 0].tolist(), list(range(size)))
            splits = torch.arange(1, size + 1, dtype=torch.int32)
            mine = torch.full((int(splits.sum()), 2), rank, dtype=dtype)
            got, received = hvd.alltoall(mine, splits=splits, name="a2a")
            self.assertEqual(received.tolist(), [rank + 1] * size)
            self.assertEqual(received.dtype, torch.int32)
            want = [r for r in range(size) for _ in range(rank + 1)]
            self.assertEqual(got[:, 1].tolist(), want)
        pair = hvd.synchronize(hvd.alltoall_async(torch.ones(size)))
        self.assertEqual(pair[1].tolist(), [1] * size)

    def test_alltoall_errors(self):
        rows = torch.ones(size + 1)
        with self.assertRaises(ValueError):
            hvd.alltoall(rows)
        with self.assertRaises(ValueError):
            hvd.alltoall(rows, splits=torch.full((size,), 2, dtype=torch.int32))
        with self.assertRaises(ValueError):
            hvd.alltoall(rows, splits=torch.ones(size, dtype=torch.int64))
        with self.assertRaises(ValueError):
            hvd.alltoall(rows, splits=[1] * (size + 1))


class Gradients(Case):
    def test_allreduce(self):
        for op in (hvd.Average, hvd.Sum):
            x = torch.ones(3, requires_grad=True)
            y = hvd.allreduce(x, op=op, prescale_factor=2.0, name="grad.allreduce")
            (y * (rank + 1)).sum().backward()
            want = 2.0 * size * (size + 1) / 2 / (size if op == hvd.Average else 1)
            self.same(x.grad, torch.full((3,), want), 1e-6)
        xs = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
        ys = hvd.grouped_allreduce(xs, op=hvd.Sum)
        (ys[0].sum() + 2 * ys[1].sum()).backward()
        self.same(xs[1].grad, torch.full((3,), 2.0 * size))

    def test_allgather(self):
        x = torch.ones(rank + 1, 2, requires_grad=True)
        y = hvd.allgather(x)
        rows = torch.arange(len(y), dtype=torch.float32)
        (y[:, 0] * rows).sum().backward()
        first = rank * (rank + 1) // 2
        want = torch.zeros(rank + 1, 2)
        want[:, 0] = rows[first : first + rank + 1]
        self.same(x.grad, want, 1e-6)
        x = torch.ones(rank + 1, 2, requires_grad=True)
        y, z = hvd.grouped_allgather([x, 2 * x])
        (y.sum() + z.sum()).backward()
        self.same(x.grad, torch.full((rank + 1, 2), 3.0), 1e-6)

    def test_broadcast(self):
        x = torch.ones(2, requires_grad=True)
        (hvd.broadcast(x, 0) * (rank + 1)).sum().backward()
        want = (size + 1) / 2 if rank == 0 else 0.0
        self.same(x.grad, torch.full((2,), want), 1e-6)

    def test_alltoall(self):
        x = torch.ones(size + 2, requires_grad=True)  # two rows stay here
        y, _ = hvd.alltoall(x, splits=[1] * size)
        (y * (rank + 1)).sum().backward()
        want = [float(r + 1) for r in range(size)] + [0.0, 0.0]
        self.assertEqual(x.grad.tolist(), want)

    def test_reducescatter(self):
        for op in (hvd.Average, hvd.Sum):
            x = torch.ones(size, 2, requires_grad=True)
            (hvd.reducescatter(x, op=op) * (rank + 1)).sum().backward()
            factor = size if op == hvd.Sum else 1
            want = torch.arange(1.0, size + 1).view(-1, 1).expand(-1, 2) * factor
            self.same(x.grad, want, 1e-6)
            x = torch.ones(size, 2, requires_grad=True)
            ys = hvd.grouped_reducescatter([x, x], op=op, prescale_factor=3.0)
            sum(y.sum() for y in ys).backward()
            self.same(x.grad, torch.full((size, 2), 6.0 * factor), 1e-6)


class Handles(Case):
    def test_poll_and_synchronize(self):
        handle = hvd.allreduce_async(torch.ones(2), name="poll")
        while not hvd.poll(handle):
            pass
        self.same(hvd.synchronize(handle), torch.ones(2))
        self.assertIsNone(hvd.synchronize(handle))
        self.assertIsNone(hvd.synchronize(12345))
        with self.assertRaises(ValueError):
            hvd.poll(handle)
        with self.assertRaises(ValueError):
            hvd.poll(12345)

    def test_inference_mode(self):
        with torch.inference_mode():
            gaps = torch.ones(4, 4)[:, :2]
            handle = hvd.allreduce_async_(gaps, op=hvd.Sum)
        self.assertIs(hvd.synchronize(handle), gaps)
        self.assertEqual(gaps[0, 0].item(), size)

    def test_duplicate_name(self):
        hvd.barrier()
        if rank == 0:
            first = hvd.allreduce_async(torch.ones(2), name="twice")
            with self.assertRaises(ValueError) as caught:
                hvd.allreduce_async(torch.ones(2), name="twice")
            self.assertIn("twice", str(caught.exception))
        hvd.barrier()
        if rank:
            first = hvd.allreduce_async(torch.ones(2), name="twice")
        self.same(hvd.synchronize(first), torch.ones(2))

    def test_long_names(self):
        names = ["é" * 200 + str(i) for i in range(2)]
        handles = [
            hvd.allreduce_async(torch.ones(1) * i, name=n)
            for i, n in enumerate(names)
        ]
        self.assertEqual([hvd.synchronize(h).item() for h in handles], [0, 1])

    def test_dropped(self):
        for i in range(20000):
            hvd.allreduce_async_(torch.ones(4), name=f"dropped.{i}")
            if i % 100 == 99:
                hvd.barrier()
        gc.collect()
        self.assertEqual(hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), size)

    def test_threads(self):
        failures = []

        def work(which):
            order = range(50) if (which + rank) % 2 else range(49, -1, -1)
            handles = [
                hvd.allreduce_async(torch.full((3,), float(i)), name=f"t.{which}.{i}")
                for i in order
            ]
            for i, handle in zip(order, handles):
                if hvd.synchronize(handle)[0] != i:
                    failures.append((which, i))

        threads = [threading.Thread(target=work, args=(t,)) for t in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Disagreements(Case):
    def fails(self, start):
        with self.assertRaises((ValueError, hvd.HorovodInternalError)) as caught:
            start()
        self.assertEqual(
            hvd.allreduce(torch.ones(1), op=hvd.Sum, name="after").item(), size
        )
        return str(caught.exception)

    def test_count(self):
        self.fails(lambda: hvd.allreduce(torch.ones(rank + 2), name="count"))

    def test_shape(self):
        shape = (2, 3) if rank == 0 else (3, 2)
        self.fails(lambda: hvd.allreduce(torch.ones(shape), name="shape"))
        shape = (2, 3, 4) if rank == 0 else (2, 4, 3)
        self.fails(lambda: hvd.allgather(torch.ones(shape), name="rows"))

    def test_dtype(self):
        dtype = torch.float32 if rank == 0 else torch.float64
        text = self.fails(lambda: hvd.allreduce(torch.ones(3, dtype=dtype), name="d"))
        self.assertIn("float32", text)
        self.assertIn("float64", text)

    def test_op(self):
        op = hvd.Sum if rank == 0 else hvd.Min
        text = self.fails(lambda: hvd.allreduce(torch.ones(3), op=op, name="op"))
        self.assertIn("min", text)

    def test_root(self):
        self.fails(lambda: hvd.broadcast(torch.ones(3), rank, name="root"))

    def test_kind(self):
        def start():
            if rank == 0:
                hvd.allreduce(torch.ones(size))
            else:
                hvd.broadcast(torch.ones(size), 0)

        self.fails(start)


class Joins(Case):
    def test_join(self):
        for early in range(1, size):
            turns = 2
            if rank >= early:
                for i in range(turns):
                    got = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"j.{i}")
                    self.assertEqual(got.tolist(), [size - early] * 3)
                    got = hvd.allreduce(torch.ones(3), name=f"a.{i}")
                    self.same(got, torch.full((3,), (size - early) / size), 1e-6)
                    got = hvd.allgather(torch.full((1,), rank), name=f"g.{i}")
                    self.assertEqual(got.tolist(), list(range(early, size)))
            last = hvd.join()
            self.assertGreaterEqual(last, early)
            self.assertEqual(hvd.allgather_object(last), [last] * size)


if __name__ == "__main__":
    unittest.main(failfast=True)
