# SPDX-License-Identifier: Apache-2.0
"""Allocations that fail in hvd._hvd: MemoryError, nothing leaks, and no peer hangs.

Needs LD_PRELOAD=fail_alloc.so and PYTHONMALLOC=malloc.  Rank 0 makes a call again and
again; the first time its first allocation fails, then its second, until none is left
that could fail.  In half of the rounds all later allocations of the call fail too.
"""

import ctypes
import gc
import os
import sys
import threading
import unittest

import numpy as np

import hvd
from hvd import _hvd

library = ctypes.PyDLL(None)
library.fail_alloc_call.restype = None
library.fail_alloc_call.argtypes = [
    ctypes.c_long,
    ctypes.c_long,
    ctypes.c_uint,
    ctypes.py_object,
    ctypes.py_object,
    ctypes.POINTER(ctypes.py_object),
]
library.fail_alloc_failed.restype = ctypes.c_long
library.fail_alloc_live.restype = ctypes.c_long

EVER = 1 << 40  # all allocations from the first that fails on
ROUNDS_MAX = 1000  # more than any call has allocations
ALL_THREADS, NOT_LIBHVD = 1, 2  # as in fail_alloc.c
ERRORS = (MemoryError, hvd.HorovodInternalError)
SIZE = int(os.environ.get("HVD_SIZE", "1"))


def setUpModule():
    hvd.init()
    gc.freeze()  # so that gc.collect() is quick


def tearDownModule():
    hvd.shutdown()


class Outcome:
    """How a call ended: with an error or a result, and whether allocations failed."""

    def __init__(self, n, times, fn, args=(), flags=0):
        self.error = self.result = None
        got = ctypes.py_object()
        try:
            library.fail_alloc_call(n, times, flags, fn, args, got)
            self.result = got.value
            ctypes.pythonapi.Py_DecRef(got)  # which it was written with
        except BaseException as error:
            self.error = error.with_traceback(None)
            self.error.__context__ = None
        self.failed = library.fail_alloc_failed() > 0
        assert n < ROUNDS_MAX


