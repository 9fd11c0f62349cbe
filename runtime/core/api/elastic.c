/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_sync, hvd_commit and what belongs to them.
 *
 * An operation in which a rank dies may succeed on some of the other ranks
 * only: those that had all they needed.  Nobody asks which.  Instead hvd_sync
 * compares how far the states have got, by the commits and then by the world's
 * operations since, which all ranks carry out in the same order, and copies one
 * that has got furthest to the ranks that are behind.
 *
 * A state with shards (shard_map.h) goes by commits alone: all of it returns to
 * the last one.
 */
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/segment.h"
#include "runtime/core/api/life.h"
#include "runtime/core/api/shard_sync.h"
#include "runtime/core/api/state.h"
#include "runtime/core/set/set_keep.h"
#include "runtime/core/set/words.h"
#include "runtime/core/set/world_set.h"
#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

#include <stdio.h>

/* Used by hvd_sync, and by calls that do not run beside it. */
static struct {
    struct hvd_change change; /* `generation` 0: not filled in yet */
    uint32_t epoch;           /* of the world that `change` is about */
    hvd_resize_fn *on_resize;
    void *arg;
} elastic;

static uint64_t world_done(void)
{
    return hvd__context.sets[HVD_WORLD].engine.controller.plan.done;
}

static int not_initialised(const char *call)
{
    return hvd__fail(HVD_ENOTINIT, "%s: hvd_init has not been called", call);
}

/* ---- What has changed ---------------------------------------------------- */

/* Brings `change` up to date with the world that this rank has joined. */
static void note_change(void)
{
    const struct worker_welcome *w = hvd__world_welcome();
    const struct hvd__topology *t = &hvd__context.topology;
    struct hvd_change *c = &elastic.change;
    int began = elastic.epoch != 0;

    if (elastic.epoch == hvd__world_epoch() && began)
        return;
    elastic.epoch = hvd__world_epoch();
    *c = (struct hvd_change){
        .generation = (int)atomic_load(&hvd__context.generation),
        .old_rank = began ? c->rank : -1,
        .old_size = began ? c->size : 0,
        .rank = t->rank,
        .size = t->size,
        .joined = (int)w->joined,
        .removed = began ? (int)w->removed : 0,
        .source = -1,
    };
    if (began)
        c->lost = c->old_size + c->joined - c->removed - c->size;
    if (c->lost < 0)
        c->lost = 0;
    if (c->generation)
        snprintf(c->why, sizeof(c->why), "%s", w->why);
}

int hvd_generation(void)
{
    return hvd__alive() ? (int)atomic_load(&hvd__context.generation)
                        : not_initialised("hvd_generation");
}

int hvd_change(struct hvd_change *c)
{
    if (!c)
        return hvd__fail(HVD_EINVAL, "hvd_change: c is NULL");
    if (!hvd__alive())
        return not_initialised("hvd_change");
    note_change();
    *c = elastic.change;
    return 0;
}

int hvd_notice(int64_t *ms_left)
{
    const struct segment_head *head = hvd__world_head();
    int local_rank = hvd__context.topology.local_rank;
    uint64_t until_ns = 0, now_ns = hb_now_ns();

    if (!ms_left)
        return hvd__fail(HVD_EINVAL, "hvd_notice: ms_left is NULL");
    if (!hvd__alive())
        return not_initialised("hvd_notice");
    if (head)
        until_ns = atomic_load_explicit(&head->wake[local_rank].notice_ns,
                                        memory_order_relaxed);
    if (until_ns == 0)
        *ms_left = -1;
    else if (until_ns == UINT64_MAX)
        *ms_left = INT64_MAX;
    else
        *ms_left =
            until_ns > now_ns ? (int64_t)((until_ns - now_ns) / 1000000) : 0;
    return 0;
}

int hvd_on_resize(hvd_resize_fn *fn, void *arg)
{
    elastic.on_resize = fn;
    elastic.arg = arg;
    return 0;
}

/* ---- hvd_sync ------------------------------------------------------------ */

