/* SPDX-License-Identifier: Apache-2.0 */
/* The slot plan; see plan.h. */
#include "lib/hosts/slot_plan.h"

#include "lib/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HOSTS_SHOWN = 4 };

void plan_free(struct plan *p)
{
    for (int i = 0; i < p->host_count; i++)
        hb_free(p->hosts[i].ranks);
    hb_free(p->ranks);
    hb_free(p->hosts);
    memset(p, 0, sizeof(*p));
}

static int slots_of(const struct host_entry *e)
{
    return e->slots ? e->slots : 1;
}

/* Lists `a:2, b:4, ...`: slots, or with --oversubscribe max_slots. */
static void describe(const struct hostlist *l, const struct plan_options *o,
                     char *out, size_t size)
{
    size_t used = 0, i;

    out[0] = '\0';
    for (i = 0; i < l->count && i < HOSTS_SHOWN; i++) {
        const struct host_entry *e = &l->entries[i];
        int most = o->oversubscribe ? e->max_slots : 0;
        int len = snprintf(out + used, size - used, "%s%.60s:%d", i ? ", " : "",
                           e->name, most ? most : slots_of(e));

        used += (size_t)len;
    }
    if (i < l->count)
        snprintf(out + used, size - used, ", ...");
}

/* Returns how many ranks the host may get: its slots or, with --oversubscribe,
 * its max_slots; at most --npernode. */
static int capacity(const struct host_entry *e, const struct plan_options *o)
{
    int slots = slots_of(e);

    if (o->oversubscribe)
        slots = e->max_slots ? e->max_slots : PLAN_RANKS_MAX;
    if (o->npernode && o->npernode < slots)
        slots = o->npernode;
    return slots;
}

/* Returns the number of ranks without -np: one per slot, or --npernode per
 * host. */
static int64_t default_size(const struct hostlist *l,
                            const struct plan_options *o)
{
    int64_t size = 0;

    for (size_t i = 0; i < l->count; i++) {
        int slots = slots_of(&l->entries[i]);

        if (o->npernode && (o->oversubscribe || o->npernode < slots))
            slots = o->npernode;
        size += slots;
    }
    return size;
}

static int too_many(const struct hostlist *l, const struct plan_options *o,
                    int64_t wanted, int64_t slots, struct hb_error *err)
{
    char hosts[HOSTS_SHOWN * 80 + 8], limit[48] = "";

    describe(l, o, hosts, sizeof(hosts));
    if (o->npernode)
        snprintf(limit, sizeof(limit), " with --npernode %d", o->npernode);
    else if (o->oversubscribe)
        snprintf(limit, sizeof(limit), " up to their max_slots");
    if (o->allocation)
        return hb_error_set(
            err, HVD_EINVAL,
            "-np %" PRId64 ": %.80s has %" PRId64
            " slot%s%s (%s); lower -np or ask for more%s",
            wanted, o->allocation, slots, slots == 1 ? "" : "s", limit, hosts,
            o->oversubscribe ? "" : ", or give --oversubscribe");
    return hb_error_set(err, HVD_EINVAL,
                        "-np %" PRId64 ": the hosts given have %" PRId64
                        " slot%s%s (%s); %s or lower -np%s",
                        wanted, slots, slots == 1 ? "" : "s", limit, hosts,
                        o->oversubscribe ? "raise that" : "add slots",
                        o->oversubscribe ? "" : ", or give --oversubscribe");
}

/* Returns the number of ranks to place, or a negative status. */
static int decide_size(const struct hostlist *l, const struct plan_options *o,
                       struct hb_error *err)
{
    int64_t room = 0, size = o->num_proc;
    char hosts[HOSTS_SHOWN * 80 + 8];