class Attributes:
    """What can be read by the attributes of a torch.Tensor only."""

    is_cpu = True

    def __init__(self, x, dtype="float64"):
        self.x = x
        self.dtype = dtype
        self.shape = x.shape
        self.address = x.ctypes.data
        self.strides = tuple(s // x.itemsize for s in x.strides)

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return self.x.flags.c_contiguous

    def stride(self):
        return self.strides


class Lender:
    """What can be read by DLPack only."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **kwargs):
        return self.x.__dlpack__(**kwargs)


def cases(x):
    """Return functions that issue an operation under a name, by what they do.

    ``x`` is a list of arrays, those that are received into at the end.
    """
    send, single, number, recv, recv_single, recv_number, rows = x
    group = [send, single, number], [recv, recv_single, recv_number]
    views = [Attributes(send), Attributes(recv), Attributes(send.T), Attributes(recv.T)]
    second = np.zeros_like(send)
    return {
        "allreduce": lambda name: _hvd.allreduce_async(send, recv, hvd.Sum, name=name),
        "attributes": lambda name: _hvd.allreduce_async(
            views[0], views[1], hvd.Sum, name=name
        ),
        "layout": lambda name: _hvd.allreduce_async(
            views[2], views[3], hvd.Sum, name=name
        ),
        "dlpack": lambda name: _hvd.allgather_async(Lender(send), name=name),
        "broadcast": lambda name: _hvd.broadcast_async(send, recv, 0, name=name),
        "reducescatter": lambda name: _hvd.reducescatter_async(
            send, rows, hvd.Sum, name=name
        ),
        "allgather": lambda name: _hvd.allgather_async(send, name=name),
        "alltoall": lambda name: _hvd.alltoall_async(
            send, [len(send)] + [0] * (hvd.size() - 1), name=name
        ),
        "allreduces": lambda name: _hvd.grouped_allreduce_async(
            [send, send], [recv, second], hvd.Sum, name=name
        ),
        "allgathers": lambda name: _hvd.grouped_allgather_async(
            [send, send], name=name
        ),
        "reducescatters": lambda name: _hvd.grouped_reducescatter_async(
            [send], [rows], hvd.Sum, name=name
        ),
        "barrier": lambda name: _hvd.barrier_async(name=name),
        # Several operations each: a failure may leave some of them behind.
        "dtypes": lambda name: _hvd.grouped_allreduce_async(
            *group, hvd.Sum, name=name
        ),
        "dtypes.gather": lambda name: _hvd.grouped_allgather_async(
            group[0], name=name
        ),
    }


def arrays():
    shape = (4, 2)
    x = [np.ones(shape), np.ones(shape, "f4"), np.ones(shape, "i8")]
    return x + [np.zeros_like(a) for a in x] + [np.zeros((4 // hvd.size(), 2))]


class Sweep(unittest.TestCase):
    """What the cases share."""

    def check_error(self, n, error):
        self.assertIsInstance(error, ERRORS, f"allocation {n}: {error!r}")

    def check_references(self, n, before, after):
        """Check that no array has more; one of an earlier call may just have gone."""
        for was, now in zip(before, after):
            self.assertLessEqual(now, was, f"allocation {n}")

    def settle(self):
        """Have what was dropped freed, for which no call waits."""
        if SIZE == 1 and hvd.is_initialized():
            for _ in range(5):
                hvd.barrier()
        gc.collect()

    def check_leaks(self, n, times, fn, args):
        """Check that a call which fails leaves no memory behind.

        Python keeps some objects to use them again, so it must do so each time.
        """
        calls = 10
        for _ in range(5):
            before = library.fail_alloc_live()
            for _ in range(calls):
                Outcome(n, times, fn, args)
            self.settle()
            leaked = library.fail_alloc_live() - before
            if leaked < calls:
                return
        self.fail(f"allocation {n}: {leaked} blocks left after {calls} calls")

    def sweep(self, fn, args=(), tensors=(), undo=None, usual=()):
        """Call ``fn`` with failing allocations until none fails.

        ``undo`` is called with its result where it succeeds nonetheless; ``usual`` is
        the error that it raises without a failing allocation.
        """
        for times in (1, EVER):
            n, failed = 0, True
            while failed:
                n += 1
                before = [sys.getrefcount(x) for x in tensors]
                outcome = Outcome(n, times, fn, args)
                failed = outcome.failed
                if outcome.error and not isinstance(outcome.error, usual):
                    self.check_error(n, outcome.error)
                if undo and not outcome.error:
                    undo(outcome.result)
                succeeded = not outcome.error
                del outcome
                self.settle()
                after = [sys.getrefcount(x) for x in tensors]
                self.check_references(n, before, after)
                if not succeeded:
                    self.check_leaks(n, times, fn, args)


@unittest.skipIf(SIZE > 1, "for one rank")
class Alone(Sweep):
    """Every operation completes by itself."""

    def test_issue(self):
        x = arrays()
        for case, issue in cases(x).items():
            with self.subTest(case):
                self.sweep(lambda: issue(None), (), x, lambda request: request.wait())

    def test_wait(self):
        for case, issue in cases(arrays()).items():
            with self.subTest(case):
                self.sweep(lambda: issue(None).wait())

    def test_blocking(self):
        x = np.ones(3)
        self.sweep(lambda: _hvd.allreduce(x, x, hvd.Sum), (), [x])
        self.sweep(lambda: _hvd.allreduce(x, x, hvd.Sum, name="x"), (), [x])

    def test_others(self):
        key = type("Key", (), {"__str__": lambda self: "float64"})
        keys = key(), key()
        keyed = Attributes(np.ones(2), keys[0])
        complex_ = Attributes(np.ones(2), "complex64")
        calls = {
            "dtype": lambda: _hvd.empty_like(keyed),
            "register": lambda: _hvd.register_dtype(keys[1], 8),
            "sets": _hvd.process_sets,
            "ranks": lambda: _hvd.process_set_ranks(0),
            "rows": lambda: _hvd.reducescatter_rows(1000, 0),
            "stats": _hvd.stats,
            "version": _hvd.version,
        }
        refused = {
            "feature": lambda: _hvd.feature("unknown"),
            "rank": lambda: _hvd.process_set_rank(77),
            "add": lambda: _hvd.process_set_add([0]),
            "dtype": lambda: _hvd.empty_like(complex_),
            "name": lambda: _hvd.barrier_async(name="a\0b"),
        }
        for case, call in calls.items():
            with self.subTest(case):
                self.sweep(call)
        for case, call in refused.items():
            with self.subTest(case):
                self.sweep(call, usual=ValueError)

    def test_buffer(self):
        buffer = _hvd.empty_like(np.ones((2, 3)))
        self.sweep(lambda: buffer.shape)
        self.sweep(lambda: buffer.data_ptr)
        self.sweep(lambda: memoryview(buffer))
        self.sweep(buffer.__dlpack__)
        self.sweep(buffer.__dlpack_device__)
        self.sweep(lambda: np.from_dlpack(buffer))

    def test_results(self):
        x = np.ones(3)
        request = _hvd.allreduce_async(x, x, hvd.Sum)
        request.wait()
        self.sweep(lambda: _hvd.wait_all([request, request]))
        self.sweep(request.result)
        self.sweep(lambda: request.add_done_callback(lambda request: None))

    def test_life(self):
        """The peers of a rank that fails in init() would wait for it."""
        hvd.shutdown()
        self.sweep(lambda: (_hvd.init(), _hvd.shutdown()))
        self.sweep(lambda: (_hvd.init([[0]]), _hvd.shutdown()), usual=ValueError)
        self.assertFalse(hvd.is_initialized())
        hvd.init()


@unittest.skipIf(SIZE == 1, "for several ranks")
class Peers(Sweep):
    """Rank 0 has no memory outside libhvd; the others follow it."""

    def tearDown(self):
        np.testing.assert_array_equal(
            hvd.allreduce(np.ones(3), hvd.Sum), np.full(3, hvd.size())
        )

    def test_issue(self):
        """A call that fails has issued nothing: nobody need wait for it."""
        for case in cases(arrays()):
            if "dtypes" not in case:
                for times in (1, EVER):
                    with self.subTest(case, times=times):
                        self.issue(case, times)

    def issue(self, case, times):
        x = arrays()
        issue = cases(x)[case]
        n, failed = 0, True
        while failed:
            n += 1
            name = f"{case}.{times}.{n}"
            request = None
            if hvd.rank() == 0:
                before = [sys.getrefcount(a) for a in x]
                outcome = Outcome(n, times, issue, (name,), NOT_LIBHVD)
                request, failed = outcome.result, outcome.failed
                if outcome.error:
                    self.check_error(n, outcome.error)
                    del outcome
                    after = [sys.getrefcount(a) for a in x]
                    self.check_references(n, before, after)
            failed, issued = hvd.broadcast_object((failed, request is not None))
            if issued:
                request = request or issue(name)
                request.wait(timeout=60)

    def test_wait(self):
        """Allocations fail in any thread of rank 0 until the operation is done."""
        for case in cases(arrays()):
            with self.subTest(case):
                self.wait(case)

    def wait(self, case):
        issue = cases(arrays())[case]
        n, failed = 0, True
        while failed:
            n += 1
            request = issue(f"{case}.wait.{n}") if hvd.rank() == 0 else None
            hvd.barrier()
            request = request or issue(f"{case}.wait.{n}")
            if hvd.rank() == 0:
                flags = NOT_LIBHVD | ALL_THREADS
                outcome = Outcome(n, 1, request.wait, (60,), flags)
                failed = outcome.failed
                if outcome.error:
                    self.check_error(n, outcome.error)
            else:
                try:
                    request.wait(60)
                except hvd.HorovodInternalError:
                    pass
            failed = hvd.broadcast_object(failed)

    def test_callback(self):
        """A callback that cannot be called for lack of memory is reported or raised."""
        n, failed = 0, True
        while failed:
            n += 1
            x, called = np.ones(3), threading.Event()
            before = sys.getrefcount(called)
            if hvd.rank() == 0:
                request = _hvd.allreduce_async(x, x, hvd.Sum, name=f"call.{n}")
                fn = lambda _, called=called: called.set()  # noqa: E731
                outcome = Outcome(n, 1, request.add_done_callback, (fn,), NOT_LIBHVD)
                failed = outcome.failed
                if outcome.error:
                    self.assertIsInstance(outcome.error, (*ERRORS, RuntimeError))
            hvd.barrier()
            if hvd.rank() != 0:
                _hvd.allreduce_async(x, x, hvd.Sum, name=f"call.{n}").wait()
            elif not outcome.error:
                self.assertTrue(called.wait(60))
            else:
                request.wait(60)
                del fn
                outcome = request = None
                self.assertEqual(sys.getrefcount(called), before)
            failed = hvd.broadcast_object(failed)

    def test_callback_leaks(self):
        for n in (1, 2):
            with self.subTest(n):
                leaked = []
                for _ in range(6):
                    before = library.fail_alloc_live()
                    for i in range(20):
                        self.refuse_callback(n, f"leak.{i}")
                    self.settle()
                    leaked.append(library.fail_alloc_live() - before)
                # Names, threads and tables may be new in one round, but what
                # leaks does so in each.
                self.assertLess(min(leaked), 20)

    def refuse_callback(self, n, name):
        """Let allocation ``n`` of add_done_callback() fail on rank 0."""
        x = np.ones(3)
        if hvd.rank() == 0:
            request = _hvd.allreduce_async(x, x, hvd.Sum, name=name)
            Outcome(n, 1, request.add_done_callback, (id,), NOT_LIBHVD)
        hvd.barrier()
        if hvd.rank() != 0:
            request = _hvd.allreduce_async(x, x, hvd.Sum, name=name)
        request.wait()


if __name__ == "__main__":
    unittest.main(verbosity=0)
