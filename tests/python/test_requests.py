# SPDX-License-Identifier: Apache-2.0
"""Requests: order, errors, threads, callbacks, what is dropped, forked children."""

import gc
import os
import signal
import threading
import time
import unittest
import weakref

import numpy as np

import hvd
from hvd import _hvd


def setUpModule():
    hvd.init()


def tearDownModule():
    hvd.shutdown()


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class Mismatch(unittest.TestCase):
    """Ranks that disagree: an error that names both, and the next operation works."""

    def tearDown(self):
        np.testing.assert_array_equal(
            hvd.allreduce(np.ones(3), hvd.Sum), np.full(3, hvd.size())
        )

    def test_differ(self):
        mine = hvd.rank() == 0
        cases = [
            lambda name: hvd.allreduce(np.ones(3 + mine), name=name),
            lambda name: hvd.allreduce(np.ones(3, "f4" if mine else "f8"), name=name),
            lambda name: hvd.allreduce(np.ones(3), hvd.Sum + mine * 2, name=name),
            lambda name: hvd.broadcast(np.ones(3), int(mine), name=name),
        ]
        for i, case in enumerate(cases):
            with self.subTest(i):
                with self.assertRaises(hvd.HorovodInternalError) as caught:
                    case(f"differ.{i}")
                self.assertEqual(caught.exception.status, 6)
                self.assertRegex(str(caught.exception), "rank 0.*rank 1|rank 1.*rank 0")

    def test_shape(self):
        shape = (2, 3) if hvd.rank() == 0 else (3, 2)
        with self.assertRaisesRegex(hvd.HorovodInternalError, "2.*3"):
            hvd.allreduce(np.ones(shape), name="shape")
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allgather(np.ones((2, 2 + hvd.rank())), name="shape.gather")
        hvd.allgather(np.ones((2 + hvd.rank(), 2)), name="shape.rows")

    def test_layout(self):
        x = np.arange(4.0).reshape(2, 2)
        if hvd.rank() == 0:
            x = np.asfortranarray(x)
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allreduce(x, name="layout")


