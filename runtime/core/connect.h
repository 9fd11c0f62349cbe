/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plane a process set gets, and making it: none for a set of one;
 * shared memory for one on one host; shared memory and TCP for one on several
 * hosts of agents; MPI where an MPI launcher started the ranks and they are on
 * several hosts, or asked for it.
 */
#ifndef HVD_CORE_CONNECT_H
#define HVD_CORE_CONNECT_H

#include "runtime/core/set.h"

/* What this host's ranks have; all borrowed. */
struct hvd__host {
    const struct worker_welcome *welcome;
    struct hvd__agent *agent;
    struct segment_head *segment; /* NULL: they share no memory */
    uint64_t arena_bytes;         /* of each */
    uint32_t group;       /* tag of this set's plane, when it is over MPI */
    uint64_t deadline_ns; /* for finding its ranks, then */
};

/* Makes s->plane for n ranks of the world, of which this one is ranks[me];
 * s->hosts are there if they are needed.  0 or negative with err set. */
int hvd__connect(const struct hvd__host *h, struct hvd__set *s,
                 const int *ranks, int n, int me, struct hb_error *err);

#endif
