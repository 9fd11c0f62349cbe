/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world started by an MPI launcher (mpirun, srun) without hvdrun's agent. The
 * plug-in asks MPI who the ranks are.
 *
 * Ranks of one host share memory as they do under an agent; the leader (local
 * rank 0) creates the segment.  No agent reports deaths, so a rank that waits
 * long checks whether the others' processes still exist.
 *
 * HVD_CPU_PLANE chooses the plane of a process set: native (shared memory),
 * mpi, or auto: shared memory where all members are on one host, else MPI.
 */
#ifndef HVD_CORE_MPI_H
#define HVD_CORE_MPI_H

#include "runtime/core/set/provider.h"

/* Worlds, planes between hosts, leaving and closing. */
extern const struct hvd__provider hvd__mpi_provider;

/* Returns whether the plug-in can be loaded.  Any thread. */
int hvd__mpi_is_built(void);

/* Returns whether MPI, which is open, may be called by several threads at
 * once. */
int hvd__mpi_has_threads(void);

/* Returns whether MPI has told the ranks of this world. */
int hvd__mpi_is_open(void);

/* Writes the world ranks in *(MPI_Comm *)comm to ranks ([world size]; none for
 * MPI_COMM_NULL).  Returns how many, or negative with err set. */
int hvd__mpi_comm_ranks(const void *comm, int *ranks, struct hb_error *err);

#endif