class Requests(unittest.TestCase):
    def test_wait_again(self):
        x = np.ones(3)
        request = _hvd.allreduce_async(x, x, hvd.Sum, name="again")
        self.assertIs(request.wait(), x)
        self.assertIs(request.wait(), x)
        self.assertIs(request.result(), x)
        self.assertTrue(request.test())
        handle = hvd.allgather_async(x, name="again.gather")
        self.assertIs(handle.wait(), handle.wait())

    def test_duplicate_name(self):
        x = np.ones(3)
        if hvd.rank() == 0:
            first = hvd.allreduce_async(x, hvd.Sum, name="twice")
            with self.assertRaisesRegex(ValueError, "twice"):
                hvd.allreduce_async(x, hvd.Sum, name="twice")
        hvd.barrier()
        if hvd.rank() != 0:
            first = hvd.allreduce_async(x, hvd.Sum, name="twice")
        np.testing.assert_array_equal(first.wait(), np.full(3, hvd.size()))

    def test_timeout(self):
        x = np.ones(3)
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="late")
            with self.assertRaises(TimeoutError):
                handle.wait(timeout=0.05)
            with self.assertRaises(ValueError):
                handle.wait(timeout=-1)
            self.assertFalse(handle.test())
            with self.assertRaisesRegex(ValueError, "not done"):
                handle._request.result()
        hvd.barrier()
        if hvd.rank() != 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="late")
        np.testing.assert_array_equal(handle.wait(timeout=60), np.full(3, hvd.size()))

    def test_order(self):
        """Ranks wait before and after a barrier."""
        x = np.ones((hvd.rank() + 1, 2))
        gather = hvd.allgather_async(x, name="order.gather")
        both = hvd.alltoall_async(np.ones(hvd.size()), name="order.all")
        if hvd.rank() == 0:
            gather.wait()
            both.wait()
            hvd.barrier()
        else:
            hvd.barrier()
            gather.wait()
            both.wait()
        unnamed = hvd.allgather_async(x)
        if hvd.rank() == 0:
            unnamed.wait()
            hvd.barrier()
        else:
            hvd.barrier()
            unnamed.wait()

    def test_any_order(self):
        names = [f"any.{i}" for i in range(50)]
        if hvd.rank() % 2:
            names.reverse()
        requests = {}
        for name in names:
            x = np.full(10, float(name.split(".")[1]))
            requests[name] = _hvd.allreduce_async(x, x, hvd.Average, name=name)
        results = _hvd.wait_all([requests[f"any.{i}"] for i in range(50)])
        for i, x in enumerate(results):
            np.testing.assert_array_equal(x, np.full(10, i))
        with self.assertRaises(TypeError):
            _hvd.wait_all([1])
        self.assertEqual(_hvd.wait_all([]), [])

    def test_dropped(self):
        """Requests that nobody waits for: the arrays live on, and nothing leaks."""
        live = {}

        def drop(n):
            for i in range(n):
                x = np.ones(1000)
                live[i] = weakref.ref(x, lambda _, i=i: live.pop(i))
                _hvd.allreduce_async(x, x, hvd.Sum, name=f"drop.{i % 100}")
                del x
                # So that no more memory is in use at once than 100 arrays.
                while i % 100 == 99 and hvd.allreduce(len(live), hvd.Max):
                    pass

        drop(2000)
        gc.collect()
        before = resident_kib()
        drop(100000)
        gc.collect()
        self.assertLess(resident_kib() - before, 4096)  # 42 bytes each

    def test_dropped_gather(self):
        for i in range(200):
            hvd.allgather_async(np.ones(hvd.rank() + 1), name=f"gone.{i}")
        hvd.barrier()

    def test_threads(self):
        """Two threads issue named operations in orders of their own."""
        failures = []

        def work(which):
            try:
                for i in range(100):
                    k = i if hvd.rank() == 0 else 99 - i
                    x = np.full(16, float(k))
                    request = _hvd.allreduce_async(
                        x, x, hvd.Average, name=f"thread.{which}.{k}"
                    )
                    pending.append((request, k))
            except BaseException as error:  # shown below
                failures.append(error)

        pending = []
        threads = [threading.Thread(target=work, args=(w,)) for w in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for request, k in pending:
            np.testing.assert_array_equal(request.wait(), np.full(16, k))

    def test_one_request_many_threads(self):
        for i in range(20):
            x = np.ones(4)
            if hvd.rank() == 0:
                request = _hvd.allreduce_async(x, x, hvd.Sum, name=f"shared.{i}")
                got = []
                threads = [
                    threading.Thread(target=lambda: got.append(request.wait()))
                    for _ in range(4)
                ]
                for thread in threads:
                    thread.start()
                hvd.barrier()
                for thread in threads:
                    thread.join()
                self.assertEqual(len(got), 4)
            else:
                hvd.barrier()
                _hvd.allreduce_async(x, x, hvd.Sum, name=f"shared.{i}").wait()
            np.testing.assert_array_equal(x, np.full(4, hvd.size()))


class Callbacks(unittest.TestCase):
    def test_called(self):
        called = threading.Event()
        seen = []

        def fn(handle):
            seen.append((handle.wait()[0], threading.current_thread()))
            called.set()

        x = np.ones(3)
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="call")
            handle.add_done_callback(fn)
            self.assertEqual(seen, [])
        hvd.barrier()
        if hvd.rank() != 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="call")
            handle.add_done_callback(fn)
        self.assertTrue(called.wait(60))
        self.assertEqual(seen[0][0], hvd.size())
        if hvd.rank() == 0:
            self.assertIsNot(seen[0][1], threading.main_thread())
        handle.wait()
        handle.add_done_callback(fn)  # at once
        self.assertEqual(len(seen), 2)
        with self.assertRaises(TypeError):
            handle._request.add_done_callback(3)

    def test_restart_in_callback(self):
        """A callback ends hvd, starts it again and has others called."""
        called = threading.Event()

        def again(_):
            hvd.shutdown()
            hvd.init()
            hvd.barrier()
            x = np.ones(2)
            if hvd.rank() == 0:
                handle = hvd.allreduce_async(x, hvd.Sum, name="second")
                handle.add_done_callback(lambda _: called.set())
            hvd.barrier()
            if hvd.rank() != 0:
                hvd.allreduce_async(x, hvd.Sum, name="second").wait()
                called.set()

        x = np.ones(2)
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="first")
            handle.add_done_callback(again)
        hvd.barrier()
        if hvd.rank() != 0:
            hvd.allreduce_async(x, hvd.Sum, name="first").wait()
            again(None)
        self.assertTrue(called.wait(60))
        time.sleep(0.1)  # so that both notifiers of rank 0 wait
        hvd.shutdown()
        hvd.init()

    def test_many(self):
        total = 500
        left = threading.Semaphore(0)
        for i in range(total):
            x = np.ones(8)
            handle = hvd.allreduce_async(x, hvd.Sum, name=f"many.{i}")
            handle.add_done_callback(lambda _: left.release())
        for _ in range(total):
            self.assertTrue(left.acquire(timeout=60))

    def test_group_of_dtypes(self):
        done = threading.Event()
        xs = [np.ones(2, d) for d in ("f4", "f8", "i4")]
        handle = hvd.grouped_allreduce_async(xs, hvd.Sum, name="mixed")
        handle.add_done_callback(lambda _: done.set())
        self.assertTrue(done.wait(60))
        self.assertEqual(handle.wait()[2].tolist(), [hvd.size()] * 2)


