# SPDX-License-Identifier: Apache-2.0
"""The neutral interface: values of all operations against formulas computed here."""

import array
import sys
import unittest

import numpy as np

import hvd

DTYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool"]


def setUpModule():
    hvd.init()


def tearDownModule():
    hvd.shutdown()


def inputs(dtype, shape):
    """Return what each rank contributes: small numbers, exact in every dtype."""
    count = int(np.prod(shape))
    base = np.arange(count).reshape(shape) % 3 + 1
    arrays = [np.asarray(base + r) for r in range(hvd.size())]
    if dtype == "bool":
        return [np.asarray(a % 2 == 1) for a in arrays]
    return [a.astype(dtype) for a in arrays]


def expected(op, arrays):
    wide = np.stack(arrays).astype(object if arrays[0].dtype != bool else bool)
    if arrays[0].dtype == bool:
        whole = {hvd.Sum: np.any, hvd.Max: np.any}.get(op, np.all)
        return whole(wide, axis=0)
    if op == hvd.Average:
        total = np.stack(arrays).astype(np.float64).sum(axis=0) / len(arrays)
        if arrays[0].dtype.kind in "iu":
            total = np.trunc(total)
        return total.astype(arrays[0].dtype)
    function = {
        hvd.Sum: np.sum,
        hvd.Min: np.min,
        hvd.Max: np.max,
        hvd.Product: np.prod,
    }[op]
    return function(np.stack(arrays), axis=0).astype(arrays[0].dtype)