    if (o->num_proc < 0)
        return hb_error_set(err, HVD_EINVAL, "-np %d: give at least 1",
                            o->num_proc);
    if (o->num_proc == 0)
        size = default_size(l, o);
    if (size == 0)
        return hb_error_set(err, HVD_EINVAL, "no host is given");
    for (size_t i = 0; i < l->count; i++)
        room += capacity(&l->entries[i], o);
    if (size > room)
        return too_many(l, o, size, room, err);
    if (size <= PLAN_RANKS_MAX)
        return (int)size;
    describe(l, o, hosts, sizeof(hosts));
    if (o->num_proc)
        return hb_error_set(err, HVD_EINVAL,
                            "-np %d: at most %d ranks are possible",
                            o->num_proc, PLAN_RANKS_MAX);
    return hb_error_set(err, HVD_EINVAL,
                        "the hosts given have %" PRId64 " slots (%s), "
                        "and at most %d ranks are possible; give -np",
                        size, hosts, PLAN_RANKS_MAX);
}

/* Gives each host up to `most` more ranks (0: up to its slots), `left` at most
 * in all; returns how many are left.  counts is by hostlist index. */
static int fill_round(const struct hostlist *l, const struct plan_options *o,
                      int *counts, int left, int most)
{
    for (size_t i = 0; i < l->count && left > 0; i++) {
        int take = capacity(&l->entries[i], o) - counts[i];

        if (most == 0 && take > slots_of(&l->entries[i]) - counts[i])
            take = slots_of(&l->entries[i]) - counts[i];
        if (most > 0 && take > most)
            take = most;
        if (take > left)
            take = left;
        if (take <= 0)
            continue;
        counts[i] += take;
        left -= take;
    }
    return left;
}

/* Counts each host's ranks: by slot, slots are filled first, and the rest is
 * spread in turns. */
static void count_ranks(const struct hostlist *l, const struct plan_options *o,
                        int *counts, int size)
{
    int left = size;

    if (o->map == PLAN_MAP_SLOT)
        left = fill_round(l, o, counts, left, 0);
    while (left > 0)
        left = fill_round(l, o, counts, left, 1);
}

/* Makes the hosts that have ranks, with room for their ranks' numbers. */
static int make_hosts(const struct hostlist *l, const int *counts,
                      struct plan *p, struct hb_error *err)
{
    for (size_t i = 0; i < l->count; i++) {
        struct plan_host *h = &p->hosts[p->host_count];

        if (counts[i] == 0)
            continue;
        if (counts[i] > PLAN_LOCAL_MAX)
            return hb_error_set(err, HVD_EINVAL,
                                "host %s would get %d ranks, more than the "
                                "%d that one host can have; lower -np or "
                                "add hosts",
                                l->entries[i].name, counts[i], PLAN_LOCAL_MAX);
        h->entry = &l->entries[i];
        h->index = p->host_count++;
        h->count = counts[i];
        h->ranks = hb_calloc((size_t)h->count, sizeof(*h->ranks));
        if (!h->ranks)
            return hb_error_set(err, HVD_ENOMEM, "slot plan: out of memory");
    }
    return 0;
}

static void assign_rank(struct plan *p, int rank, int host, int local)
{
    p->ranks[rank].rank = rank;
    p->ranks[rank].host = host;
    p->ranks[rank].is_bound = 1;
    p->ranks[rank].local_rank = local;
    p->ranks[rank].local_size = p->hosts[host].count;
    p->hosts[host].ranks[local] = rank;
}

static void number_by_slot(struct plan *p)
{
    int rank = 0;

    for (int i = 0; i < p->host_count; i++)
        for (int local = 0; local < p->hosts[i].count; local++)
            assign_rank(p, rank++, i, local);
}

static void number_by_node(struct plan *p)
{
    int rank = 0;

    for (int local = 0; rank < p->size; local++)
        for (int i = 0; i < p->host_count; i++)
            if (local < p->hosts[i].count)
                assign_rank(p, rank++, i, local);
}

/* Numbers the ranks that have the same local rank across hosts: seen[l] counts
 * the hosts so far that have a local rank l. */
