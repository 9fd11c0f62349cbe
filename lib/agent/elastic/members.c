/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers the members of a generation; see members.h. */
#include "lib/agent/elastic/members.h"

#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

static int is_elastic(const struct members *m)
{
    return m->job->spec.elastic;
}

void members_init(struct members *m, const struct control_launch *job)
{
    memset(m, 0, sizeof(*m));
    m->job = job;
    m->local = hb_xcalloc((size_t)job->rank_count + 1, sizeof(*m->local));
    if (job->spec.elastic)
        return;
    m->local_count = job->rank_count;
    for (int i = 0; i < job->rank_count; i++)
        m->local[i] = i;
}

void members_fini(struct members *m)
{
    control_generation_fini(&m->now);
    hb_free(m->hosts);
    hb_free(m->local);
    memset(m, 0, sizeof(*m));
}

/* Looks up the hosts of all members: heap. */
static int *find_hosts(const struct members *m,
                       const struct control_generation *next)
{
    int *all = hb_xcalloc((size_t)m->job->size, sizeof(*all));
    int *hosts = hb_xcalloc((size_t)next->count, sizeof(*hosts));

    if (m->job->run_count > 0)
        control_rank_hosts(m->job, all);
    for (int i = 0; i < next->count; i++)
        hosts[i] = all[next->ranks[i]];
    hb_free(all);
    return hosts;
}

int members_set(struct members *m, struct control_generation *next,
                struct hb_error *err)
{
    int *hosts = NULL, fits;

    fits = is_elastic(m) && next->number > m->now.number &&
           next->ranks[next->count - 1] < m->job->size;
    if (fits)
        hosts = find_hosts(m, next);
    for (int i = 0; fits && i < next->count; i++)
        fits = hosts[i] >= 0;
    if (!fits) {
        hb_free(hosts);
        return hb_error_set(err, HVD_EPROTO, "generation %u does not fit",
                            next->number);
    }
    hb_free(m->hosts);
    control_generation_fini(&m->now);
    m->now = *next;
    memset(next, 0, sizeof(*next));
    m->hosts = hosts;
    m->local_count = 0;
    for (int i = 0; i < m->job->rank_count; i++)
        if (members_world_rank(m, m->job->ranks[i].rank) >= 0)
            m->local[m->local_count++] = i;
    return 0;
}

int members_world_rank(const struct members *m, int rank)
{
    if (!is_elastic(m))
        return rank;
    for (int i = 0; i < m->now.count; i++)
        if (m->now.ranks[i] == rank)
            return i;
    return -1;
}

int members_plan_rank(const struct members *m, uint32_t world_rank)
{
    if (!is_elastic(m))
        return world_rank < (uint32_t)m->job->size ? (int)world_rank : -1;
    return world_rank < (uint32_t)m->now.count ? m->now.ranks[world_rank] : -1;
}

int members_place(const struct members *m, int slot)
{
    for (int i = 0; i < m->local_count; i++)
        if (m->local[i] == slot)
            return i;
    return -1;
}

/* ---- Hosts --------------------------------------------------------------- */

/* Counts the members on each host of the plan: heap. */
static int *count_by_host(const struct members *m, int *hosts)
{
    int *counts;

    *hosts = m->job->host_index + 1;
    if ((size_t)*hosts < m->job->host_names.count)
        *hosts = (int)m->job->host_names.count;
    counts = hb_xcalloc((size_t)*hosts, sizeof(*counts));
    for (int i = 0; i < m->now.count; i++)
        counts[m->hosts[i]]++;
    return counts;
}

/* Fills in the numbers of hosts and of the ranks with the same local rank. */
static void number_hosts(const struct members *m, struct worker_welcome *w)
{
    int hosts, *counts = count_by_host(m, &hosts);

    w->host_index = w->host_count = w->cross_rank = w->cross_size = 0;
    for (int h = 0; h < hosts; h++) {
        int before = h < m->job->host_index;

        w->host_index += before && counts[h] > 0;
        w->host_count += counts[h] > 0;
        w->cross_rank += before && counts[h] > (int)w->local_rank;
        w->cross_size += counts[h] > (int)w->local_rank;
    }
    hb_free(counts);
}

static void plan_welcome(const struct members *m, int slot,
                         struct worker_welcome *w)
{
    const struct control_rank *r = &m->job->ranks[slot];

    w->rank = (uint32_t)r->rank;
    w->size = (uint32_t)m->job->size;
    w->local_rank = (uint32_t)r->local_rank;
    w->local_size = (uint32_t)r->local_size;
    w->cross_rank = (uint32_t)r->cross_rank;
    w->cross_size = (uint32_t)r->cross_size;
    w->host_count = 1;
    if (m->job->peers.count) {
        w->host_index = (uint32_t)m->job->host_index;
        w->host_count = (uint32_t)m->job->peers.count;
    }
}

void members_welcome(const struct members *m, int slot,
                     struct worker_welcome *w)
{
    w->local_count = (uint32_t)m->local_count;
    for (int i = 0; i < m->local_count; i++)
        w->local_ranks[i] =
            (uint32_t)members_world_rank(m, m->job->ranks[m->local[i]].rank);
    if (!is_elastic(m)) {
        plan_welcome(m, slot, w);
        return;
    }
    w->rank = (uint32_t)members_world_rank(m, m->job->ranks[slot].rank);
    w->size = (uint32_t)m->now.count;
    w->local_rank = (uint32_t)members_place(m, slot);
    w->local_size = (uint32_t)m->local_count;
    w->generation = m->now.number;
    w->joined = m->now.joined;
    w->removed = m->now.removed;
    snprintf(w->why, sizeof(w->why), "%s", m->now.why);
    number_hosts(m, w);
}

size_t members_addresses(const struct members *m, char **addresses)
{
    const struct hb_strv *peers = &m->job->peers;
    int hosts, *counts;
    size_t n = 0;

    if (!is_elastic(m)) {
        memcpy(addresses, peers->items, peers->count * sizeof(*addresses));
        return peers->count;
    }
    counts = count_by_host(m, &hosts);
    for (int h = 0; h < hosts && (size_t)h < peers->count; h++)
        if (counts[h] > 0)
            addresses[n++] = peers->items[h];
    hb_free(counts);
    return n;
}
