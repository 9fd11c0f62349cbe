/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the ranks of a group are, a world or a process set: host by host, in
 * local rank order.  Ranks
 * of a host need not be consecutive, hosts need not have equally many.
 *
 * A lane is one rank on each host, those of equal local rank: there are as
 * many lanes as the smallest host has ranks, and over lane l a tensor's l-th
 * part crosses between hosts.
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
    uint32_t *world;   /* [size], ascending: what each is in the world */
    int *first;        /* [hosts + 1]: where a host's ranks begin */
    char (*names)[HVD__HOST_BYTES]; /* [hosts] */
};

/* Lays out a world: host_of[rank] is below hosts.  0, -HVD_ENOMEM, or
 * -HVD_EPROTO when a host has no rank or more than `local_max`. */
int hvd__map_init(struct hvd__map *m, int size, int hosts,
                  const uint32_t *host_of, int local_max, struct hb_error *err);

/* Of n ranks of a world, ascending: host_of[rank] and names are the world's,
 * and hosts without any of them are left out. */
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

/* Hosts that have more than one rank use shared memory. */
static inline int hvd__map_is_flat(const struct hvd__map *m)
{
    return m->size == m->hosts;
}

/* The name of a world rank's host, "?" for what is no rank of the group. */
const char *hvd__map_host_name(const struct hvd__map *m, uint32_t rank);

#endif
