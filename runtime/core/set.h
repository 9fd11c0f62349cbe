/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets: some ranks of the world with a plane and an engine of their
 * own.  Set 0 is the world.
 *
 * Sets live in a static table and their engines are never freed, so that a
 * request may be waited for after its set was removed.  `exists` is set last
 * and cleared first; adding and removing sets is serialised by the world's
 * order of operations.
 */
#ifndef HVD_CORE_SET_H
#define HVD_CORE_SET_H

#include "runtime/core/engine.h"
#include "runtime/core/hosts.h"

struct hvd__set {
    _Atomic int exists;
    int id;
    int n, me;  /* members; this rank's place among them, -1: not a member */
    int *ranks; /* [n]: of the world, ascending */
    struct hvd__plane *plane; /* NULL: not a member */
    struct hvd__hosts hosts;  /* of a set on several */
    int has_hosts;
    struct hvd__engine engine;
};

extern struct hvd__set hvd__sets[HVD_PROCESS_SETS_MAX];

/* What sets that were removed had counted, since hvd_init. */
extern struct hvd__stats hvd__removed_stats;

/* The set of that number, or NULL. */
static inline struct hvd__set *hvd__set_find(int id)
{
    if (id < 0 || id >= HVD_PROCESS_SETS_MAX)
        return NULL;
    /* Acquire: pairs with the release of hvd__set_publish. */
    return atomic_load_explicit(&hvd__sets[id].exists, memory_order_acquire)
               ? &hvd__sets[id]
               : NULL;
}

/* Makes a set ready whose plane is there.  ranks are copied.  0 or
 * -HVD_ENOMEM. */
int hvd__set_open(struct hvd__set *s, const int *ranks, int n, int me);
/* It can be found from here on. */
void hvd__set_publish(struct hvd__set *s);
/* Ends all operations with `why`; then gives everything back.  Both
 * idempotent. */
void hvd__set_stop(struct hvd__set *s, const struct hb_error *why);
void hvd__set_free(struct hvd__set *s);
/* Returns when nobody makes or removes a set; the library is not alive, and
 * the world stopped, so that this comes to an end and nobody begins. */
void hvd__sets_settle(void);
/* Whether nobody makes or removes a set, and nobody can until released. */
int hvd__sets_hold(void);
void hvd__sets_release(void);

/* The place of a world rank in a set, or -1. */
int hvd__set_place(const struct hvd__set *s, int rank);

#endif
