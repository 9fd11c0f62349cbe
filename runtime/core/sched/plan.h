/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicts what a process set carries out next from what it has carried out:
 * every name has an entry, and each entry remembers which one followed it last
 * time.
 *
 * All ranks of a set carry out the same operations in the same order, so they
 * learn the same plan without a message, and predict the same next operation.
 * If nothing ever followed the last operation, the prediction is the named one
 * carried out longest ago, which is right for a loop of steps. Correctness does
 * not depend on it: the headers of an operation show when ranks have predicted
 * differently.
 *
 * All operations without a name share one entry, `unnamed`; joins share
 * `joining`.
 *
 * Entries live as long as the plan.  When there are HVD__PLAN_NAMES_MAX, a new
 * name takes over an entry with nothing pending.  The engine's lock protects
 * `pending` and the names; `last`, `history`, `next` and `done_at` belong to
 * the driver.
 */
#ifndef HVD_CORE_PLAN_H
#define HVD_CORE_PLAN_H

#include "runtime/core/sched/request.h"

#include <stddef.h>
#include <stdint.h>

enum { HVD__PLAN_NAMES_MAX = 1 << 20 };

struct hvd__entry {
    struct hvd__entry *next;          /* what followed it last time, or NULL */
    struct hvd__entry *chain;         /* next in its hash bucket */
    struct hvd__entry *older, *newer; /* list by last execution */
    uint64_t done_at;                 /* value of plan.done when last carried
                                         out; 0: never */
    struct hvd_request *pending;      /* its oldest request in the queue, or
                                         NULL */
    uint64_t name_hash;
    char *name;
};

struct hvd__plan {
    struct hvd__entry unnamed, joining;
    struct hvd__entry *last; /* the entry carried out last, or NULL */
    uint64_t history;        /* hash of the signatures of all operations done */
    uint64_t done;           /* number of operations done */
    uint64_t unnamed_done;   /* of these, without a name */
    struct hvd__entry *oldest, *newest; /* of the entries with a name */
    struct hvd__entry **buckets;
    size_t bucket_count, count;
    size_t hand; /* next bucket to search for an entry to take over */
};

void hvd__plan_init(struct hvd__plan *p);
void hvd__plan_fini(struct hvd__plan *p); /* idempotent */

/* Returns the entry of `name`, made if there is none; "" gives `unnamed`. NULL:
 * no memory, or HVD__PLAN_NAMES_MAX names have requests pending. */
struct hvd__entry *hvd__plan_entry(struct hvd__plan *p, const char *name,
                                   uint64_t name_hash);

/* Returns the entry predicted next, or NULL. */
static inline struct hvd__entry *hvd__plan_next(const struct hvd__plan *p)
{
    return p->last && p->last->next ? p->last->next : p->oldest;
}

/* Moves a named entry to the newest end of the list. */
void hvd__plan_renew(struct hvd__plan *p, struct hvd__entry *e);

/* Notes that e's operation was carried out with that signature. */
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
