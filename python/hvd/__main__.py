# SPDX-License-Identifier: Apache-2.0
"""Print what this installation of hvd consists of: ``python -m hvd``."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys

import hvd
from hvd import _hvd


def _program(name: str) -> str:
    """Return where a program of this installation is, or of PATH."""
    package = os.path.dirname(os.path.abspath(hvd.__file__))
    build = os.path.join(os.path.realpath(os.path.join(package, "lib")), "..", "bin")
    for folder in (os.path.dirname(sys.executable), build):
        path = os.path.normpath(os.path.join(folder, name))
        if os.access(path, os.X_OK):
            return path
    return shutil.which(name) or "not found"


def _version(module: str) -> str:
    """Return the version of a package without importing it."""
    from importlib import metadata

    if importlib.util.find_spec(module) is None:
        return "not installed"
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        return "installed"


def main() -> None:
    """Print versions, planes and paths."""
    nccl = hvd.nccl_built()
    lines = [
        ("hvd", hvd.__version__),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("extension", _hvd.__file__),
        ("headers", hvd.get_include()),
        ("hvdrun", _program("hvdrun")),
        ("shared memory", "yes"),
        ("TCP", "yes"),
        ("MPI", "yes" if hvd.mpi_built() else "no"),
        ("NCCL", f"yes ({nccl})" if nccl else "no"),
    ]
    lines += [(m, _version(m)) for m in ("numpy", "torch", "tensorflow", "keras")]
    for what, value in lines:
        print(f"{what:14} {value}")


if __name__ == "__main__":
    main()
