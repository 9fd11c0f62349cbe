# SPDX-License-Identifier: Apache-2.0
"""What all of hvd's interfaces share: life, topology, process sets, features.

``hvd``, ``hvd.torch`` and ``hvd.tensorflow`` offer these names as their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

from hvd import _hvd
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt

#: Operations of a reduction, as ``enum hvd_op`` of hvd.h.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

rank = _hvd.rank
size = _hvd.size
local_rank = _hvd.local_rank
local_size = _hvd.local_size
cross_rank = _hvd.cross_rank
cross_size = _hvd.cross_size
local_gpu = _hvd.local_gpu
is_initialized = _hvd.is_initialized
stats = _hvd.stats


# ---- Process sets ---------------------------------------------------------------


class ProcessSet:
    """A subset of the world's ranks, for operations of its members.

    Args:
        ranks_or_comm: world ranks, in any order; or an mpi4py communicator, whose
            members are the ranks of the set.

    A set can be used once it is registered: by ``init(process_sets=...)`` or
    ``add_process_set()``.

    Attributes:
        process_set_id: its number; None while it is not registered.
        ranks: the members' world ranks, ascending; None for a communicator
            that is not registered.  In an elastic job, when the world changes,
            those that are left, by their new numbers.
        mpi_comm: the communicator, or None.
    """

    process_set_id: int | None = None

    def __init__(self, ranks_or_comm: Any) -> None:
        self.ranks: list[int] | None = None
        self.mpi_comm: Any = None
        if hasattr(ranks_or_comm, "Get_size"):
            self.mpi_comm = ranks_or_comm
        elif isinstance(ranks_or_comm, Iterable):
            self.ranks = sorted(int(r) for r in ranks_or_comm)
        else:
            raise ValueError(
                "a ProcessSet is made of ranks or of an mpi4py communicator, not of "
                f"{ranks_or_comm!r}"
            )

    def size(self) -> int | None:
        """Return the number of members; None if the set is not registered."""
        if self.process_set_id is None:
            return None
        return _hvd.process_set_size(self.process_set_id)

    def rank(self) -> int | None:
        """Return this process's place among the members.

        None if the set is not registered; -1 if this process is not a member.
        """
        if self.process_set_id is None:
            return None
        return _hvd.process_set_rank(self.process_set_id) if self.included() else -1

    def included(self) -> bool | None:
        """Tell whether this process is a member; None if not registered."""
        if self.process_set_id is None:
            return None
        return _hvd.rank() in _hvd.process_set_ranks(self.process_set_id)

    def _register(self, number: int) -> None:
        self.process_set_id = number
        self.ranks = _hvd.process_set_ranks(number)
        _registered[number] = self

    def _forget(self) -> None:
        _registered.pop(self.process_set_id, None)
        self.process_set_id = None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


_registered: dict[int | None, ProcessSet] = {}

#: All ranks of the world.
global_process_set = ProcessSet([])
global_process_set.process_set_id = 0

ProcessSets = Union[str, Sequence[ProcessSet], None]


def process_set_id(process_set: ProcessSet | int) -> int:
    """Return the number of a process set.

    Raises:
        ValueError: the set is not registered.
    """
    if isinstance(process_set, int):
        return process_set
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set} is not registered: use init(process_sets=[...]) or "
            "add_process_set()"
        )
    return number


def _members_everywhere(process_set: ProcessSet) -> list[list[int]]:
    """Return the member lists of all ranks' communicators, each list once, sorted.

    After MPI's Split, ranks hold different communicators in the same place, each of
    which becomes a process set.
    """
    import numpy

    comm = process_set.mpi_comm
    # An mpi4py communicator that is MPI_COMM_NULL is false.
    members = sorted(comm.allgather(_hvd.rank())) if comm else []
    process_set.ranks = members or None
    request = _hvd.allgather_async(numpy.array(members, dtype="int64"))
    buffer, counts = request.wait()
    flat = numpy.asarray(buffer).tolist()
    lists = set()
    for count in counts:
        lists.add(tuple(flat[:count]))
        flat = flat[count:]
    return [list(ranks) for ranks in sorted(lists) if ranks]


def _find(ranks: Sequence[int]) -> int | None:
    """Return the number of the set with exactly these members, or None."""
    wanted = sorted(ranks)
    for number in _hvd.process_sets():
        if _hvd.process_set_ranks(number) == wanted:
            return number
    return None


def _add(process_set: ProcessSet, adopt: bool) -> None:
    """Make the set of a ProcessSet; with ``adopt`` an existing one will do."""
    if process_set.mpi_comm is None:
        lists = [process_set.ranks or []]
    else:
        lists = _members_everywhere(process_set)
    for ranks in lists:
        number = _find(ranks) if adopt else None
        if number is None:
            number = _hvd.process_set_add(ranks)
        if ranks == process_set.ranks:
            process_set._register(number)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set.

    Args:
        process_set: a ProcessSet, or the world ranks of one.

    Returns:
        The ProcessSet, now with a number.  In an elastic job, that of a set with the
        same members if there is one: a function that starts over may have made it.

    Raises:
        ValueError: a set with the same members exists in a job that is not elastic,
            or ranks are not valid.

    Order: all ranks, members or not, call it, as one of the world's operations; it
    blocks until they have.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already")
    _add(process_set, adopt=is_elastic())
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; operations in it fail from then on.

    Returns:
        True; False if it was not registered, or is the set of all ranks, and
        nothing was done.

    Order: as add_process_set().
    """
    if not process_set.process_set_id:
        return False
    _hvd.process_set_remove(process_set.process_set_id)
    process_set._forget()
    return True


