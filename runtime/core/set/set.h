/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets: some ranks of the world with a plane and an engine of their
 * own.  Set 0 is the world.
 *
 * Sets live in a static table and their engines are never freed, so that a
 * request may be waited for after its set was removed.  `exists` is set last
 * and cleared first.  Adding and removing sets are operations of the world, so
 * they happen in the same order on all ranks, except for sets that their
 * members make alone: the numbers of these differ between ranks.
 */
#ifndef HVD_CORE_SET_H
#define HVD_CORE_SET_H

#include "runtime/core/sched/engine.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/hosts.h"

struct hvd__world_ops;

/* Tells a set that its members have made alone from all others of an elastic
 * job: the generation in which it was made, its first member then, and what
 * `founded` was. */
struct hvd__set_birth {
    uint32_t generation, rank, number;
};

struct hvd__set {
    _Atomic int exists;
    int id;
    int slot;         /* its part of the host's segment */
    int has_claimed;  /* this rank has claimed that part */
    int is_changing;  /* it is made or removed; under the lock of changes */
    uint32_t founded; /* its members have made it alone: a number of its first
                         member; else 0 */
    struct hvd__set_birth birth; /* if `founded` is set */
    int n, me;                /* members; this rank's place, or -1: no member */
    int *ranks;               /* [n]: world ranks, ascending */
    struct hvd__plane *plane; /* NULL: not a member */
    struct hvd__hosts hosts;  /* if has_hosts: on several hosts */
    int has_hosts;
    /* Of the provider that has told the ranks of the world, or NULL. */
    const struct hvd__world_ops *launched;
    struct hvd__engine engine;
};

/* Sets hvd__context.sets, at the first hvd_init. */
void hvd__sets_init(void);

/* Returns the set of that number, or NULL.  After hvd__sets_init. */
static inline struct hvd__set *hvd__set_find(int id)
{
    if (id < 0 || id >= HVD_PROCESS_SETS_MAX)
        return NULL;
    /* Acquire: pairs with the release of hvd__set_publish. */
    return atomic_load_explicit(&hvd__context.sets[id].exists,
                                memory_order_acquire)
               ? &hvd__context.sets[id]
               : NULL;
}

/* Opens the engine of a set whose plane is made.  ranks: n world ranks, copied;
 * this rank is ranks[me], or no member if me is -1.  Returns 0 or
 * -HVD_ENOMEM. */
int hvd__set_open(struct hvd__set *s, const int *ranks, int n, int me);
/* Makes hvd__set_find find the set. */
void hvd__set_publish(struct hvd__set *s);
/* Ends the set and all its operations with `why` (stop); waits for what was
 * launched in it and frees its plane and connections (disconnect), or all that
 * it holds (free).  All idempotent. */
void hvd__set_stop(struct hvd__set *s, const struct hb_error *why);
void hvd__set_disconnect(struct hvd__set *s);
void hvd__set_free(struct hvd__set *s);
/*
 * Two locks protect the table.  A thread that makes or removes a set with all
 * ranks has its turn from begin_change until end_change: one thread at a time,
 * also while it waits for other ranks.  The lock of changes is for moments: it
 * protects is_changing and the choice of a number.  A set is marked while it is
 * made or removed, so that its number stays taken while other threads, which
 * make sets with other members, choose theirs.
 */
/* Waits for this thread's turn.  Returns 0, or negative with err set in a
 * process that is not initialised, which takes no lock. */
int hvd__sets_begin_change(struct hb_error *err);
void hvd__sets_end_change(void);
/* Takes, and gives back, the lock of changes. */
void hvd__sets_lock(void);
void hvd__sets_unlock(void);
/* Marks a free number's set, under the lock of changes, until
 * hvd__sets_changed.  A part of the segment that its last set could not give
 * back stays claimed. */
void hvd__sets_take_locked(struct hvd__set *s);
/* Reserves the highest free number, or one that is free (take), for a set that
 * its members make alone: *s, which is marked, with a new value for `founded`;
 * or marks the set of a number, which is to be removed.  Returns 0, or
 * -HVD_ENOTINIT, -HVD_EINVAL, -HVD_ENOSET with err set.  hvd_shutdown then
 * waits for hvd__sets_changed. */
int hvd__sets_reserve(struct hvd__set **s, uint32_t *founded,
                      struct hb_error *err);
int hvd__sets_take(int id, struct hvd__set **s, uint32_t *founded,
                   struct hb_error *err);
int hvd__sets_mark(int id, struct hvd__set **s, struct hb_error *err);
void hvd__sets_changed(struct hvd__set *s);
/* Adds the counters of a set that has ended to those of the process. */
void hvd__set_collect_stats(struct hvd__set *s);
/* Waits until no thread makes or removes a set.  Called once the library is no
 * longer alive and the world has stopped: no new change begins, so the wait
 * ends. */
void hvd__sets_await_change(void);
/* Prevents sets from being made or removed until released.  Returns 0, and
 * holds nothing, if a thread is doing so.  Never blocks. */
int hvd__sets_hold(void);
void hvd__sets_release(void);

/* Compares two births: negative, 0 or positive. */
int hvd__set_birth_compare(const struct hvd__set_birth *a,
                           const struct hvd__set_birth *b);
/* Returns the place of a world rank in a set, or -1. */
int hvd__set_place(const struct hvd__set *s, int rank);

#endif
