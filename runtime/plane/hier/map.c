/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a world are; see map.h. */
#include "runtime/plane/hier/map.h"

#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

static int make_room(struct hvd__map *m)
{
    size_t size = (size_t)m->size, hosts = (size_t)m->hosts;

    m->host_of = hb_calloc(size, sizeof(*m->host_of));
    m->ranks = hb_calloc(size, sizeof(*m->ranks));
    m->first = hb_calloc(hosts + 1, sizeof(*m->first));
    m->names = hb_calloc(hosts, sizeof(*m->names));
    m->world = hb_calloc(size, sizeof(*m->world));
    return m->host_of && m->ranks && m->first && m->names && m->world
               ? 0
               : -HVD_ENOMEM;
}

int hvd__map_init(struct hvd__map *m, int size, int hosts,
                  const uint32_t *host_of, int local_max, struct hb_error *err)
{
    int at = 0;

    memset(m, 0, sizeof(*m));
    m->size = size;
    m->hosts = hosts;
    m->lanes = local_max;
    if (make_room(m) < 0) {
        hvd__map_fini(m);
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", size);
    }
    memcpy(m->host_of, host_of, (size_t)size * sizeof(*host_of));
    for (int r = 0; r < size; r++)
        m->world[r] = (uint32_t)r;
    for (int h = 0; h < hosts; h++) {
        int n;

        m->first[h] = at;
        for (int r = 0; r < size; r++)
            if (host_of[r] == (uint32_t)h)
                m->ranks[at++] = (uint32_t)r;
        n = at - m->first[h];
        if (n == 0 || n > local_max) {
            hvd__map_fini(m);
            return hb_error_set(err, HVD_EPROTO,
                                "host %d of %d has %d ranks, not 1 to %d", h,
                                hosts, n, local_max);
        }
        m->lanes = n < m->lanes ? n : m->lanes;
    }
    m->first[hosts] = at;
    return 0;
}

/* Numbers the hosts that have a member, in the world's order; returns how
 * many there are. */
static int number_hosts(const struct hvd__map *world, const int *ranks, int n,
                        int *number)
{
    int hosts = 0;

    for (int h = 0; h < world->hosts; h++)
        number[h] = -1;
    for (int i = 0; i < n; i++)
        number[world->host_of[ranks[i]]] = 0;
    for (int h = 0; h < world->hosts; h++)
        if (number[h] == 0)
            number[h] = hosts++;
    return hosts;
}

int hvd__map_subset(struct hvd__map *m, const struct hvd__map *world,
                    const int *ranks, int n, struct hb_error *err)
{
    int *number = hb_calloc((size_t)world->hosts, sizeof(*number));
    uint32_t *host_of = hb_calloc((size_t)n, sizeof(*host_of));
    int rc, hosts;

    memset(m, 0, sizeof(*m));
    if (!number || !host_of) {
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", n);
        goto out;
    }
    hosts = number_hosts(world, ranks, n, number);
    for (int i = 0; i < n; i++)
        host_of[i] = (uint32_t)number[world->host_of[ranks[i]]];
    rc = hvd__map_init(m, n, hosts, host_of, n, err);
    for (int i = 0; i < n && rc == 0; i++)
        m->world[i] = world->world[ranks[i]];
    for (int h = 0; h < world->hosts && rc == 0; h++)
        if (number[h] >= 0)
            hvd__map_name(m, number[h], world->names[h]);
out:
    hb_free(number);
    hb_free(host_of);
    return rc;
}

void hvd__map_fini(struct hvd__map *m)
{
    hb_free(m->host_of);
    hb_free(m->ranks);
    hb_free(m->world);
    hb_free(m->first);
    hb_free(m->names);
    memset(m, 0, sizeof(*m));
}

void hvd__map_name(struct hvd__map *m, int host, const char *name)
{
    snprintf(m->names[host], sizeof(m->names[host]), "%s", name);
}

const char *hvd__map_host_name(const struct hvd__map *m, uint32_t rank)
{
    for (int r = 0; r < m->size; r++)
        if (m->world[r] == rank)
            return m->names[m->host_of[r]];
    return "?";
}
