/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process set has carried out, and what it is therefore expected to
 * carry out next: every name has a dense entry, and each entry remembers
 * which one followed it last time.
 *
 * All ranks of a set carry out the same operations in the same order, so
 * they all learn the same plan without a message, and foresee the same next
 * operation.  Where nothing ever followed, or what did is not issued, it is
 * the one of those with a name that was carried out longest ago: in a loop
 * of steps that is the right one.  Nothing depends on that: ranks that
 * foresee differently find out by the headers of their operation.
 *
 * Operations without a name share the first entry.
 *
 * Entries live as long as the plan.  When there are HVD__PLAN_NAMES_MAX, one
 * with nothing pending is given to a new name.  `pending` and the names belong
 * to the engine's lock; `last`, `history`, `next` and `carried_out` to the
 * driver.
 */
#ifndef HVD_CORE_PLAN_H
#define HVD_CORE_PLAN_H

#include "runtime/core/request.h"

#include <stddef.h>
#include <stdint.h>

enum { HVD__PLAN_NAMES_MAX = 1 << 20 };

struct hvd__entry {
    struct hvd__entry *next;          /* what followed last time, or NULL */
    struct hvd__entry *chain;         /* of the same bucket */
    struct hvd__entry *older, *newer; /* as they were carried out last */
    uint64_t done_at;                 /* the how many-th that was; 0: never */
    struct hvd_request *pending;      /* oldest one of that name in the queue */
    uint64_t name_hash;
    char *name;
};

struct hvd__plan {
    struct hvd__entry unnamed, joining;
    struct hvd__entry *last; /* carried out last, or NULL */
    uint64_t history;        /* hash of the signatures of all carried out */
    uint64_t done;           /* how many were */
    uint64_t unnamed_done;   /* of them, without a name */
    struct hvd__entry *oldest, *newest; /* of those with a name */
    struct hvd__entry **buckets;
    size_t bucket_count, count;
    size_t hand; /* the bucket where a name to be forgotten is looked for */
};

void hvd__plan_init(struct hvd__plan *p);
void hvd__plan_fini(struct hvd__plan *p); /* idempotent */

/* The entry of a name, made if there is none; NULL: no memory, or
 * HVD__PLAN_NAMES_MAX names are in flight.  "" is the entry of those
 * without. */
struct hvd__entry *hvd__plan_entry(struct hvd__plan *p, const char *name,
                                   uint64_t name_hash);

/* What is expected next, or NULL. */
static inline struct hvd__entry *hvd__plan_next(const struct hvd__plan *p)
{
    return p->last && p->last->next ? p->last->next : p->oldest;
}

/* Makes a named entry the newest. */
void hvd__plan_renew(struct hvd__plan *p, struct hvd__entry *e);

/* An operation with that signature was carried out. */
static inline void hvd__plan_done(struct hvd__plan *p, struct hvd__entry *e,
                                  uint64_t signature)
{
    if (p->last)
        p->last->next = e;
    p->last = e;
    p->history = hvd__mix(p->history, signature);
    e->done_at = ++p->done;
    if (e == &p->unnamed)
        p->unnamed_done++;
    else if (e != &p->joining)
        hvd__plan_renew(p, e);
}

#endif
