# SPDX-License-Identifier: Apache-2.0
"""Lets scripts that ``import horovod`` run on hvd without a change.

The folder of this package holds a package ``horovod``, whose modules are those of
:mod:`hvd`.  The folder is not on Python's path by itself:

- ``hvdrun --horovod`` (and hvdrun under the name ``horovodrun``) adds it for the ranks
  of one job.
- ``python -m hvd.compat enable`` adds it for one Python environment, and ``disable``
  removes it again.

If Python finds another package ``horovod``, that one is imported, except under
``hvdrun --horovod=force``.
"""

from __future__ import annotations

import os
import shutil
import site
import sys
import sysconfig
from importlib.machinery import ModuleSpec, PathFinder

__all__ = ["FOLDER", "disable", "enable", "find_hvdrun", "find_other", "status"]

#: The folder that is put on Python's path.
FOLDER = os.path.dirname(os.path.abspath(__file__))

_PTH = "hvd-horovod.pth"


def _ours(folder: str) -> bool:
    """Returns whether a folder is one that a package like this one is in."""
    return os.path.isfile(os.path.join(folder, "horovod", "_hvd_compat.py"))


def find_other() -> ModuleSpec | None:
    """Finds a package ``horovod`` that is not ours.

    Folders on ``sys.path`` and the finders of editable installations are searched.  A
    folder without an ``__init__.py``, such as a checkout of Horovod's sources, is no
    package.

    Returns:
        The package's spec, or None if there is none.
    """
    path = [entry for entry in sys.path if not _ours(entry or os.getcwd())]
    for finder in sys.meta_path:
        if finder is PathFinder:
            spec = PathFinder.find_spec("horovod", path)
        elif hasattr(finder, "find_spec"):
            spec = finder.find_spec("horovod", None)
        else:
            continue
        if spec is not None and spec.origin and spec.loader is not None:
            if not _ours(os.path.dirname(os.path.dirname(spec.origin))):
                return spec
    return None


def find_hvdrun() -> str:
    """Finds the program hvdrun that belongs to this package.

    It is looked for where ``make python``, ``make install`` and pip put it, relative to
    this file, then in the folder of the running Python's programs, then in ``PATH``.

    Returns:
        An absolute path.

    Raises:
        FileNotFoundError: there is no hvdrun in these places.
    """
    root = os.path.dirname(os.path.dirname(FOLDER))
    folders = [
        os.path.join(root, "..", "bin"),
        os.path.join(root, "..", "..", "..", "bin"),
        sysconfig.get_path("scripts"),
        os.path.dirname(sys.executable),
    ]
    for folder in folders:
        program = os.path.realpath(os.path.join(folder, "hvdrun"))
        if os.access(program, os.X_OK):
            return program
    found = shutil.which("hvdrun")
    if found is None:
        raise FileNotFoundError(
            "hvdrun is neither beside the package hvd nor in PATH; install both with pip"
        )
    return os.path.abspath(found)


def _pth_folders() -> list[str]:
    """Returns the folders for .pth files, the environment's own first."""
    folders = [sysconfig.get_path("purelib")]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return folders


def _pth_files() -> list[str]:
    files = [os.path.join(folder, _PTH) for folder in _pth_folders()]
    return [name for name in files if os.path.exists(name)]


def enable() -> str:
    """Makes ``import horovod`` work in this Python environment.

    Writes a .pth file into the environment's site-packages, or, if that cannot be
    written, into the user's.  The folder comes last on the path, so that a real Horovod
    is preferred.

    Returns:
        The path of the file.

    Raises:
        OSError: no such folder can be written.
    """
    error: OSError | None = None
    for folder in _pth_folders():
        name = os.path.join(folder, _PTH)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(name, "w", encoding="utf-8") as file:
                file.write(FOLDER + "\n")
            return name
        except OSError as e:
            error = error or e
    assert error is not None
    raise error


def disable() -> list[str]:
    """Undoes :func:`enable`.

    Returns:
        The paths of the files that were removed; empty if there were none.

    Raises:
        OSError: a file cannot be removed.
    """
    files = _pth_files()
    for name in files:
        os.unlink(name)
    return files


def status() -> str:
    """Returns a few lines that say what ``import horovod`` would import, and why."""
    files = _pth_files()
    lines = [f"enabled by {name}" for name in files] or ["not enabled"]
    other = find_other()
    ours = any(_ours(entry) for entry in sys.path)
    forced = os.environ.get("HVD_COMPAT_FORCE") == "1"
    if other is not None and not (ours and forced):
        lines.append(f"import horovod: {other.origin}")
    elif ours:
        lines.append(f"import horovod: hvd, through {FOLDER}")
    else:
        lines.append("import horovod: no such module here")
    return "\n".join(lines)
