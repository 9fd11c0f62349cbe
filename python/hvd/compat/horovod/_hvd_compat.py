# SPDX-License-Identifier: Apache-2.0
"""How ``horovod`` becomes hvd, or a real Horovod.

The names in ``ALIASES`` stand for modules of hvd.  Importing ``horovod.torch.mpi_ops``
imports ``hvd.torch.mpi_ops`` and binds the same module object to both names, so that
state, classes and patches made under one name are seen under the other.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ALIASES = {
    "horovod.torch": "hvd.torch",
    "horovod.tensorflow.keras": "hvd.tensorflow.keras",
    "horovod.tensorflow": "hvd.tensorflow",
    "horovod.keras": "hvd.keras",
    "horovod._keras": "hvd.keras",
}

#: Parts of Horovod that hvd does not have, and what to use instead.
ABSENT = {
    "horovod.mxnet": "MXNet is retired",
    "horovod.ray": "start the ranks with hvdrun -H",
    "horovod.spark": "start the ranks with hvdrun -H",
}


def _find_root() -> str:
    """Returns the folder that has the package hvd to which this file belongs."""
    folder = os.path.abspath(__file__)
    for _ in range(4):  # _hvd_compat.py, horovod, compat, hvd
        folder = os.path.dirname(folder)
    return folder


def _need_hvd() -> None:
    """Puts the folder of hvd on the path if only this package is there."""
    if importlib.util.find_spec("hvd") is None:
        sys.path.append(_find_root())


def give_way(package: ModuleType) -> bool:
    """Turns the package into a real Horovod, if there is one and it is not overruled.

    Args:
        package: the module ``horovod`` that is being imported.

    Returns:
        Whether the package is a real Horovod now.
    """
    _need_hvd()
    if os.environ.get("HVD_COMPAT_FORCE") == "1":
        return False
    from hvd.compat import find_other

    spec = find_other()
    if spec is None:
        return False
    package.__spec__ = spec
    package.__file__ = spec.origin
    package.__loader__ = spec.loader
    package.__path__ = spec.submodule_search_locations
    del sys.modules[__name__]
    spec.loader.exec_module(package)
    return True


class _Loader(Loader):
    """Binds a module that exists to a second name."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.target)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put the second name's spec into the module.
        module.__spec__ = self.spec


class _Finder(MetaPathFinder):
    """Finds the modules that ``ALIASES`` names, and those in them."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("horovod."):
            return None
        for name, ours in ALIASES.items():
            if fullname == name or fullname.startswith(name + "."):
                return self._spec(fullname, ours + fullname[len(name) :])
        for name, why in ABSENT.items():
            if fullname == name:
                raise ImportError(f"hvd has no {name}: {why}", name=fullname)
        return None

    def _spec(self, fullname: str, ours: str) -> ModuleSpec | None:
        try:
            spec = importlib.util.find_spec(ours)
        except ModuleNotFoundError as e:
            if e.name and ours.startswith(e.name):
                return None
            raise
        if spec is None:
            return None
        alias = ModuleSpec(fullname, _Loader(ours), origin=spec.origin)
        alias.submodule_search_locations = spec.submodule_search_locations
        return alias


def install() -> None:
    """Makes the names in ``ALIASES`` importable."""
    sys.meta_path.insert(0, _Finder())


def provider() -> str:
    """Returns "hvd" and its version."""
    from hvd import _hvd

    return f"hvd {_hvd.version()}"
