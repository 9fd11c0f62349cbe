/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's one context: what hvd_init sets up and hvd_shutdown takes
 * down.
 *
 * It is a static object and its engine is never freed, so a request that
 * outlives hvd_shutdown can still be waited for.  `alive` points to a page
 * that the kernel wipes in a forked child: there, the library looks as if
 * hvd_init had not been called, at the price of one load.
 */
#ifndef HVD_CORE_CONTEXT_H
#define HVD_CORE_CONTEXT_H

#include "runtime/core/engine.h"

struct hvd__topology {
    int rank, size, local_rank, local_size, cross_rank, cross_size;
};

struct hvd__context {
    _Atomic int *_Atomic alive; /* *alive: between init and shutdown */
    struct hvd__topology topology;
    struct hvd__engine engine;
};

extern struct hvd__context hvd__context;

static inline int hvd__alive(void)
{
    _Atomic int *alive =
        atomic_load_explicit(&hvd__context.alive, memory_order_relaxed);

    /* Acquire: pairs with hvd_init's release, for all of the context. */
    return alive && atomic_load_explicit(alive, memory_order_acquire);
}

#endif
