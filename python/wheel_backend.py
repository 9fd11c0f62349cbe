# SPDX-License-Identifier: Apache-2.0
"""Build hvd's wheel: a backend for pip (PEP 517) that needs the standard library only.

It runs make, lets ``make install-files`` fill a folder, and packs that: what goes to
PREFIX/bin becomes scripts, the rest of PREFIX the wheel's data, so that an environment
looks like any PREFIX of ``make install``.

By hand: ``python3 python/wheel_backend.py DIR`` writes the wheel into DIR.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return the packages that building needs: none."""
    return []


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """Return the packages that packing the sources needs: none."""
    return []


def _version() -> str:
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as makefile:
        match = re.search(r"^VERSION := (\S+)$", makefile.read(), re.MULTILINE)
    if match is None:
        raise RuntimeError("Makefile: there is no line VERSION := ...")
    return match.group(1)


def _make(*arguments: str) -> None:
    """Run make for this interpreter; its output goes to stderr."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    command = ["make", f"BUILD={BUILD}", f"PYTHON={sys.executable}", *arguments]
    subprocess.run(
        command, cwd=ROOT, env=environment, stdout=sys.stderr.fileno(), check=True
    )


def _files(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield os.path.join(parent, name)


def _tag() -> str:
    """Return the tag of the extension that make builds for this interpreter."""
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    if sys.version_info >= (3, 11) and not free_threaded:
        return f"cp311-abi3-{platform}"
    return f"{version}-{version}{'t' if free_threaded else ''}-{platform}"


def _metadata(version: str) -> str:
    return (
        "Metadata-Version: 2.1\n"
        "Name: hvd\n"
        f"Version: {version}\n"
        "Summary: Collectives for data-parallel training: launcher, library, Python\n"
        "License: Apache-2.0\n"
        "Requires-Python: >=3.10\n"
    )


class _Wheel:
    """A wheel that is being written."""

    def __init__(self, path: str, info: str) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._info = info
        self._record: list[str] = []

    def add(self, name: str, data: bytes, executable: bool = False) -> None:
        entry = zipfile.ZipInfo(name)  # with a fixed date: the same bytes each time
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        self._record.append(
            f"{name},sha256={digest.rstrip(b'=').decode()},{len(data)}"
        )

    def add_file(self, name: str, path: str) -> None:
        with open(path, "rb") as file:
            self.add(name, file.read(), os.access(path, os.X_OK))

    def close(self) -> None:
        record = f"{self._info}/RECORD"
        self._record.append(f"{record},,\n")
        self._zip.writestr(zipfile.ZipInfo(record), "\n".join(self._record))
        self._zip.close()


def _add_installed(wheel: _Wheel, prefix: str, data: str) -> None:
    """Add what make installed in a prefix; the package goes to the wheel's root."""
    package = os.path.join("lib", "hvd", "python")
    for path in _files(prefix):
        name = os.path.relpath(path, prefix)
        if name.startswith(os.path.join("share", "hvd")):
            continue  # examples in C: pip would leave their folder behind
        if name.startswith(package + os.sep):
            wheel.add_file(os.path.relpath(name, package), path)
        elif name == os.path.join("lib", "libhvd.so"):  # a link; wheels have none
            wheel.add(f"{data}/data/{name}", b"INPUT(libhvd.so.0)\n")
        elif name.startswith("bin" + os.sep):
            wheel.add_file(f"{data}/scripts/{os.path.basename(name)}", path)
        else:
            wheel.add_file(f"{data}/data/{name}", path)


def build_wheel(
    wheel_directory: str,
    config_settings: Any = None,
    metadata_directory: str | None = None,
) -> str:
    """Build everything and write the wheel; return its file name."""
    version = _version()
    name = f"hvd-{version}-{_tag()}.whl"
    info = f"hvd-{version}.dist-info"
    _make(f"-j{os.cpu_count() or 1}", "-s", "wheel-parts")
    with tempfile.TemporaryDirectory() as stage:
        # The prefix that programs like pkg-config see is relative to the file.
        _make("-s", f"DESTDIR={stage}", "PREFIX=/prefix", "install-files")
        prefix = os.path.join(stage, "prefix")
        _relative_pc(os.path.join(prefix, "lib", "pkgconfig", "hvd.pc"))
        wheel = _Wheel(os.path.join(wheel_directory, name), info)
        _add_installed(wheel, prefix, f"hvd-{version}.data")
        tag = _tag()
        wheel.add(f"{info}/METADATA", _metadata(version).encode())
        wheel.add(
            f"{info}/WHEEL",
            f"Wheel-Version: 1.0\nGenerator: hvd {version}\n"
            f"Root-Is-Purelib: false\nTag: {tag}\n".encode(),
        )
        wheel.close()
    return name


def _relative_pc(path: str) -> None:
    """Make the paths of a pkg-config file relative to it."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace("=/prefix", "=${pcfiledir}/../.."))


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Pack the files that git knows; return the archive's name."""
    version = _version()
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    path = os.path.join(sdist_directory, f"hvd-{version}.tar.gz")
    info = os.path.join(sdist_directory, "PKG-INFO")
    with open(info, "w", encoding="utf-8") as file:
        file.write(_metadata(version))
    with tarfile.open(path, "w:gz") as archive:
        for name in listed.stdout.decode().split("\0")[:-1]:
            archive.add(os.path.join(ROOT, name), f"hvd-{version}/{name}")
        archive.add(info, f"hvd-{version}/PKG-INFO")
    os.remove(info)
    return os.path.basename(path)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