class Signals(unittest.TestCase):
    def test_interrupt(self):
        """Ctrl-C ends a wait; the operation goes on."""
        x = np.ones(3)
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="interrupt")
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                handle.wait()
            timer.join()
        hvd.barrier()
        if hvd.rank() != 0:
            handle = hvd.allreduce_async(x, hvd.Sum, name="interrupt")
        np.testing.assert_array_equal(handle.wait(), np.full(3, hvd.size()))


class Fork(unittest.TestCase):
    # The engine's thread may hold a lock of the allocator, which the C library
    # releases in the child, and AddressSanitizer does not.
    @unittest.skipIf(
        "asan" in os.environ.get("LD_PRELOAD", ""), "needs an allocator to fork"
    )
    def test_child(self):
        """A forked child touches nothing, and training goes on."""
        x = np.ones(100)
        handle = hvd.allreduce_async(x, hvd.Sum, name="fork") if hvd.rank() else None
        pid = os.fork()
        if pid == 0:
            os._exit(self.child(handle))
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        handle = handle or hvd.allreduce_async(x, hvd.Sum, name="fork")
        np.testing.assert_array_equal(handle.wait(), np.full(100, hvd.size()))

    def child(self, handle):
        """Return 0 if every use is refused."""
        uses = [hvd.rank, lambda: hvd.allreduce(np.ones(2)), hvd.barrier]
        if handle is not None:
            uses += [handle.wait, handle.test]
        for i, use in enumerate(uses):
            try:
                use()
                return i + 1
            except ValueError as error:
                if "forked child" not in str(error):
                    return 100 + i
        del handle, uses
        gc.collect()
        return 0 if not hvd.is_initialized() else 99


class Life(unittest.TestCase):
    def test_again(self):
        """Start and end many times, with operations in flight at the end."""
        for i in range(50):
            x = np.ones(4)
            np.testing.assert_array_equal(
                hvd.allreduce(x, hvd.Sum), np.full(4, hvd.size())
            )
            if hvd.rank() == 0:
                handle = hvd.allreduce_async(x, hvd.Sum, name="never")
            hvd.barrier()
            hvd.shutdown()
            if i % 2 == 0 and "handle" in locals():
                with self.assertRaises((ValueError, hvd.HorovodInternalError)):
                    handle.wait()
            with self.assertRaisesRegex(ValueError, "has not been initialized"):
                hvd.rank()
            with self.assertRaisesRegex(ValueError, "has not been initialized"):
                hvd.allreduce(x)
            hvd.init()
        hvd.barrier()


if __name__ == "__main__":
    unittest.main(verbosity=0)
