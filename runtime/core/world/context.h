/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's one context: whether the library is initialised, and what
 * hvd_init has found out about this rank and read from the environment.
 *
 * It is a static object.  The kernel wipes `page` in a forked child, so that
 * the library looks uninitialised there; checking that costs one load.
 */
#ifndef HVD_CORE_CONTEXT_H
#define HVD_CORE_CONTEXT_H

#include "runtime/core/world/knobs.h"
#include "runtime/plane/shm/arena.h"
#include "runtime/trace/stall.h"
#include "runtime/trace/stats.h"

#include <stdatomic.h>

struct hvd__topology {
    int rank, size, local_rank, local_size, cross_rank, cross_size;
    int is_homogeneous;  /* all hosts have the same number of ranks */
    int over_mpi;        /* MPI has told who the ranks are */
    int mpi_has_threads; /* and grants MPI_THREAD_MULTIPLE */
};

struct hvd__set;
struct segment_status;

struct hvd__page {
    _Atomic int alive; /* between init and shutdown */
    _Atomic int here;  /* like context.up, but 0 in a forked child */
};

struct hvd__context {
    struct hvd__page *_Atomic page; /* NULL before the first init */
    _Atomic int up; /* hvd_init succeeded, hvd_shutdown has not ended */
    /* The number of the generation in an elastic job, else 0. */
    _Atomic uint32_t generation;
    _Atomic int resized;     /* the generation has ended, or is to end */
    _Atomic int timeline_on; /* a timeline runs (trace/timeline.h) */
    struct hvd__set *sets;   /* [HVD_PROCESS_SETS_MAX] (set/set.h); NULL before
                                the first init, then for ever the same */
    /* Where the stall inspector lists what this rank waits for (trace/stall.h);
     * NULL: there is no inspector. */
    struct segment_status *_Atomic status;
    /* The same if hvdrun wants to know what the rank has counted, else NULL. */
    struct segment_status *_Atomic counted;
    /* A world of MPI: ranks report long waits themselves, after these. */
    int watches_itself;
    struct hvd__stall_limits stall_limits;
    struct hvd__topology topology;
    struct hvd__knobs knobs;
    struct hvd__arena memory;  /* of hvd_alloc, in this rank's segment */
    struct hvd__stats removed; /* of process sets removed since hvd_init */
    /* A provider (set/provider.h) must look at the buffers of every call, as
     * they may be in its memory; and its function that gives back
     * op->device.ready, which stays set. */
    _Atomic int looks_at_buffers;
    void (*_Atomic release)(void *ready);
};

extern struct hvd__context hvd__context;

/* Maps `page`, unless that was done; it is kept until the process ends.
 * Returns 0 or negative with err set. */
int hvd__context_map(struct hb_error *err);

static inline int hvd__alive(void)
{
    struct hvd__page *page =
        atomic_load_explicit(&hvd__context.page, memory_order_relaxed);

    /* Acquire: pairs with hvd_init's release, for all of the context. */
    return page && atomic_load_explicit(&page->alive, memory_order_acquire);
}

/* Returns whether a timeline runs.  Any thread; records around the moment of a
 * change may be lost. */
static inline int hvd__timeline_on(void)
{
    /* Relaxed: hvd__timeline_add checks again under the lock. */
    return atomic_load_explicit(&hvd__context.timeline_on,
                                memory_order_relaxed);
}

/* Returns the rank's status for the functions of trace/stall.h, or NULL if
 * there is no stall inspector. */
static inline struct segment_status *hvd__stall_on(void)
{
    /* Relaxed: set before hvd__alive, which all calls check. */
    return atomic_load_explicit(&hvd__context.status, memory_order_relaxed);
}

/* Returns where to count calls (status_add_call), or NULL. */
static inline struct segment_status *hvd__counted(void)
{
    return atomic_load_explicit(&hvd__context.counted, memory_order_relaxed);
}

/* Returns whether this process is a child forked from an initialised one.  Such
 * a child must take no lock: a thread that the fork did not copy may hold
 * it. */
static inline int hvd__forked(void)
{
    struct hvd__page *page = atomic_load(&hvd__context.page);

    return atomic_load(&hvd__context.up) && !atomic_load(&page->here);
}

#endif