class Allreduce(unittest.TestCase):
    def test_values(self):
        ops = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
        for dtype in DTYPES:
            for op in ops:
                if dtype == "bool" and op == hvd.Average:
                    continue
                for shape in [(), (1,), (17,), (3, 4), (2, 0, 3), (2, 3, 5)]:
                    arrays = inputs(dtype, shape)
                    mine = arrays[hvd.rank()]
                    want = expected(op, arrays)
                    with self.subTest(dtype=dtype, op=op, shape=shape):
                        self.check(mine, op, want)

    def check(self, mine, op, want):
        before = mine.copy()
        got = hvd.allreduce(mine, op)
        np.testing.assert_array_equal(got, want)
        self.assertEqual(got.dtype, mine.dtype)
        np.testing.assert_array_equal(mine, before)
        got = hvd.allreduce(mine, op, name="named")
        np.testing.assert_array_equal(got, want)
        got = hvd.allreduce_async(mine, op, name="async").wait()
        np.testing.assert_array_equal(got, want)
        inplace = mine.copy()
        self.assertIs(hvd.allreduce_(inplace, op), inplace)
        np.testing.assert_array_equal(inplace, want)

    def test_factors(self):
        x = np.full(5, float(hvd.rank() + 1))
        total = sum(range(1, hvd.size() + 1))
        got = hvd.allreduce(x, hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        np.testing.assert_allclose(got, np.full(5, total * 2.0))

    def test_wire(self):
        x = np.full(1000, 1.0 + hvd.rank(), dtype=np.float32)
        for wire in ("float16", "bfloat16"):
            got = hvd.allreduce(x, hvd.Average, wire=wire)
            np.testing.assert_allclose(got, np.full(1000, (hvd.size() + 1) / 2))
        with self.assertRaisesRegex(ValueError, "wire"):
            hvd.allreduce(x, wire="float8")

    def test_numbers(self):
        n = hvd.size()
        self.assertEqual(hvd.allreduce(hvd.rank(), hvd.Sum), n * (n - 1) // 2)
        self.assertAlmostEqual(hvd.allreduce(float(hvd.rank())), (n - 1) / 2)
        self.assertIsInstance(hvd.allreduce(1, hvd.Max), int)

    def test_group(self):
        xs = [np.full(i + 1, hvd.rank() + i, dtype=d) for i, d in enumerate(DTYPES[:7])]
        got = hvd.grouped_allreduce(xs, hvd.Sum, name="group")
        for i, x in enumerate(got):
            want = sum(r + i for r in range(hvd.size()))
            np.testing.assert_array_equal(x, np.full(i + 1, want))
            self.assertEqual(x.dtype, xs[i].dtype)
        with self.assertRaisesRegex(ValueError, "at least one"):
            hvd.grouped_allreduce([])


class Gathers(unittest.TestCase):
    def test_allgather(self):
        for dtype in DTYPES:
            mine = np.full((hvd.rank() + 1, 2), hvd.rank(), dtype=dtype)
            got = hvd.allgather(mine)
            want = np.concatenate(
                [np.full((r + 1, 2), r, dtype=dtype) for r in range(hvd.size())]
            )
            np.testing.assert_array_equal(got, want)
            self.assertEqual(got.dtype, mine.dtype)
        got.fill(1)  # it is the caller's

    def test_nothing_from_some(self):
        mine = np.arange(6.0).reshape(2, 3)[: hvd.rank()]
        got = hvd.allgather(mine, name="some")
        rows = sum(min(r, 2) for r in range(hvd.size()))
        self.assertEqual(got.shape, (rows, 3))
        empty = hvd.allgather(np.empty((0, 4), np.float32))
        self.assertEqual(empty.shape, (0, 4))

    def test_group(self):
        xs = [np.full(hvd.rank() + 1, i, dtype=d) for i, d in enumerate(DTYPES)]
        for i, got in enumerate(hvd.grouped_allgather(xs, name="group")):
            rows = sum(r + 1 for r in range(hvd.size()))
            np.testing.assert_array_equal(got, np.full(rows, i, dtype=DTYPES[i]))

    def test_alltoall(self):
        n = hvd.size()
        mine = np.arange(n * 2).reshape(n, 2) + 100 * hvd.rank()
        got = hvd.alltoall(mine)
        want = [[100 * r + 2 * hvd.rank(), 100 * r + 2 * hvd.rank() + 1] for r in range(n)]
        np.testing.assert_array_equal(got, want)
        splits = [(hvd.rank() + i) % 3 for i in range(n)]
        mine = np.repeat(np.arange(n), splits).astype(np.float32)
        got, received = hvd.alltoall(mine, splits, name="splits")
        self.assertEqual(received, tuple((r + hvd.rank()) % 3 for r in range(n)))
        np.testing.assert_array_equal(got, np.full(sum(received), hvd.rank()))

    def test_bad_splits(self):
        x = np.zeros(4 * hvd.size() + 1)
        for splits, text in [
            ([1] * (hvd.size() + 1), "entries"),
            ([-1] + [1] * (hvd.size() - 1), "negative"),
            ([100] * hvd.size(), "exceeds"),
            (["a"] * hvd.size(), "integer"),
        ]:
            with self.assertRaisesRegex((ValueError, TypeError), text):
                hvd.alltoall(x, splits)
        if hvd.size() > 1:
            with self.assertRaisesRegex(ValueError, "divided"):
                hvd.alltoall(x)
        with self.assertRaisesRegex(ValueError, "no rows"):
            hvd.allgather(np.float32(1))

    def test_reducescatter(self):
        rows = 2 * hvd.size() + 1
        x = np.arange(rows * 3.0).reshape(rows, 3)
        got = hvd.reducescatter(x, hvd.Sum)
        first = 2 * hvd.rank() + min(hvd.rank(), 1)
        count = 2 + (hvd.rank() < 1)
        np.testing.assert_array_equal(got, (x * hvd.size())[first : first + count])
        pair = hvd.grouped_reducescatter([x, x.astype(np.int32)], hvd.Average)
        np.testing.assert_array_equal(pair[0], x[first : first + count])
        np.testing.assert_array_equal(pair[1], x[first : first + count])


class Others(unittest.TestCase):
    def test_broadcast(self):
        for root in range(hvd.size()):
            for dtype in DTYPES:
                x = np.full((2, 3), hvd.rank(), dtype=dtype)
                got = hvd.broadcast(x, root, name="copy")
                np.testing.assert_array_equal(got, np.full((2, 3), root, dtype=dtype))
                self.assertIs(hvd.broadcast_(x, root), x)
                np.testing.assert_array_equal(got, x)

    def test_objects(self):
        obj = {"rank": hvd.rank(), "data": list(range(1000))}
        self.assertEqual(hvd.broadcast_object(obj, hvd.size() - 1)["rank"], hvd.size() - 1)
        got = hvd.allgather_object([hvd.rank()] * hvd.rank())
        self.assertEqual(got, [[r] * r for r in range(hvd.size())])

    def test_objects_that_cannot_be_pickled(self):
        class Stubborn:
            def __reduce__(self):
                raise TypeError("not me")

        last = hvd.size() - 1
        mine = Stubborn() if hvd.rank() == last else 1
        wanted = "not me" if hvd.rank() == last else f"rank {last} .*cannot pickle"
        error = TypeError if hvd.rank() == last else ValueError
        with self.assertRaisesRegex(error, wanted):
            hvd.broadcast_object(mine, last)
        with self.assertRaisesRegex(error, wanted):
            hvd.allgather_object(mine)
        self.assertEqual(hvd.broadcast_object(hvd.rank(), 0), 0)

    def test_barrier_join(self):
        hvd.barrier()
        self.assertIn(hvd.join(), range(hvd.size()))

    def test_process_sets(self):
        if hvd.size() == 1:
            with self.assertRaisesRegex(ValueError, "same ranks"):
                hvd.add_process_set([0])
            return
        even = hvd.add_process_set(range(0, hvd.size(), 2))
        self.assertEqual(even.included(), hvd.rank() % 2 == 0)
        self.assertEqual(even.size(), (hvd.size() + 1) // 2)
        x = np.ones(4)
        if even.included():
            got = hvd.allreduce(x, hvd.Sum, process_set=even)
            np.testing.assert_array_equal(got, np.full(4, even.size()))
        else:
            with self.assertRaisesRegex(ValueError, "not"):
                hvd.allreduce(x, hvd.Sum, process_set=even)
        number = even.process_set_id
        self.assertTrue(hvd.remove_process_set(even))
        with self.assertRaises(ValueError):
            hvd.allreduce(x, process_set=number)
        with self.assertRaisesRegex(ValueError, "not registered"):
            hvd.allreduce(x, process_set=even)

    def test_feature(self):
        self.assertGreaterEqual(hvd.nccl_built(), 0)
        self.assertTrue(hvd.is_homogeneous())
        self.assertFalse(hvd.mpi_enabled())
        with self.assertRaisesRegex(ValueError, "MPI"):
            hvd.mpi_threads_supported()


class Memory(unittest.TestCase):
    """What can be passed as an array."""

    def test_layouts(self):
        x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
        got = hvd.allreduce(x, hvd.Sum)
        np.testing.assert_array_equal(got, x * hvd.size())
        with self.assertRaisesRegex(ValueError, "contiguous"):
            hvd.allgather(x)
        gaps = np.zeros((4, 4))[:, ::2]
        with self.assertRaisesRegex(ValueError, "laid out|gaps"):
            hvd.allreduce_(gaps)
        with self.assertRaisesRegex(ValueError, "laid out|gaps"):
            hvd.allreduce_(np.zeros(4)[::-1])

    def test_read_only(self):
        x = np.ones(3)
        x.flags.writeable = False
        np.testing.assert_array_equal(hvd.allreduce(x, hvd.Sum), np.full(3, hvd.size()))
        with self.assertRaisesRegex(ValueError, "read-only"):
            hvd.allreduce_(x)
        with self.assertRaisesRegex(ValueError, "read-only"):
            hvd.allreduce_(b"abcd", hvd.Sum)

    def test_buffers(self):
        x = array.array("f", [1.0, 2.0])
        got = hvd.allreduce(x, hvd.Sum)
        self.assertEqual(got.tolist(), [hvd.size(), 2.0 * hvd.size()])
        hvd.allreduce_(memoryview(x), hvd.Sum)
        self.assertEqual(list(x), [hvd.size(), 2.0 * hvd.size()])
        view = memoryview(bytearray(8)).cast("B", (2, 4))
        self.assertEqual(hvd.allgather(view).shape, (2 * hvd.size(), 4))
        empty = hvd.allreduce(np.empty((0,), np.int32))
        self.assertEqual(empty.shape, (0,))

    def test_refused(self):
        for bad in ([1.0], "text", None, object()):
            with self.assertRaisesRegex(TypeError, "not a tensor"):
                hvd.allgather(bad)
        for dtype in ("complex64", "uint32", "uint64", ">f8"):
            with self.assertRaisesRegex(ValueError, "no dtype"):
                hvd.allreduce(np.zeros(2, dtype))
        with self.assertRaises(TypeError):
            hvd.allreduce(np.zeros(2), op="sum")
        with self.assertRaises(ValueError):
            hvd.allreduce(np.zeros(2), op=99)
        with self.assertRaises(ValueError):
            hvd.allreduce(np.zeros(2), op=1 << 40)
        with self.assertRaisesRegex(ValueError, "null"):
            hvd.allreduce(np.zeros(2), name="a\0b")
        with self.assertRaises(ValueError):
            hvd.broadcast(np.zeros(2), hvd.size())

    def test_lookups_in_a_lookup(self):
        """The text of a dtype is found by code that looks up other dtypes."""

        class Key:
            inner = ()

            def __str__(self):
                for key in self.inner:
                    look_up(key)
                return "float64"

        class Tensor:
            shape, is_cpu = (), True
            is_contiguous = data_ptr = lambda self: 1

        def look_up(key):
            tensor = Tensor()
            tensor.dtype = key
            hvd._hvd.empty_like(tensor)

        first, later, outer = ([Key() for _ in range(n)] for n in (100, 100, 1))
        outer[0].inner = later
        for key in first + outer:
            look_up(key)
        hvd._hvd.register_dtype(outer[0], 8)  # forgets what was looked up last
        counts = {sys.getrefcount(key) for key in first + later}
        self.assertEqual(len(counts), 1)

    def test_huge_rows(self):
        class Tensor:
            shape, is_cpu, dtype = (0, 1 << 61), True, "uint8"
            is_contiguous = data_ptr = lambda self: 1

        with self.assertRaises(MemoryError):
            hvd._hvd.empty_like(Tensor(), 8)

    def test_overlap(self):
        x = np.zeros(8)
        with self.assertRaisesRegex(ValueError, "overlap"):
            hvd._hvd.allreduce(x[:6], x[2:], hvd.Sum)

    def test_long_name(self):
        for name in ("x" * 1000, "\u00e9" * 400):
            got = hvd.allreduce(np.ones(2), hvd.Sum, name=name)
            np.testing.assert_array_equal(got, np.full(2, hvd.size()))

    def test_dlpack(self):
        class Lender:
            """An array that can be read by DLPack only."""

            def __init__(self, x):
                self.x = x

            def __dlpack__(self, **kwargs):
                return self.x.__dlpack__(**kwargs)

            def __dlpack_device__(self):
                return self.x.__dlpack_device__()

        x = np.arange(6, dtype=np.int32).reshape(2, 3)
        got = hvd.allgather(Lender(x))
        np.testing.assert_array_equal(np.asarray(got), np.concatenate([x] * hvd.size()))
        buffer, rows = hvd._hvd.allgather_async(x).wait()
        self.assertEqual(buffer.shape, (2 * hvd.size(), 3))
        again = np.from_dlpack(buffer)
        del buffer, got
        np.testing.assert_array_equal(again, np.concatenate([x] * hvd.size()))
        self.assertEqual(rows, (2,) * hvd.size())


if __name__ == "__main__":
    unittest.main(verbosity=0)
