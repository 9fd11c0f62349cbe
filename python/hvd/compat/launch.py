# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several ranks, which hvdrun starts.

The function travels to the ranks by hvdrun's standard input, and their results come
back in lines of their standard output, which begin with a mark that only this job
knows.  Both are inside hvdrun's connections to the hosts, so no port is opened and
nothing is written to a disk.
"""

from __future__ import annotations

import base64
import io
import os
import pickle
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from hvd.compat import find_hvdrun

#: Bytes of a result in one line.
_CHUNK = 3 << 14


class _Pickler(pickle.Pickler):
    """Refuses what is defined in the program: another one runs in the ranks."""

    def reducer_override(self, obj: Any) -> Any:
        if getattr(obj, "__module__", None) == "__main__" and hasattr(
            obj, "__qualname__"
        ):
            raise pickle.PicklingError(
                f"{obj.__qualname__} is defined in the program itself: install "
                "cloudpickle, or move it to a module"
            )
        return NotImplemented


def dumps(obj: Any) -> bytes:
    """Pickles with cloudpickle, which takes any function, or else with pickle."""
    try:
        import cloudpickle
    except ImportError:
        buffer = io.BytesIO()
        _Pickler(buffer).dump(obj)
        return buffer.getvalue()
    return cloudpickle.dumps(obj)


def run_commandline() -> None:
    """Replaces this process by horovodrun with the arguments in ``sys.argv``."""
    os.execv(find_hvdrun(), ["horovodrun", *sys.argv[1:]])


def _options(values: dict[str, Any]) -> list[str]:
    """Returns options of hvdrun, with their values; True stands for none."""
    out = []
    for name, value in values.items():
        if value is True:
            out.append(name)
        elif value is not None and value is not False:
            out.append(f"{name}={value}")
    return out


class _Results:
    """Takes the ranks' results out of their output, and passes the rest on."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.parts: dict[int, list[bytes]] = {}

    def read(self, stream: BinaryIO) -> None:
        """Reads lines until the end of the stream."""
        for line in stream:
            text, mark, rest = line.partition(self.mark)
            if not mark:
                self.show(line)
                continue
            # What the function printed last had no newline.
            if not text.rstrip().endswith(b"<stdout>:"):
                self.show(text + b"\n")
            rank, data = rest.split(b" ", 1)
            self.parts.setdefault(int(rank), []).append(base64.b64decode(data))

    @staticmethod
    def show(line: bytes) -> None:
        """Prints a line of a rank."""
        sys.stdout.write(line.decode(errors="replace"))
        sys.stdout.flush()

    def value(self, rank: int) -> Any:
        """Returns a rank's result."""
        return pickle.loads(b"".join(self.parts[rank]))


def _feed(stream: BinaryIO, data: bytes) -> None:
    """Writes the function for the ranks; they may have ended before they read it."""
    try:
        with stream:
            stream.write(data)
    except BrokenPipeError:
        pass


def _launch(argv: list[str], payload: bytes, results: _Results) -> int:
    """Runs hvdrun; return its exit code."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        feeder = threading.Thread(target=_feed, args=(process.stdin, payload))
        feeder.start()
        try:
            results.read(process.stdout)
        except BaseException:
            process.terminate()
            raise
        finally:
            feeder.join()
    return process.returncode


def run(
    func: Callable,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls a function on several ranks and return what it returned on each.

    Blocks until all ranks have ended.  What the ranks print goes to ``sys.stdout``, with
    hvdrun's tags, while they run.

    Args:
        func: the function; sent to the ranks by cloudpickle if it is installed, else by
            pickle, which takes only functions of modules other than the program itself.
        args, kwargs: its arguments.
        num_proc, np: the number of ranks; np is the old name.
        hosts, hostfile, start_timeout, ssh_port, ssh_identity_file, output_filename,
        mpi_args, network_interfaces, network_interface: as hvdrun's options.
        verbose: whether hvdrun says what it does.
        use_gloo, disable_cache: nothing to choose.
        use_mpi: not supported: mpirun passes standard input to rank 0 only.
        executable: the Python program of the ranks; this one by default.
        min_num_proc, min_np, max_num_proc, max_np, slots, reset_limit, cooldown_range,
        host_discovery_script: not supported: the number of ranks is fixed.

    Returns:
        A list of the function's results, by rank.

    Raises:
        ValueError: an argument is not supported.
        RuntimeError: the job failed; hvdrun's report is on standard error.
        pickle.PicklingError: the function or an argument cannot be sent.
        FileNotFoundError: hvdrun is not installed.
    """
    elastic = [min_num_proc, max_num_proc, slots, reset_limit, cooldown_range]
    elastic += [host_discovery_script, min_np, max_np]
    if any(value is not None for value in elastic):
        raise ValueError(
            "run() has no elastic jobs: give num_proc and no limits, or start the "
            "program by hvdrun --min-np"
        )
    if use_mpi or mpi_args:
        raise ValueError("use_mpi is not supported here; use hvdrun --mpi")
    ranks = num_proc if np is None else np
    mark = b"\x02hvd-result " + secrets.token_hex(16).encode() + b" "
    payload = dumps((mark, dumps((func, args, kwargs or {})), sys.path))
    options = _options(
        {
            "-np": str(ranks),
            "--hosts": hosts,
            "--hostfile": hostfile,
            "--start-timeout": start_timeout,
            "--ssh-port": ssh_port,
            "--ssh-identity-file": ssh_identity_file,
            "--output-filename": output_filename,
            "--network-interfaces": network_interfaces or network_interface,
            "--verbose": bool(verbose),
        }
    )
    task = [executable or sys.executable, "-m", "hvd.compat.task"]
    argv = [find_hvdrun(), *options, "--stdin=all", "--tag-output", *task]
    results = _Results(mark)
    code = _launch(argv, payload, results)
    if code:
        raise RuntimeError(f"hvdrun exited with code {code}; its report says why")
    return [results.value(rank) for rank in range(ranks)]
