/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses and makes the plane of a process set:
 *
 *   one rank                        the self plane
 *   all members on one host         shared memory
 *   several hosts, with agents      shared memory and TCP
 *   an MPI launcher's ranks         MPI, if they are on several hosts or
 *                                   HVD_CPU_PLANE asks for it
 */
#ifndef HVD_CORE_CONNECT_H
#define HVD_CORE_CONNECT_H

#include "runtime/core/set/set.h"

/* What the ranks of this host share; all borrowed. */
struct hvd__host {
    const struct worker_welcome *welcome;
    struct hvd__agent *agent;
    struct segment_head *segment; /* NULL: no shared memory */
    uint64_t arena_bytes;         /* of each rank */
    uint32_t exchange_bytes;      /* hvd__shm_exchange_size */
    uint32_t group;               /* tag of this set, for its plane */
    uint64_t deadline_ns;         /* limit on connecting that plane */
};

/* Makes s->plane for the n world ranks `ranks`; this rank is ranks[me].  If
 * they are on several hosts, s->hosts must be connected.  Returns 0 or negative
 * with err set. */
int hvd__connect(const struct hvd__host *h, struct hvd__set *s,
                 const int *ranks, int n, int me, struct hb_error *err);

#endif