# ---- Life -------------------------------------------------------------------------


def _check_distinct(process_sets: Sequence[ProcessSet]) -> None:
    seen = []
    for process_set in process_sets:
        if not isinstance(process_set, ProcessSet):
            raise ValueError(f"process_sets: {process_set!r} is not a ProcessSet")
        if process_set.mpi_comm is None and process_set.ranks in seen:
            raise ValueError(f"process_sets: {process_set} is there twice")
        seen.append(process_set.ranks)


def _check_registered(process_sets: Sequence[ProcessSet]) -> None:
    """Refuse sets of communicators that turned out to have the same ranks."""
    seen = {0: global_process_set}
    for process_set in process_sets:
        number = process_set.process_set_id
        if number is None:  # this rank has MPI_COMM_NULL
            continue
        if number in seen:
            raise ValueError(
                f"process_sets: {process_set} and {seen[number]} have the same ranks"
            )
        seen[number] = process_set


def _check_world(comm: Any) -> None:
    """Demand that ``comm``, ranks or a communicator, is the whole world."""
    if comm is None:
        return
    if hasattr(comm, "Get_size"):
        whole = comm.Get_size() == _hvd.size()
    else:
        ranks = sorted(comm)
        whole = not ranks or ranks == list(range(_hvd.size()))
    if not whole:
        raise NotImplementedError(
            "init(comm): hvd's world is all ranks that were started; use a "
            "ProcessSet for some of them"
        )


def init(comm: Any = None, process_sets: ProcessSets = None) -> None:
    """Join the world that hvdrun or an MPI launcher started, or a world of one.

    Args:
        comm: all ranks, as a list or as an mpi4py communicator; None means the same.
        process_sets: ProcessSets to register, the same on all ranks; "dynamic" is
            accepted, as sets can be added at any time.

    If hvd is initialised already, only the process sets that are missing are added.
    A rank that enters an elastic job finds those that the others have registered here,
    with the members that are left; it is in none.

    Raises:
        ValueError: a process set is there twice, or its ranks are not valid.
        NotImplementedError: ``comm`` is not the whole world.
        HorovodInternalError: the world did not come together.

    Order: every rank calls it; it blocks until all have.
    """
    sets: Sequence[ProcessSet] = []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets is a list or "dynamic", not {process_sets}')
    elif process_sets is not None:
        sets = list(process_sets)
    _check_distinct(sets)
    was_up = _hvd.is_initialized()
    _hvd.init()
    _check_world(comm)
    global_process_set.ranks = list(range(_hvd.size()))
    if hasattr(comm, "Get_size"):
        global_process_set.mpi_comm = comm
    found = _hvd.process_sets() if not was_up and _hvd.generation() > 1 else []
    for number, process_set in enumerate(sets, start=1):
        if number in found:
            process_set._register(number)
        elif process_set.process_set_id is None:
            _add(process_set, adopt=True)
    # Only now, since all ranks must take part in adding, and ranks with other
    # communicators need not find anything wrong.
    _check_registered(sets)


def shutdown() -> None:
    """Leave the world; operations in flight fail.

    ``init()`` may be called again, as long as no rank has ended.  Process sets must
    then be registered again.
    """
    _hvd.shutdown()
    _forget_sets()


_worlds = 0


def worlds_left() -> int:
    """Return how many worlds this process has left; a process set lasts for one."""
    return _worlds


def _forget_sets() -> None:
    """Note that the world is left, and its process sets with it."""
    global _worlds
    _worlds += 1
    for process_set in list(_registered.values()):
        process_set._forget()


# ---- Elastic jobs -------------------------------------------------------------------


