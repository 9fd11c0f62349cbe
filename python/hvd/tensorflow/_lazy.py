# SPDX-License-Identifier: Apache-2.0
"""Imports TensorFlow, Keras and NumPy when they are first used.

``import hvd.tensorflow`` has to work where TensorFlow is not installed, and has
to be quick where it is.  The modules of this package import `tf` and `np` from
here, and look no attribute up while they are imported themselves.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Callable, Sequence


class LazyModule:
    """Stands for a module that is imported when an attribute is asked for."""

    def __init__(self, name: str, hint: str = "") -> None:
        self._name = name
        self._hint = hint
        self._module: ModuleType | None = None

    def load(self) -> ModuleType:
        """Returns the module, after importing it if that was not done before.

        Raises ImportError, with what to install, if it is not there.
        """
        if self._module is None:
            try:
                self._module = importlib.import_module(self._name)
            except ModuleNotFoundError as err:
                if err.name != self._name:
                    raise
                raise ImportError(
                    f"{self._name} is not installed; {self._hint}", name=self._name
                ) from err
        return self._module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.load(), name)
        self.__dict__[name] = value
        return value


tf = LazyModule("tensorflow", "install it with: pip install tensorflow-cpu")
np = LazyModule("numpy", "install it with: pip install numpy")


def submodule_getter(package: str, names: Sequence[str]) -> Callable[[str], Any]:
    """Returns a __getattr__ for a package that imports these submodules on access.

    The function raises AttributeError for other names, and what the import raises.
    """

    def get(name: str) -> Any:
        if name in names:
            return importlib.import_module("." + name, package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def executing_eagerly() -> bool:
    """Returns whether operations run at once here, and are not put in a graph.

    Without TensorFlow in the process no graph can be open: True.
    """
    if "tensorflow" not in sys.modules:
        return True
    return bool(tf.executing_eagerly())


def in_v1_graph() -> bool:
    """Returns whether operations go into a graph that a session runs."""
    return not tf.compat.v1.executing_eagerly_outside_functions()
