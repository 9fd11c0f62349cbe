/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which host each rank of a group (a world or a process set) is on.  Ranks are
 * listed host by host, in local rank order.  Ranks of a host need not be
 * consecutive; hosts may have different numbers of ranks.
 *
 * A lane is one rank of each host, all with the same local rank.  There are as
 * many lanes as the smallest host has ranks; lane l carries the l-th part of a
 * tensor between hosts.
 */
#ifndef HVD_PLANE_MAP_H
#define HVD_PLANE_MAP_H

#include "lib/base/error.h"

#include <stdint.h>

enum { HVD__HOST_BYTES = 64 };

struct hvd__map {
    int size, hosts, lanes;
    uint32_t *host_of; /* [size] */
    uint32_t *ranks;   /* [size], host by host */
    uint32_t *world;   /* [size], ascending: each rank's world rank */
    int *first;        /* [hosts + 1]: index in `ranks` where each host
                          begins */
    char (*names)[HVD__HOST_BYTES]; /* [hosts] */
};

/* Lays out a world: host_of[rank] < hosts.  Returns 0, -HVD_ENOMEM, or
 * -HVD_EPROTO if a host has no rank or more than `local_max`. */
int hvd__map_init(struct hvd__map *m, int size, int hosts,
                  const uint32_t *host_of, int local_max, struct hb_error *err);

/* Lays out the group of n world ranks in `ranks`, ascending.  Takes
 * hosts and names from `world`; hosts without a member are left out.  0
 * or -HVD_ENOMEM. */
int hvd__map_subset(struct hvd__map *m, const struct hvd__map *world,
                    const int *ranks, int n, struct hb_error *err);
void hvd__map_fini(struct hvd__map *m); /* idempotent */

void hvd__map_name(struct hvd__map *m, int host, const char *name);

static inline int hvd__map_local_size(const struct hvd__map *m, int host)
{
    return m->first[host + 1] - m->first[host];
}

static inline uint32_t hvd__map_rank(const struct hvd__map *m, int host,
                                     int local_rank)
{
    return m->ranks[m->first[host] + local_rank];
}

static inline uint32_t hvd__map_world(const struct hvd__map *m, int host,
                                      int local_rank)
{
    return m->world[hvd__map_rank(m, host, local_rank)];
}

/* Returns whether every host has exactly one rank, so that no shared memory is
 * needed. */
static inline int hvd__map_is_flat(const struct hvd__map *m)
{
    return m->size == m->hosts;
}

/* Returns the host name of a world rank, "?" if it is not in the group. */
const char *hvd__map_host_name(const struct hvd__map *m, uint32_t rank);

#endif
