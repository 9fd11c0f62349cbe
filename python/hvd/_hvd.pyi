# SPDX-License-Identifier: Apache-2.0
"""The functions of libhvd for Python; see hvd.h for what each operation does.

A tensor is a torch.Tensor or looks like one (``data_ptr()``, ``is_contiguous()``,
``is_cpu``, ``dtype``, ``shape``, ``stride()``), or has the buffer protocol, or DLPack.
``send`` and ``recv`` may be the same object; elsewise they must not overlap.
Reductions and broadcast take any layout without gaps if both have it; the rest needs
row-major tensors.

Asynchronous functions queue an operation and return; the Request holds the tensors
until it is done, also if it is dropped.  ``name``: of any length (longer than 255 bytes
are cut, and a hash added); None: matched by order.  ``process_set``: a number, 0 for
the world.  ``priority``: the highest first.  ``stream``: a CUDA stream, 0 for the
default stream; None: the host waits.

Errors: TypeError and ValueError for arguments, process sets and names;
hvd.HorovodInternalError for all else, with libhvd's text and number.  Threads: any.
"""

from collections.abc import Callable, Sequence
from typing import Any

Tensor = Any

class Request:
    """An operation that was issued."""

    def test(self) -> bool:
        """Tell whether it is done, without blocking."""

    def wait(self, timeout: float | None = None) -> Any:
        """Wait without the GIL, and return the result; again, the same one.

        Signals are handled every 100 ms.  TimeoutError after ``timeout`` seconds.
        """

    def result(self) -> Any:
        """Return the result; ValueError if it is not done."""

    def add_done_callback(self, fn: Callable[[Request], object], /) -> None:
        """Have ``fn(request)`` called when it is done, on a thread of hvd; at once if
        it is done already."""

class Buffer:
    """A row-major array in memory of the host that C owns: buffer protocol, DLPack."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> int:
        """The number of the dtype, as in ``enum hvd_dtype``."""
    @property
    def data_ptr(self) -> int: ...
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int) -> memoryview: ...

def init(sets: Sequence[Sequence[int]] | None = None) -> None:
    """Join the world; with ``sets``, make process sets 1, 2, ... of these ranks."""

def shutdown() -> None:
    """Leave the world; what is in flight fails.  Called at exit too."""

def is_initialized() -> bool: ...
def version() -> str: ...
def feature(name: str, /) -> int:
    """Return the value of a feature, see hvd_feature(3)."""

def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def local_gpu() -> int | None: ...
def allreduce(
    send: Tensor,
    recv: Tensor,
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    wire: int = 0,
    live_average: int = 0,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Tensor:
    """Reduce ``send`` of all ranks into ``recv``, and return that.

    ``wire``: 0 full, 1 float16, 2 bfloat16.
    """

def allreduce_async(
    send: Tensor,
    recv: Tensor,
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    wire: int = 0,
    live_average: int = 0,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: ``recv``."""

def grouped_allreduce_async(
    sends: Sequence[Tensor],
    recvs: Sequence[Tensor],
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    wire: int = 0,
    live_average: int = 0,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: the list of ``recvs``.  One operation per dtype, one Request."""

def broadcast_async(
    send: Tensor | None,
    recv: Tensor,
    root: int,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: ``recv``.  ``send`` matters on root, a world rank; None: ``recv``."""

def allgather_async(
    send: Tensor,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: (Buffer, rows of each rank).  Ranks may differ in the first dimension."""

def grouped_allgather_async(
    sends: Sequence[Tensor],
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: a list of (Buffer, rows of each rank)."""

def alltoall_async(
    send: Tensor,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: (Buffer, rows from each rank).  ``splits``: rows for each rank."""

def reducescatter_async(
    send: Tensor,
    recv: Tensor,
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: ``recv``, of reducescatter_rows() rows."""

def grouped_reducescatter_async(
    sends: Sequence[Tensor],
    recvs: Sequence[Tensor],
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: the list of ``recvs``."""

def reducescatter_rows(rows: int, process_set: int = 0) -> int: ...
def join_async(process_set: int = 0) -> Request:
    """Result: the world rank that joined last."""

def barrier_async(
    name: str | None = None,
    process_set: int = 0,
    priority: int = 0,
    stream: int | None = None,
) -> Request:
    """Result: None."""

def wait_all(requests: Sequence[Request], timeout: float | None = None) -> list[Any]:
    """Wait for all, and return their results; raise the first failure."""

def empty_like(x: Tensor, rows: int = -1) -> Buffer:
    """Return memory for a tensor of the same dtype and shape, or of ``rows`` rows."""

def register_dtype(key: object, dtype: int) -> None:
    """Have tensors whose ``dtype`` attribute is ``key`` taken for that of hvd.h."""

def process_set_add(ranks: Sequence[int], /) -> int: ...
def process_set_add_members(ranks: Sequence[int], tag: str) -> int: ...
def process_set_add_mpi(comm_address: int, /) -> int: ...
def process_set_remove(id: int, /) -> None: ...
def process_set_rank(id: int, /) -> int: ...
def process_set_size(id: int, /) -> int: ...
def process_set_ranks(id: int, /) -> list[int]: ...
def process_sets() -> list[int]: ...
def sync(on_change: Callable[[], object] | None = None) -> None:
    """Join the next generation of an elastic job if the present one has ended.

    ``on_change`` is called without arguments in each new generation, before this
    rank compares itself with the others; it may make process sets.  An exception in
    it is raised.  All ranks of the world call it; blocks, without the GIL, until they
    have.  In other jobs it is a barrier.
    """

def commit() -> bool:
    """Tell whether ranks wait to join the world, or are to leave: if so, all call sync().

    True on all ranks or on none, unless a rank dies.  An operation of the world
    without a name; outside of elastic jobs it does nothing and returns False.
    """

def generation() -> int:
    """Return the number of the generation: from 1 in an elastic job, else 0."""

def change() -> dict[str, Any]:
    """Tell what the last init() or sync() has changed, see hvd_change(3).

    The keys are the members of ``struct hvd_change`` without ``source``.
    """

def notice() -> int:
    """Return the milliseconds until this rank has to have left, see hvd_notice(3).

    -1: it is not asked to leave; 2**63 - 1: at its next commit, without a limit.
    """

def timeline_start(path: str, flags: int = 0) -> None: ...
def timeline_stop() -> None: ...
def stats() -> dict[str, Any]:
    """Return the counters of hvd_stats(3), those of a kind summed over sizes."""