static void number_across(struct plan *p)
{
    int seen[PLAN_LOCAL_MAX] = {0};

    for (int i = 0; i < p->host_count; i++)
        for (int local = 0; local < p->hosts[i].count; local++)
            p->ranks[p->hosts[i].ranks[local]].cross_rank = seen[local]++;
    for (int i = 0; i < p->size; i++)
        p->ranks[i].cross_size = seen[p->ranks[i].local_rank];
}

int plan_make(const struct hostlist *l, const struct plan_options *o,
              struct plan *p, struct hb_error *err)
{
    struct plan made = {0};
    int *counts = NULL;
    int rc = decide_size(l, o, err);

    if (rc < 0)
        return rc;
    made.size = made.np = rc;
    made.host_cap = (int)l->count;
    made.ranks = hb_calloc((size_t)made.size, sizeof(*made.ranks));
    made.hosts = hb_calloc(l->count, sizeof(*made.hosts));
    counts = hb_calloc(l->count, sizeof(*counts));
    if (!made.ranks || !made.hosts || !counts) {
        rc = hb_error_set(err, HVD_ENOMEM, "slot plan: out of memory");
        goto out;
    }
    count_ranks(l, o, counts, made.size);
    rc = make_hosts(l, counts, &made, err);
    if (rc < 0)
        goto out;
    if (o->map == PLAN_MAP_SLOT)
        number_by_slot(&made);
    else
        number_by_node(&made);
    number_across(&made);
    *p = made;
out:
    hb_free(counts);
    if (rc < 0)
        plan_free(&made);
    return rc;
}

/* ---- Plans that grow ---- */

void plan_reserve(struct plan *p, int size, int host_cap)
{
    size_t old_hosts = (size_t)p->host_cap;

    p->ranks = hb_xrealloc_array(p->ranks, (size_t)size, sizeof(*p->ranks));
    for (int i = p->size; i < size; i++)
        p->ranks[i] = (struct plan_rank){.rank = i, .is_idle = 1};
    p->hosts = hb_xrealloc_array(p->hosts, (size_t)host_cap, sizeof(*p->hosts));
    memset(p->hosts + old_hosts, 0,
           ((size_t)host_cap - old_hosts) * sizeof(*p->hosts));
    p->size = size;
    p->host_cap = host_cap;
}

int plan_add_host(struct plan *p, const struct host_entry *entry)
{
    if (p->host_count == p->host_cap)
        return -1;
    p->hosts[p->host_count] =
        (struct plan_host){.entry = entry, .index = p->host_count};
    return p->host_count++;
}

int plan_bind(struct plan *p, int host, int count, int local_size)
{
    struct plan_host *h = &p->hosts[host];
    int have = h->count;

    if (count > PLAN_LOCAL_MAX)
        count = PLAN_LOCAL_MAX;
    if (count > h->count)
        h->ranks =
            hb_xrealloc_array(h->ranks, (size_t)count, sizeof(*h->ranks));
    for (int i = 0; i < p->size && have < count; i++) {
        if (p->ranks[i].is_bound)
            continue;
        p->ranks[i] = (struct plan_rank){.rank = i,
                                         .local_size = local_size,
                                         .cross_size = 1,
                                         .host = host,
                                         .is_bound = 1,
                                         .is_idle = 1};
        have++;
    }
    h->count = 0;
    for (int i = 0; i < p->size && h->count < have; i++) {
        if (!p->ranks[i].is_bound || p->ranks[i].host != host)
            continue;
        p->ranks[i].local_rank = h->count;
        h->ranks[h->count++] = i;
    }
    return have;
}

void plan_unbind(struct plan *p, int host)
{
    struct plan_host *h = &p->hosts[host];

    for (int i = 0; i < h->count; i++)
        p->ranks[h->ranks[i]] =
            (struct plan_rank){.rank = h->ranks[i], .host = host, .is_idle = 1};
    h->count = 0;
}

void plan_replace_host(struct plan *p, int host, const struct host_entry *entry)
{
    plan_unbind(p, host);
    p->hosts[host].entry = entry;
}
