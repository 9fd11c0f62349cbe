/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhvd-mpi.so: the ranks of a world that an MPI launcher started, and planes
 * between their hosts.  libhvd.so opens it when there is no agent and such a
 * launcher started the program:
 *
 *     const struct hvd__mpi *mpi = hvd__plugin_load(&plugin, err);
 *     mpi->open(&world, deadline_ns, err);
 *     ... mpi->plane(...), planes' ops->free ...
 *     mpi->close();
 */
#ifndef HVD_PLUGINS_MPI_PLUGIN_H
#define HVD_PLUGINS_MPI_PLUGIN_H

#include "runtime/plane/plane.h"
#include "runtime/plugins/plugin.h"

#include <stdint.h>

enum { HVD__MPI_HOST_BYTES = 256 };

/* The ranks as MPI sees them.  Arrays belong to the plug-in, until close. */
struct hvd__mpi_world {
    int rank, size;
    int local_rank, local_size; /* ranks that can share memory */
    int cross_rank, cross_size; /* index of this host, hosts being ordered by
                                   their lowest rank; number of hosts */
    const int *local_ranks;     /* [local_size], ascending */
    const int *host_of;         /* [size] */
    const char (*hosts)[HVD__MPI_HOST_BYTES]; /* [cross_size]: host names */
    const int *pidfds;   /* [local_size]: pidfds of the local ranks; -1: this
                            process, or unavailable */
    int cpus;            /* cores that the local ranks share */
    int has_threads;     /* MPI grants MPI_THREAD_MULTIPLE */
    const char *library; /* "Open MPI v4.1.4": the first line of
                            MPI_Get_library_version */
};

struct hvd__mpi_plane_config {
    const int *ranks; /* [n], world ranks, ascending; copied; this rank is
                         ranks[me] */
    int n, me;
    uint32_t tag; /* unique among all sets, past ones too; the same on all
                     members */
    uint64_t deadline_ns; /* for all members to join */
};

struct hvd__mpi {
    const char *name; /* "mpi" */

    /* Initialises MPI unless the program did, and finds the ranks.  Returns 0,
     * or with err set and nothing held
     *
     * - -HVD_EUNSUPPORTED: MPI is finalised, or its thread level is too low
     * - -HVD_EINVAL: a rank has a bad HVD_MPI_CHUNK or HVD_MPI_BLOCKING
     * - -HVD_ESYSTEM: an MPI call failed; -HVD_ENOMEM
     * - -HVD_EPEER: an MPI call that was begun failed
     * - -HVD_ETIMEOUT: a rank has not joined by deadline_ns (hb_now_ns), or
     *   its MPI calls failed
     *
     * After EPEER, ETIMEOUT or an MPI error, every later open fails the same
     * way.  All ranks must call it in the same order with MPI_Init and
     * MPI_Comm_dup. */
    int (*open)(struct hvd__mpi_world *world, uint64_t deadline_ns,
                struct hb_error *err);

    /* Call after the last plane was freed. open may follow. */
    void (*close)(void);

    /* Finalises MPI if open initialised it, nobody else has finalised it, and
     * no MPI call has failed.  Called from atexit, only if the process exits
     * with status 0 and has told every peer that this rank leaves. */
    void (*finalize)(void);

    /* Gathers len bytes from each world rank, by rank, into all [size * len].
     * Blocks, until the deadline of open or of the last plane at most.  Call
     * between open and close, before the world's engine runs.  0, or negative
     * with err set; then, unless it is -HVD_EINVAL, mine and all must stay
     * valid for ever, as MPI may still use them. */
    int (*allgather)(const void *mine, size_t len, void *all,
                     struct hb_error *err);

    /* Like allgather, but needs no memory: sets *who to the lowest rank that
     * passed `failed`, -1 if none did. */
    int (*agree)(int failed, int *who, struct hb_error *err);

    /* Makes a plane of some world ranks; called by exactly its members.  NULL
     * with err set on failure. */
    struct hvd__plane *(*plane)(const struct hvd__mpi_plane_config *config,
                                struct hb_error *err);

    /* Sets ranks [world size] to the world ranks in *(MPI_Comm *)comm,
     * unordered; none for MPI_COMM_NULL.  Returns how many, or with err set
     * -HVD_EINVAL (a rank is not in the world), -HVD_EUNSUPPORTED (MPI is
     * finalised), -HVD_ENOMEM, -HVD_ESYSTEM (an MPI call failed). */
    int (*comm_ranks)(const void *comm, int *ranks, struct hb_error *err);
};

#endif
