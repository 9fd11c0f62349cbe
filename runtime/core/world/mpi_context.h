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

#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "runtime/core/world/provider.h"
#include "runtime/plugins/mpi_plugin.h"

/* Finds out whether an MPI launcher started this process, as
 * hvd__launcher_read. */
int hvd__mpi_started(struct hb_error *err);

/* Loads the plug-in, initialises MPI and fills in *w as an agent would.  Called
 * after hvd__mpi_started.  Returns 0, or as the plug-in's open, with err set
 * and nothing held.  MPI is finalised when the process exits with status 0. */
int hvd__mpi_open(struct worker_welcome *w, uint64_t deadline_ns,
                  struct hb_error *err);
int hvd__mpi_is_open(void);

/* Planes between hosts, leaving and closing. */
extern const struct hvd__provider hvd__mpi_provider;

/* Agrees on whether all ranks succeeded; all ranks call it, each with its own
 * status rc.  Returns 0 if all are 0; rc if that is negative; else
 * -HVD_ESHUTDOWN with err naming a rank that failed. */
int hvd__mpi_all(int rc, struct hb_error *err);

/* Checks HVD_CPU_PLANE in a world made by an agent: 0, -HVD_EUNSUPPORTED if it
 * asks for MPI, or -HVD_EINVAL. */
int hvd__mpi_refuse(struct hb_error *err);

/* Makes and maps the segment of this host's ranks, which the caller unmaps.
 * *head NULL and 0: these ranks do not share memory.  All ranks call it and
 * reach the same result.  -HVD_EMISMATCH: the ranks of a host differ in
 * arena_bytes. */
struct hvd__mpi_memory {
    uint32_t epoch;
    uint64_t arena_bytes, bytes; /* of one rank's arena; of the whole segment */
};
int hvd__mpi_segment(const struct hvd__mpi_memory *memory,
                     struct segment_head **head, struct hb_error *err);

/* Writes the world ranks in *(MPI_Comm *)comm to ranks ([world size]; none for
 * MPI_COMM_NULL).  Returns how many, or negative with err set. */
int hvd__mpi_comm_ranks(const void *comm, int *ranks, struct hb_error *err);

/* Returns the index, or the name, of a world rank's host. */
int hvd__mpi_host(int rank);
const char *hvd__mpi_host_name(int rank);

/* Returns 0, or negative with err set when a process of this host is gone; for
 * the shared-memory plane. */
int hvd__mpi_lost(void *arg, struct hb_error *err);

#endif