/* Finds the first rank whose state has got furthest, and whether any is
 * behind; both are 0 before.  Returns 0, -HVD_EMISMATCH or -HVD_ENOENT. */
static int compare_ages(const struct hvd__state_age *ages, int n, int *source,
                        int *behind)
{
    for (int i = 1; i < n; i++) {
        int order = hvd__state_compare(&ages[i], &ages[*source]);

        if (ages[i].layout != ages[0].layout)
            return hvd__fail(HVD_EMISMATCH,
                             "hvd_sync: ranks 0 and %d have added different "
                             "memory to their states; names, sizes and order "
                             "must be the same on all ranks",
                             i);
        if (order > 0)
            *source = i;
        *behind |= order != 0;
    }
    /* The start values of a rank that has just come would replace it. */
    for (int i = 0; i < n; i++)
        if (ages[*source].whole < HVD__STATE_SYNCED &&
            ages[i].whole == HVD__STATE_IN_PART)
            return hvd__fail(HVD_ENOENT,
                             "hvd_sync: no rank has a complete state: it was "
                             "lost with a rank that gave it out (rank %d has a "
                             "part of it)",
                             i);
    return 0;
}

/* Copies the state of `source` to all ranks; is_behind: this rank's is older or
 * has never been synchronised. */
static int give_out(struct hvd_state *s, int source, int is_behind)
{
    int rc = 0;

    /* Until it is complete, nobody must take it from this rank, unless this one
     * can return to its own commit; the source's is the job's from now on. */
    if (hvd__context.topology.rank == source) {
        if (s->whole != HVD__STATE_SYNCED)
            hvd__state_keep(s);
        s->whole = HVD__STATE_SYNCED;
    } else if (is_behind &&
               (!s->shards.blocks || s->whole != HVD__STATE_SYNCED)) {
        s->whole = HVD__STATE_IN_PART;
    }
    for (size_t i = 0; i < s->count && rc == 0; i++)
        if (!(s->blocks[i].flags & HVD_STATE_SHARDED))
            rc = hvd_broadcast(s->blocks[i].p, s->blocks[i].p,
                               s->blocks[i].bytes, HVD_UINT8, source, NULL);
    return rc;
}

/* Makes the state the same on all ranks.  `mine` is its age when hvd_sync was
 * called. */
static int share(struct hvd_state *s, const struct hvd__state_age *mine)
{
    int n = hvd__context.topology.size, source = 0, behind = 0, rc;
    struct hvd__state_age *ages = hb_calloc((size_t)n, sizeof(*ages));
    struct hb_error err = HB_ERROR_INIT;

    if (!ages)
        return hvd__fail(HVD_ENOMEM, "hvd_sync: no memory for %d ranks", n);
    if (s && s->shards.blocks && s->whole == HVD__STATE_SYNCED)
        hvd__state_rewind(s);
    rc = hvd__words_allgather(mine, sizeof(*mine), ages,
                              (size_t)n * sizeof(*ages), &err);
    rc = rc < 0 ? hvd__tell(&err) : compare_ages(ages, n, &source, &behind);
    /* The first time all have the same age. */
    if (rc == 0 && s && (behind || ages[source].whole < HVD__STATE_SYNCED)) {
        rc = give_out(s, source,
                      ages[source].whole < HVD__STATE_SYNCED ||
                          hvd__state_compare(mine, &ages[source]) != 0);
        elastic.change.source = source;
    }
    if (rc == 0 && s && s->shards.blocks)
        rc = hvd__shards_sync(s, ages[source].version);
    if (rc == 0 && s)
        hvd__state_settle(s, ages[source].version, hvd__world_epoch(),
                          world_done());
    hb_free(ages);
    return rc;
}

/* Resets a state that this rank kept while the job went on without it: its
 * version would otherwise be compared with those of the other ranks. */
static void forget_old(struct hvd_state *s)
{
    if (s && s->whole == HVD__STATE_SYNCED && s->epoch < hvd__sets_returned())
        hvd__state_forget(s);
}

static int call_on_resize(void)
{
    int is_new = elastic.epoch != hvd__world_epoch();

    note_change();
    if (!is_new || !elastic.on_resize || elastic.change.old_rank < 0)
        return 0;
    return elastic.on_resize(elastic.arg, &elastic.change);
}

