/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world whose processes an MPI launcher started, mpirun or srun, without
 * hvdrun's agent: MPI says who the ranks are, by way of the plug-in.
 *
 * Ranks of one host share memory as under an agent; the lowest of them makes
 * the segment.  Nobody tells of deaths there, so a rank that waits long looks
 * whether the others' processes are still there.
 *
 * Which plane a process set uses is for HVD_CPU_PLANE to say: native (shared
 * memory), mpi, or auto: shared memory where all its members are on one
 * host.
 */
#ifndef HVD_CORE_MPI_H
#define HVD_CORE_MPI_H

#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "runtime/plugins/plugin.h"

/* As hvd__launcher_read. */
int hvd__mpi_started(struct hb_error *err);

/* After hvd__mpi_started: loads the plug-in, begins MPI and fills in what an
 * agent would say.  0, or as the plug-in's open, with err set and nothing held.
 * MPI is finalised when the process exits with status 0. */
int hvd__mpi_open(struct worker_welcome *w, uint64_t deadline_ns,
                  struct hb_error *err);
void hvd__mpi_close(void); /* after the last plane; idempotent */
int hvd__mpi_is_open(void);

/* All ranks call it, rc being what became of each so far: 0 when all could;
 * rc; or -HVD_ESHUTDOWN with err set, naming one that could not. */
int hvd__mpi_all(int rc, struct hb_error *err);

/* HVD_CPU_PLANE in a world that an agent made: 0, or -HVD_EUNSUPPORTED when it
 * asks for MPI; -HVD_EINVAL. */
int hvd__mpi_refuse(struct hb_error *err);

/* The segment of this host's ranks, mapped: *head NULL and 0 when they are to
 * have none.  All ranks call it and agree.  The caller unmaps.  -HVD_EMISMATCH:
 * ranks of a host differ on the bytes of their arenas. */
struct hvd__mpi_memory {
    uint32_t epoch;
    uint64_t arena_bytes, bytes; /* of each rank; of all */
};
int hvd__mpi_segment(const struct hvd__mpi_memory *memory,
                     struct segment_head **head, struct hb_error *err);

/* Whether ranks of the world, n, are to use the native plane. */
int hvd__mpi_native(const int *ranks, int n);

/* A plane over MPI, or NULL with err set. */
struct hvd__plane *hvd__mpi_plane(const struct hvd__mpi_plane_config *config,
                                  struct hb_error *err);

/* The ranks in *(MPI_Comm *)comm, none for MPI_COMM_NULL, into ranks [size of
 * the world]: how many, or negative with err set. */
int hvd__mpi_comm_ranks(const void *comm, int *ranks, struct hb_error *err);

/* A rank of the world: the number of its host, and its name. */
int hvd__mpi_host(int rank);
const char *hvd__mpi_host_name(int rank);

/* For the shared-memory plane: negative when a process of this host is
 * gone. */
int hvd__mpi_lost(void *arg, struct hb_error *err);

/* This rank leaves: the end of its process is no failure from here on. */
void hvd__mpi_leave(void);

#endif
