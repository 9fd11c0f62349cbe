# SPDX-License-Identifier: Apache-2.0
"""Process sets of MPI communicators, under mpirun with an even number of ranks."""

from mpi4py import MPI
import numpy

import hvd

world = MPI.COMM_WORLD
half = world.Split(color=world.rank % 2, key=world.rank)
mine = hvd.ProcessSet(half)
hvd.init(world, process_sets=[mine])
assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
assert mine.ranks == list(range(world.rank % 2, world.size, 2)), mine
assert (mine.rank(), mine.size()) == (half.rank, half.size)

x = numpy.full(3, float(world.rank))
got = hvd.allreduce(x, op=hvd.Sum, process_set=mine)
assert got.tolist() == [float(sum(mine.ranks))] * 3, got

for process_sets in ([mine, hvd.ProcessSet(half.Dup())], [hvd.ProcessSet(world.Dup())]):
    try:
        hvd.init(world, process_sets=process_sets)
        raise AssertionError("sets of the same ranks were accepted")
    except ValueError as error:
        assert "have the same ranks" in str(error), error

hvd.barrier()
print("ok")
