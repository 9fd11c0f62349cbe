/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the next operation by name; see plan.h. */
#include "runtime/core/sched/plan.h"

#include "lib/base/alloc.h"

#include <string.h>

enum { BUCKETS_MIN = 256 };

void hvd__plan_init(struct hvd__plan *p)
{
    memset(p, 0, sizeof(*p));
    p->unnamed.name = p->joining.name = (char *)"";
}

void hvd__plan_fini(struct hvd__plan *p)
{
    for (size_t i = 0; i < p->bucket_count; i++) {
        struct hvd__entry *e = p->buckets[i], *chain;

        for (; e; e = chain) {
            chain = e->chain;
            hb_free(e->name);
            hb_free(e);
        }
    }
    hb_free((void *)p->buckets);
    hvd__plan_init(p);
}

/* Doubles the buckets; 0 when there is no memory. */
static int grow(struct hvd__plan *p)
{
    size_t n = p->bucket_count ? 2 * p->bucket_count : BUCKETS_MIN;
    struct hvd__entry **buckets = hb_calloc(n, sizeof(struct hvd__entry *));

    if (!buckets)
        return 0;
    for (size_t i = 0; i < p->bucket_count; i++) {
        struct hvd__entry *e = p->buckets[i], *chain;

        for (; e; e = chain) {
            size_t at = e->name_hash & (n - 1);

            chain = e->chain;
            e->chain = buckets[at];
            buckets[at] = e;
        }
    }
    hb_free((void *)p->buckets);
    p->buckets = buckets;
    p->bucket_count = n;
    return 1;
}

static struct hvd__entry *new_entry(const char *name, uint64_t name_hash)
{
    struct hvd__entry *e = hb_calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->name_hash = name_hash;
    e->name = hb_strdup(name);
    if (e->name)
        return e;
    hb_free(e);
    return NULL;
}

static void unchain(struct hvd__plan *p, struct hvd__entry *e)
{
    struct hvd__entry **at = &p->buckets[e->name_hash & (p->bucket_count - 1)];

    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
}

/* Returns an entry without pending requests, or NULL.  Each search continues at
 * the next bucket. */
static struct hvd__entry *find_idle(struct hvd__plan *p)
{
    for (size_t i = 0; i < p->bucket_count; i++) {
        struct hvd__entry *e = p->buckets[p->hand++ & (p->bucket_count - 1)];

        for (; e; e = e->chain)
            if (!e->pending)
                return e;
    }
    return NULL;
}

/* Gives an old entry another name.  What the driver has learned of the old name
 * stays and is wrong, which costs no more than a negotiation. */
static struct hvd__entry *rename_entry(struct hvd__plan *p, const char *name,
                                       uint64_t name_hash)
{
    struct hvd__entry *e = find_idle(p);
    char *copy = e ? hb_strdup(name) : NULL;

    if (!copy)
        return NULL;
    unchain(p, e);
    hb_free(e->name);
    e->name = copy;
    e->name_hash = name_hash;
    return e;
}

struct hvd__entry *hvd__plan_entry(struct hvd__plan *p, const char *name,
                                   uint64_t name_hash)
{
    struct hvd__entry *e = NULL;

    if (!name[0])
        return &p->unnamed;
    if (p->bucket_count)
        e = p->buckets[name_hash & (p->bucket_count - 1)];
    for (; e; e = e->chain)
        if (e->name_hash == name_hash && strcmp(e->name, name) == 0)
            return e;
    if (p->count == HVD__PLAN_NAMES_MAX) {
        e = rename_entry(p, name, name_hash);
    } else if (p->count < p->bucket_count || grow(p)) {
        e = new_entry(name, name_hash);
        p->count += e != NULL;
    }
    if (!e)
        return NULL;
    e->chain = p->buckets[name_hash & (p->bucket_count - 1)];
    p->buckets[name_hash & (p->bucket_count - 1)] = e;
    return e;
}

void hvd__plan_renew(struct hvd__plan *p, struct hvd__entry *e)
{
    if (p->newest == e)
        return;
    if (e->newer) { /* it is in the list */
        e->newer->older = e->older;
        if (e->older)
            e->older->newer = e->newer;
        else
            p->oldest = e->newer;
    }
    e->older = p->newest;
    e->newer = NULL;
    if (p->newest)
        p->newest->newer = e;
    else
        p->oldest = e;
    p->newest = e;
}
