/* SPDX-License-Identifier: Apache-2.0 */
/* See apart.h. */
#include "lib/job/elastic/apart.h"

#include "lib/base/alloc.h"

#include <string.h>

void apart_init(struct apart *p, int host_cap)
{
    memset(p, 0, sizeof(*p));
    p->survived = hb_xcalloc((size_t)host_cap, sizeof(*p->survived));
}

void apart_fini(struct apart *p)
{
    hb_free(p->survived);
    p->survived = NULL;
}

static int holds(const struct apart_pair *pair, int host)
{
    return pair->a == host || pair->b == host;
}

void apart_add(struct apart *p, int a, int b)
{
    const struct apart_pair pair = {a < b ? a : b, a < b ? b : a};

    for (int i = 0; i < p->count; i++)
        if (p->pairs[i].a == pair.a && p->pairs[i].b == pair.b)
            return;
    if (p->count < APART_PAIRS_MAX)
        p->pairs[p->count++] = pair;
}

static void remove_pair(struct apart *p, int i)
{
    p->pairs[i] = p->pairs[--p->count];
}

/* Counts the pairs of a host, also those whose other host was given up. */
static int pairs_of(const struct apart *p, int host)
{
    int count = p->survived[host];

    for (int i = 0; i < p->count; i++)
        count += holds(&p->pairs[i], host);
    return count;
}

/* Returns whether the job gives up host x rather than host y. */
static int goes_first(const struct apart *p, const struct apart_host *hosts,
                      int x, int y)
{
    if (hosts[x].is_silent != hosts[y].is_silent)
        return hosts[x].is_silent;
    if (hosts[x].is_needed != hosts[y].is_needed)
        return hosts[y].is_needed;
    if (pairs_of(p, x) != pairs_of(p, y))
        return pairs_of(p, x) > pairs_of(p, y);
    if (hosts[x].ranks != hosts[y].ranks)
        return hosts[x].ranks < hosts[y].ranks;
    return x > y;
}

int apart_choose(struct apart *p, const struct apart_host *hosts, int *other)
{
    int chosen;

    for (int i = p->count - 1; i >= 0; i--)
        if (hosts[p->pairs[i].a].is_gone || hosts[p->pairs[i].b].is_gone)
            remove_pair(p, i);
    if (p->count == 0)
        return -1;
    chosen = p->pairs[0].a;
    for (int i = 0; i < p->count; i++) {
        if (goes_first(p, hosts, p->pairs[i].a, chosen))
            chosen = p->pairs[i].a;
        if (goes_first(p, hosts, p->pairs[i].b, chosen))
            chosen = p->pairs[i].b;
    }
    for (int i = p->count - 1; i >= 0; i--) {
        const struct apart_pair pair = p->pairs[i];

        if (!holds(&pair, chosen))
            continue;
        *other = pair.a == chosen ? pair.b : pair.a;
        p->survived[*other] += !hosts[chosen].is_silent;
        remove_pair(p, i);
    }
    p->survived[chosen] = 0;
    return chosen;
}
