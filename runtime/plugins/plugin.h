/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plug-in: a shared object with planes that need a library of their own,
 * libhvd-mpi.so for MPI.  libhvd.so opens it only when it is asked for or
 * when an MPI started the program; a host without it goes on without.
 *
 * The plug-in exports hvd_plugin:
 *
 *     hvd__plugin_fn *get = (hvd__plugin_fn *)dlsym(so, HVD__PLUGIN_SYMBOL);
 *     const struct hvd__mpi *mpi = get(HVD__PLUGIN_ABI, err);
 *     mpi->open(&world, err);
 *     ... mpi->plane(...), planes' ops->free ...
 *     mpi->close();
 *
 * Both sides are of one build: they share the structs of runtime/plane, and
 * HVD__PLUGIN_ABI holds the version of these.  A plug-in is never unloaded
 * (-z nodelete): MPI cannot be.
 */
#ifndef HVD_PLUGINS_PLUGIN_H
#define HVD_PLUGINS_PLUGIN_H

#include "lib/base/error.h"
#include "runtime/plane/plane.h"

#include <stddef.h>
#include <stdint.h>

#define HVD__PLUGIN_SYMBOL "hvd_plugin"
#define HVD__PLUGIN_ABI "3 " HVD_VERSION

enum { HVD__MPI_HOST_BYTES = 256 };

/* Who the ranks are: what MPI says.  Arrays are the plug-in's, until close. */
struct hvd__mpi_world {
    int rank, size;
    int local_rank, local_size; /* ranks that can share memory */
    int cross_rank, cross_size; /* this host, in the order of the lowest rank
                                   on each, and hosts */
    const int *local_ranks;     /* [local_size], ascending */
    const int *host_of;         /* [size] */
    const char (*hosts)[HVD__MPI_HOST_BYTES]; /* [cross_size]: their names */
    const int *pidfds;   /* [local_size]: of their processes; -1: this one's,
                            or the kernel cannot */
    int cpus;            /* cores that they have between them */
    const char *library; /* "Open MPI v4.1.4": the first line of
                            MPI_Get_library_version */
};

struct hvd__mpi_plane_config {
    const int *ranks; /* n of the world, ascending; copied; this one is
                         ranks[me] */
    int n, me;
    uint32_t tag; /* differs from that of every other set there is or was,
                     the same on all members */
    uint64_t deadline_ns; /* for finding all members here */
};

struct hvd__mpi {
    const char *name; /* "mpi" */

    /* Begins MPI unless the program did, and finds the ranks.  0, or the
     * negative of HVD_EUNSUPPORTED (MPI finalised, or its thread level too
     * low), HVD_EINVAL (the launcher's MPI is another one), HVD_ESYSTEM (an
     * MPI call failed), HVD_ENOMEM, HVD_EPEER (a rank said that it failed),
     * HVD_ETIMEOUT (a rank has not come by deadline_ns, of hb_now_ns), with
     * err set and nothing held; the last two, and errors of MPI, last.  Order:
     * as MPI_Init and MPI_Comm_dup, by all ranks alike. */
    int (*open)(struct hvd__mpi_world *world, uint64_t deadline_ns,
                struct hb_error *err);

    /* After the last plane was freed.  open may come again. */
    void (*close)(void);

    /* The process exits with status 0, and every peer was told that this
     * rank leaves: finalises MPI if open began it, nobody else has, and no
     * MPI call has failed.  libhvd calls it while atexit's functions run. */
    void (*finalize)(void);

    /* Over the world, blocking until open's deadline, between open and close,
     * before the world's engine takes over: len bytes of each rank, by rank,
     * into all [size * len].  0 or negative with err set.  mine and all have
     * to last when it fails other than with HVD_EINVAL: MPI may still use
     * them. */
    int (*allgather)(const void *mine, size_t len, void *all,
                     struct hb_error *err);

    /* The same without memory: *who is the lowest rank that says it has
     * failed, -1 if none does. */
    int (*agree)(int failed, int *who, struct hb_error *err);

    /* A plane of some ranks of the world.  Members call it, and no one
     * else.  NULL with err set. */
    struct hvd__plane *(*plane)(const struct hvd__mpi_plane_config *config,
                                struct hb_error *err);

    /* The ranks of the world that are in *(MPI_Comm *)comm, or none for
     * MPI_COMM_NULL, unordered, into ranks [world size]: how many, or
     * -HVD_EINVAL with err set (one of them is not in the world). */
    int (*comm_ranks)(const void *comm, int *ranks, struct hb_error *err);
};

/* abi: HVD__PLUGIN_ABI of the caller. */
typedef const struct hvd__mpi *hvd__plugin_fn(const char *abi,
                                              struct hb_error *err);

#endif
