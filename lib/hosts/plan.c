/* SPDX-License-Identifier: Apache-2.0 */
/* The slot plan; see plan.h. */
#include "lib/hosts/plan.h"

#include "lib/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HOSTS_SHOWN = 4 };

void plan_free(struct plan *p)
{
    hb_free(p->ranks);
    hb_free(p->hosts);
    memset(p, 0, sizeof(*p));
}

static int slots_of(const struct host_entry *e)
{
    return e->slots ? e->slots : 1;
}

/* `a:2, b:4, ...` */
static void describe(const struct hostlist *l, char *out, size_t size)
{
    size_t used = 0, i;

    out[0] = '\0';
    for (i = 0; i < l->count && i < HOSTS_SHOWN; i++) {
        int len = snprintf(out + used, size - used, "%s%.60s:%d", i ? ", " : "",
                           l->entries[i].name, slots_of(&l->entries[i]));

        used += (size_t)len;
    }
    if (i < l->count)
        snprintf(out + used, size - used, ", ...");
}

/* The number of ranks to place, or a negative status. */
static int decide_size(const struct hostlist *l, int num_proc,
                       struct hb_error *err)
{
    char hosts[HOSTS_SHOWN * 80 + 8];
    int64_t slots = 0;
    size_t i;

    for (i = 0; i < l->count; i++)
        slots += slots_of(&l->entries[i]);
    if (num_proc < 0)
        return hb_error_set(err, HVD_EINVAL, "-np %d: give at least 1",
                            num_proc);
    if (num_proc == 0 && slots == 0)
        return hb_error_set(err, HVD_EINVAL, "no host is given");
    describe(l, hosts, sizeof(hosts));
    if (num_proc > slots)
        return hb_error_set(err, HVD_EINVAL,
                            "-np %d: the hosts given have %" PRId64
                            " slot%s (%s); add slots or lower -np",
                            num_proc, slots, slots == 1 ? "" : "s", hosts);
    if (num_proc > PLAN_RANKS_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "-np %d: at most %d ranks are possible", num_proc,
                            PLAN_RANKS_MAX);
    if (num_proc == 0 && slots > PLAN_RANKS_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "the hosts given have %" PRId64 " slots (%s), "
                            "and at most %d ranks are possible; give -np",
                            slots, hosts, PLAN_RANKS_MAX);
    return num_proc ? num_proc : (int)slots;
}

/* Fills hosts one after the other until size ranks are placed. */
static int fill_hosts(const struct hostlist *l, struct plan *p,
                      struct hb_error *err)
{
    int placed = 0, take;
    size_t i;

    for (i = 0; i < l->count && placed < p->size; i++) {
        struct plan_host *h = &p->hosts[p->host_count];

        take = slots_of(&l->entries[i]);
        if (take > p->size - placed)
            take = p->size - placed;
        if (take > PLAN_LOCAL_MAX)
            return hb_error_set(err, HVD_EINVAL,
                                "host %s would get %d ranks, more than the "
                                "%d that one host can have; lower -np or "
                                "add hosts",
                                l->entries[i].name, take, PLAN_LOCAL_MAX);
        h->entry = &l->entries[i];
        h->index = p->host_count++;
        h->first_rank = placed;
        h->count = take;
        placed += take;
    }
    return 0;
}

/* seen[l] counts the hosts that have a local rank l. */
static void number_ranks(struct plan *p)
{
    int seen[PLAN_LOCAL_MAX] = {0};
    int i, local;

    for (i = 0; i < p->host_count; i++) {
        for (local = 0; local < p->hosts[i].count; local++) {
            int rank = p->hosts[i].first_rank + local;
            struct plan_rank *r = &p->ranks[rank];

            r->rank = rank;
            r->local_rank = local;
            r->local_size = p->hosts[i].count;
            r->cross_rank = seen[local]++;
            r->host = i;
        }
    }
    for (i = 0; i < p->size; i++)
        p->ranks[i].cross_size = seen[p->ranks[i].local_rank];
}

int plan_make(const struct hostlist *l, int num_proc, struct plan *p,
              struct hb_error *err)
{
    struct plan made = {NULL, 0, NULL, 0};
    int rc = decide_size(l, num_proc, err);

    if (rc < 0)
        return rc;
    made.size = rc;
    made.ranks = hb_calloc((size_t)made.size, sizeof(*made.ranks));
    made.hosts = hb_calloc(l->count, sizeof(*made.hosts));
    if (!made.ranks || !made.hosts) {
        hb_error_set(err, HVD_ENOMEM, "slot plan: out of memory");
        rc = -HVD_ENOMEM;
        goto failed;
    }
    rc = fill_hosts(l, &made, err);
    if (rc < 0)
        goto failed;
    number_ranks(&made);
    *p = made;
    return 0;
failed:
    plan_free(&made);
    return rc;
}
