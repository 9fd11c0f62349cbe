# SPDX-License-Identifier: Apache-2.0
"""Small helpers that programs and tests import from Horovod.

There is one extension for all frameworks, so what asks for a framework's own extension
asks here whether the framework can be used.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hvd import common


def check_extension(ext_name, ext_env_var, pkg_path, *args) -> None:
    """Does nothing: hvd has no extension that could lack a framework."""


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether hvd serves a framework ("torch", "tensorflow") and it is here."""
    return (
        ext_base_name in ("torch", "tensorflow")
        and importlib.util.find_spec(f"hvd.{ext_base_name}") is not None
        and importlib.util.find_spec(ext_base_name) is not None
    )


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether a framework ("torch", "tensorflow") can use a GPU here."""
    if not extension_available(ext_base_name):
        return False
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow

    return bool(tensorflow.config.list_physical_devices("GPU"))


def mpi_built(verbose: bool = False) -> bool:
    """Returns whether ranks can be started by, and use, MPI."""
    return bool(common.mpi_built())


def gloo_built(verbose: bool = False) -> bool:
    """Returns True: no MPI is needed."""
    return bool(common.gloo_built())


def nccl_built(verbose: bool = False) -> int:
    """Returns NCCL's version code, or 0 without NCCL."""
    return common.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """Returns False."""
    return bool(common.ddl_built())


def ccl_built(verbose: bool = False) -> bool:
    """Returns False."""
    return bool(common.ccl_built())


def _cache(f: Callable) -> Callable:
    """Keeps the results of a function by its arguments, keywords by name and value."""
    results: dict[Any, Any] = {}

    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        key = (args, frozenset(kwargs.items()))
        if key not in results:
            results[key] = f(*args, **kwargs)
        return results[key]

    return wrapper


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets variables of the environment, or remove those that are None, for a while."""
    before = {name: os.environ.get(name) for name in kwargs}

    def put(values):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(kwargs)
    try:
        yield
    finally:
        put(before)


def get_average_backwards_compatibility_fun(reduce_ops) -> Callable:
    """Returns a function that finds the operation for ``op`` and the old ``average``.

    Args:
        reduce_ops: an object with the attributes Average and Sum.

    The function takes (op, average) and returns an operation.  It warns if average is
    not None, and raises ValueError if both are given.
    """

    def choose(op, average):
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError(
                "average and op were both given; give op, average is deprecated"
            )
        warnings.warn("average is deprecated; use op", DeprecationWarning, stacklevel=3)
        return reduce_ops.Average if average else reduce_ops.Sum

    return choose


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether a number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence, n: int) -> list:
    """Splits a list into n parts whose lengths differ by at most one."""
    size, more = divmod(len(items), n)
    ends = [size * i + min(i, more) for i in range(n + 1)]
    return [items[a:b] for a, b in zip(ends, ends[1:])]


def is_iterable(x: Any) -> bool:
    """Returns whether one can iterate over an object."""
    return isinstance(x, Iterable)


def _release(version: str) -> list[int]:
    """Returns the numbers that a version begins with: [1, 13, 0] of "1.13.0a0"."""
    numbers = [int(n) for n in re.match(r"\d+(\.\d+)*", version)[0].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Returns whether a version is at least ``target``, which has the form "1.2.3".

    Raises:
        ValueError: an argument is not a string, or ``target`` has another form.
    """
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError("versions must be strings")
    if not re.fullmatch(r"\d+\.\d+\.\d+", target):
        raise ValueError(f"'{target}': a version such as 1.2.3 is expected")
    return _release(ver) >= _release(target)
