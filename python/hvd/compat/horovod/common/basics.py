# SPDX-License-Identifier: Apache-2.0
"""The functions of :mod:`hvd.common` as methods of a class."""

from __future__ import annotations

from hvd import common

_METHODS = (
    "init shutdown is_initialized start_timeline stop_timeline "
    "size local_size cross_size rank local_rank cross_rank is_homogeneous "
    "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built "
    "nccl_built ddl_built ccl_built cuda_built rocm_built"
).split()


class HorovodBasics:
    """Start, end and topology of the job; one instance is as good as another.

    The arguments, the path and name of a compiled module, are ignored: all frameworks
    share one.
    """

    Average = common.Average
    Sum = common.Sum
    Adasum = common.Adasum
    Min = common.Min
    Max = common.Max
    Product = common.Product

    def __init__(self, pkg_path=None, *args):
        pass


for _name in _METHODS:
    setattr(HorovodBasics, _name, staticmethod(getattr(common, _name)))
del _name