def is_elastic() -> bool:
    """Tell whether the job goes on after the death of a rank."""
    return _hvd.is_initialized() and _hvd.generation() > 0


def enter_generation() -> None:
    """Note that the world is another one; called in a new generation."""
    there = _hvd.process_sets()
    for number, process_set in list(_registered.items()):
        if number in there:
            process_set._register(number)
        else:
            process_set._forget()
    global_process_set.ranks = list(range(_hvd.size()))


_after_change: list[Callable[[], None]] = []


def after_change(fn: Callable[[], None]) -> None:
    """Have ``fn()`` called after each change of the world in an elastic function."""
    _after_change.append(fn)


def tell_changed() -> None:
    """Call what after_change() was given."""
    for fn in _after_change:
        fn()


class Ordinals:
    """Numbers that make names differ, counted for each process set.

    An elastic function that is called again makes the same objects as in a rank that
    has just started; so it begins to count where it began the first time.
    """

    _all: list[Ordinals] = []

    def __init__(self) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._all.append(self)

    def take(self, process_set: ProcessSet) -> int:
        """Return the next number of a process set."""
        world = process_set.process_set_id == 0
        key = () if world else tuple(process_set.ranks or ())
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        return number

    @classmethod
    def mark(cls) -> list[tuple[Ordinals, dict[tuple[int, ...], int]]]:
        """Return where all of them are."""
        return [(ordinals, dict(ordinals._next)) for ordinals in cls._all]

    @staticmethod
    def go_back(marks: list[tuple[Ordinals, dict[tuple[int, ...], int]]]) -> None:
        """Return to where they were."""
        for ordinals, numbers in marks:
            ordinals._next = dict(numbers)


# ---- Features -----------------------------------------------------------------------


def nccl_built() -> int:
    """Return the version code of NCCL that hvd was built with, or 0."""
    return _feature("nccl_built")


def mpi_built() -> bool:
    """Tell whether hvd was built with MPI."""
    return bool(_feature("mpi_built"))


def mpi_enabled() -> bool:
    """Tell whether MPI started this job."""
    return bool(_feature("mpi_enabled"))


def mpi_threads_supported() -> bool:
    """Tell whether MPI may be called from several threads.

    Raises:
        ValueError: MPI did not start this job.
    """
    _hvd.rank()
    if not mpi_enabled():
        raise ValueError("mpi_threads_supported: MPI did not start this job")
    return bool(_feature("mpi_threads_supported"))


def is_homogeneous() -> bool:
    """Tell whether all hosts have the same number of ranks."""
    _hvd.rank()
    return bool(_feature("is_homogeneous"))


def cuda_built() -> bool:
    """Tell whether tensors may lie in the memory of NVIDIA GPUs."""
    return bool(_feature("cuda_built"))


def gloo_built() -> bool:
    """Return True: hvd works without MPI, which programs ask by this name."""
    return True


def gloo_enabled() -> bool:
    """Return True, as gloo_built()."""
    return True


def ddl_built() -> bool:
    """Return False: IBM's DDL is not used."""
    return False


def ccl_built() -> bool:
    """Return False: Intel's oneCCL is not used."""
    return False


def rocm_built() -> bool:
    """Return False: AMD's ROCm is not used."""
    return False


def _feature(name: str) -> int:
    return _hvd.feature(name)


# ---- Timeline -------------------------------------------------------------------------


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Start a Chrome trace of what hvd does.

    Args:
        file_path: the file, which rank 0 writes; replaced if it exists.
        mark_cycles: mark each operation's start on all lanes.

    Raises:
        ValueError: a timeline is running already.
    """
    if _hvd.rank() == 0:
        _hvd.timeline_start(file_path, 1 if mark_cycles else 0)


def stop_timeline() -> None:
    """End the timeline and close its file."""
    if _hvd.rank() == 0:
        _hvd.timeline_stop()


# ---- Arguments ------------------------------------------------------------------------


def resolve_op(op: int | None, average: bool | None) -> int:
    """Return the operation that ``op``, or the older ``average``, asks for.

    Raises:
        ValueError: both are given, or ``op`` is none of the operations.
    """
    if average is not None:
        if op is not None:
            raise ValueError("give op or average, not both; average is deprecated")
        warnings.warn(
            "average is deprecated; use op=hvd.Average or op=hvd.Sum",
            DeprecationWarning,
            stacklevel=3,
        )
        return Average if average else Sum
    if op is None:
        return Average
    if op not in (Average, Sum, Adasum, Min, Max, Product):
        raise ValueError(f"op: {op!r} is not one of hvd's operations")
    return op


#: The names that every interface offers.
__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_gpu",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stats",
    "stop_timeline",
]
