/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's one context: what hvd_init sets up and hvd_shutdown takes
 * down.
 *
 * It is a static object.  `page` is one that the
 * kernel wipes in a forked child: there, the library looks as if hvd_init
 * had not been called, at the price of one load.
 */
#ifndef HVD_CORE_CONTEXT_H
#define HVD_CORE_CONTEXT_H

#include "runtime/core/knobs.h"
#include "runtime/core/set.h"

struct hvd__topology {
    int rank, size, local_rank, local_size, cross_rank, cross_size;
};

struct hvd__page {
    _Atomic int alive; /* between init and shutdown */
    _Atomic int here;  /* as context.up, in the process that called init */
};

struct hvd__context {
    struct hvd__page *_Atomic page; /* NULL before the first init */
    _Atomic int up; /* hvd_init succeeded, hvd_shutdown has not ended */
    struct hvd__topology topology;
    struct hvd__knobs knobs;
};

extern struct hvd__context hvd__context;

/* Makes s->plane (and s->hosts) for ranks of the world, of which this one
 * is ranks[me]; me -1: takes part as a rank that is none of them.  All ranks
 * of the world call it; 0 or negative with err set. */
int hvd__set_connect(struct hvd__set *s, const int *ranks, int n, int me,
                     struct hb_error *err);

/* This process exits: peers learn that it leaves, unless it has already. */
void hvd__leave(void);

static inline int hvd__alive(void)
{
    struct hvd__page *page =
        atomic_load_explicit(&hvd__context.page, memory_order_relaxed);

    /* Acquire: pairs with hvd_init's release, for all of the context. */
    return page && atomic_load_explicit(&page->alive, memory_order_acquire);
}

/* Whether this is a child that an initialised process forked: it must take
 * no lock, as a thread that is not here may hold it. */
static inline int hvd__forked(void)
{
    struct hvd__page *page = atomic_load(&hvd__context.page);

    return atomic_load(&hvd__context.up) && !atomic_load(&page->here);
}

#endif
