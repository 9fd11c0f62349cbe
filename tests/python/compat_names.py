# SPDX-License-Identifier: Apache-2.0
"""What `import horovod` gives: the modules of hvd, under Horovod's names.

Run it by hvdrun --horovod=force on 2 ranks.
"""

import importlib
import os
import unittest

import horovod
import hvd.torch
from horovod import torch as torch_by_from
from horovod.common import util
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
)
from horovod.common.process_sets import ProcessSet
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util.threads import in_thread, on_event


class Names(unittest.TestCase):
    def test_versions(self):
        self.assertEqual(horovod.__version__, "0.28.1")
        self.assertRegex(horovod.__provider__, r"^hvd \d+\.\d+")

    def test_modules_are_the_same_objects(self):
        import horovod.torch as by_import

        self.assertIs(by_import, hvd.torch)
        self.assertIs(torch_by_from, hvd.torch)
        self.assertIs(horovod.torch, hvd.torch)
        for name in ("mpi_ops", "compression", "functions", "optimizer", "elastic"):
            theirs = importlib.import_module(f"horovod.torch.{name}")
            self.assertIs(theirs, importlib.import_module(f"hvd.torch.{name}"))
            self.assertEqual(theirs.__spec__.name, f"hvd.torch.{name}")
        from horovod.torch.mpi_ops import synchronize

        self.assertIs(synchronize, hvd.torch.synchronize)
        self.assertIs(HorovodInternalError, hvd.torch.HorovodInternalError)
        self.assertIs(ProcessSet, hvd.torch.ProcessSet)

    def test_what_there_is_not(self):
        for name in ("spark", "ray", "mxnet"):
            with self.assertRaisesRegex(ImportError, f"hvd has no horovod.{name}: "):
                importlib.import_module(f"horovod.{name}")
        with self.assertRaises(ModuleNotFoundError):
            importlib.import_module("horovod.torch.nothing")
        self.assertIsInstance(
            HorovodVersionMismatchError("torch", "1", "2"), ImportError
        )

    def test_basics(self):
        basics = HorovodBasics(__file__, "mpi_lib")
        basics.init()
        self.assertEqual(get_env_rank_and_size(), (basics.rank(), basics.size()))
        self.assertTrue(basics.gloo_built())
        self.assertEqual(HorovodBasics.Average, hvd.torch.Average)


class Util(unittest.TestCase):
    def test_availability(self):
        self.assertTrue(util.extension_available("torch"))
        self.assertFalse(util.extension_available("mxnet"))
        self.assertTrue(util.gloo_built(verbose=True))
        self.assertFalse(util.ddl_built() or util.ccl_built())

    def test_env(self):
        os.environ["A_NAME"] = "old"
        with util.env(A_NAME="new", OTHER_NAME=None):
            self.assertEqual(os.environ["A_NAME"], "new")
        self.assertEqual(os.environ.pop("A_NAME"), "old")

    def test_cache_and_lists(self):
        calls = []
        cached = util._cache(lambda *args, **kwargs: calls.append(args) or len(calls))
        self.assertEqual([cached(1), cached(1), cached(2), cached(1, a=2)], [1, 1, 2, 3])
        self.assertEqual(util.split_list(list(range(7)), 3), [[0, 1, 2], [3, 4], [5, 6]])
        self.assertTrue(util.num_rank_is_power_2(4))
        self.assertFalse(util.num_rank_is_power_2(6) or util.num_rank_is_power_2(0))
        self.assertTrue(util.is_iterable([]) and not util.is_iterable(1))

    def test_versions(self):
        self.assertTrue(util.is_version_greater_equal_than("1.13.0a0", "1.5.0"))
        self.assertTrue(util.is_version_greater_equal_than("2.0", "2.0.0"))
        self.assertFalse(util.is_version_greater_equal_than("1.9.1", "1.10.0"))
        with self.assertRaises(ValueError):
            util.is_version_greater_equal_than("1.9.1", "1.10")

    def test_average(self):
        choose = util.get_average_backwards_compatibility_fun(HorovodBasics)
        self.assertEqual(choose(None, None), HorovodBasics.Average)
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(choose(None, False), HorovodBasics.Sum)
        with self.assertRaises(ValueError):
            choose(HorovodBasics.Sum, True)

    def test_threads(self):
        import threading

        seen, go = [], threading.Event()
        in_thread(seen.append, (1,)).join()
        thread = on_event(go, seen.append, (2,))
        go.set()
        thread.join()
        in_thread(lambda: 1 // 0, silent=True).join()
        self.assertEqual(seen, [1, 2])
        with self.assertRaises(ValueError):
            in_thread(print, "x")


if __name__ == "__main__":
    unittest.main(verbosity=0)