int hvd_sync(hvd_state *s)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__state_age mine;
    int rc = -HVD_ERESIZED;

    if (!hvd__alive())
        return not_initialised("hvd_sync");
    if (s && s->shards.blocks && hvd__shards_allowed() < 0)
        return -HVD_EINVAL;
    note_change();
    elastic.change.source = -1;
    forget_old(s);
    if (s)
        s->shards.is_taken = 1;
    mine = hvd__state_age(s, hvd__world_epoch(), world_done());
    if (!atomic_load(&hvd__context.resized))
        rc = share(s, &mine);
    while (rc == -HVD_ERESIZED) {
        if (hvd__renew(0, &err) < 0)
            return hvd__tell(&err);
        rc = call_on_resize();
        forget_old(s);
        /* A rank that was given a part of the state only is behind now. */
        if (s && s->whole == HVD__STATE_IN_PART) {
            mine = (struct hvd__state_age){.layout = mine.layout};
        } else if (s) {
            mine.whole = s->whole;
            mine.version = s->version;
        }
        if (rc == 0)
            rc = share(s, &mine);
    }
    return rc;
}

/* ---- hvd_commit ---------------------------------------------------------- */

/* Asks all ranks whether the world is to change, because others wait to join it
 * or some are to leave: 1, 0, or negative. */
static int ask_changes(uint32_t changes)
{
    struct hb_error err = HB_ERROR_INIT;

    if (!atomic_load(&hvd__context.generation))
        return 0;
    if (hvd__words_allreduce(&changes, &changes, 1, HVD_INT32, HVD_MAX, &err) <
        0)
        return hvd__tell(&err);
    return (int)changes;
}

/* Returns whether the state may be committed: hvd_sync has returned 0 for it in
 * this generation, or it is new and has no shards. */
static int may_commit(const struct hvd_state *s)
{
    if (s->whole == HVD__STATE_SYNCED)
        return s->epoch == hvd__world_epoch();
    return s->whole == HVD__STATE_NEW && !s->shards.blocks;
}

int hvd_commit(hvd_state *s)
{
    struct segment_head *head;
    int changes;

    if (!s)
        return hvd__fail(HVD_EINVAL, "hvd_commit: the state is NULL");
    if (!hvd__alive())
        return not_initialised("hvd_commit");
    if (!may_commit(s))
        return hvd__fail(HVD_EINVAL, "hvd_commit: hvd_sync has not returned 0 "
                                     "for this state in this generation");
    head = hvd__world_head();
    /* Acquire: who is to leave was told before (is_leaving). */
    changes =
        head ? (int)atomic_load_explicit(&head->change, memory_order_acquire)
             : 0;
    changes = s->shards.blocks ? hvd__shards_commit(s, changes)
                               : ask_changes((uint32_t)changes);
    if (changes < 0)
        return changes;
    hvd__state_settle(s, s->version + 1, hvd__world_epoch(), world_done());
    /* For the agent; read first, because the line is shared. */
    if (head && !atomic_load_explicit(&head->committed, memory_order_relaxed))
        atomic_store_explicit(&head->committed, 1, memory_order_relaxed);
    if (changes == 0)
        return 0;
    atomic_store(&hvd__context.resized, 1);
    return hvd__fail(HVD_ERESIZED,
                     "hvd_commit: ranks wait to join generation %d, or are to "
                     "leave it; call hvd_sync",
                     hvd_generation());
}

int hvd_elastic_run(hvd_state *s, int (*step)(void *arg), void *arg)
{
    int rc;

    if (!s || !step)
        return hvd__fail(HVD_EINVAL, "hvd_elastic_run: a pointer is NULL");
    rc = hvd_sync(s);
    while (rc == 0) {
        rc = step(arg);
        if (rc != -HVD_ERESIZED)
            continue;
        rc = hvd_restore(s);
        if (rc == 0)
            rc = hvd_sync(s);
    }
    return rc < 0 ? rc : 0;
}
