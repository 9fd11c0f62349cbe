/* SPDX-License-Identifier: Apache-2.0 */
/* Adding and removing process sets; see set_change.h. */
#include "runtime/core/set/set_change.h"

#include "lib/base/alloc.h"
#include "runtime/core/set/outcome.h"
#include "runtime/core/set/set.h"
#include "runtime/core/set/set_members.h"
#include "runtime/core/set/words.h"
#include "runtime/core/set/world_set.h"
#include "runtime/core/world/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Adding ------------------------------------------------------------- */

static int by_value(const void *pa, const void *pb)
{
    int a = *(const int *)pa, b = *(const int *)pb;

    return (a > b) - (a < b);
}

/* What a rank asks for, and the outcome. */
struct proposal {
    int size;    /* of the world */
    int *ranks;  /* [size], sorted, INT32_MAX where there are fewer */
    int *all;    /* [size * size]: every rank's */
    int n, slot; /* members; number of the set */
    int twin;    /* the set that has the same ranks; -1: there is none */
    struct hvd__outcome *outcomes; /* [size] */
};

static int same_members(const struct hvd__set *s, const struct proposal *p)
{
    return s->n == p->n && !s->founded &&
           memcmp(s->ranks, p->ranks, (size_t)p->n * sizeof(int)) == 0;
}

static int check_ranks(const struct proposal *p, struct hb_error *err)
{
    for (int i = 0; i < p->n; i++) {
        if (p->ranks[i] < 0 || p->ranks[i] >= p->size)
            return hb_error_set(err, HVD_EINVAL, "rank %d is not in 0..%d",
                                p->ranks[i], p->size - 1);
        if (i && p->ranks[i] == p->ranks[i - 1])
            return hb_error_set(err, HVD_EINVAL, "rank %d is named twice",
                                p->ranks[i]);
    }
    return 0;
}

/* Chooses the set's number: the lowest that is free, or 0 if none is, and marks
 * the set.  It is the same on all ranks, since all have the same sets, unless
 * so many are made by their members alone, from the highest number down, that
 * these meet: claim sees that. */
static int choose_slot(struct proposal *p, struct hb_error *err)
{
    int slot = 0, twin = -1;

    hvd__sets_lock();
    for (int i = HVD_PROCESS_SETS_MAX - 1; i >= 0; i--) {
        const struct hvd__set *s = hvd__set_find(i);

        if (s && same_members(s, p))
            twin = i;
        if (i && !s && !hvd__context.sets[i].is_changing)
            slot = i;
    }
    if (slot && twin < 0)
        hvd__sets_take_locked(&hvd__context.sets[slot]);
    hvd__sets_unlock();
    p->twin = twin;
    if (twin >= 0)
        return hb_error_set(err, HVD_EEXIST,
                            "process set %d has the same ranks", twin);
    p->slot = slot;
    return 0;
}

static int differ(int i, int on_first, int other, int r, struct hb_error *err)
{
    if (on_first == INT32_MAX || other == INT32_MAX)
        return hb_error_set(
            err, HVD_EMISMATCH, "rank %d names more ranks than rank %d",
            on_first == INT32_MAX ? r : 0, on_first == INT32_MAX ? 0 : r);
    return hb_error_set(err, HVD_EMISMATCH,
                        "member %d is rank %d on rank 0 and rank %d on rank %d",
                        i, on_first, other, r);
}

static int compare_all(const struct proposal *p, struct hb_error *err)
{
    const int *first = p->all;

    for (int r = 1; r < p->size; r++) {
        const int *other = p->all + (size_t)r * (size_t)p->size;

        for (int i = 0; i < p->size; i++)
            if (first[i] != other[i])
                return differ(i, first[i], other[i], r, err);
    }
    return 0;
}

/* Exchanges all ranks' outcomes.  Returns the first failure, as
 * hvd__outcome_merge does. */
static int agree_on_outcome(const struct proposal *p, struct hb_error *err)
{
    struct hvd__outcome own;
    size_t room = (size_t)p->size * sizeof(own);

    hvd__outcome_fill(&own, err);
    hvd__words_allgather(&own, sizeof(own), p->outcomes, room, err);
    return hvd__outcome_merge(p->outcomes, NULL, p->size, err);
}

static int too_many(const struct proposal *p, struct hb_error *err)
{
    if (!p->slot)
        return hb_error_set(err, HVD_EINVAL,
                            "there are %d process sets already",
                            HVD_PROCESS_SETS_MAX);
    return hb_error_set(err, HVD_EINVAL,
                        "there are too many process sets that their members "
                        "have made alone");
}

/* Claims the set's part of the segment on each host, where sets that their
 * members make alone may have claimed it.  Returns 0 or negative with err set,
 * on all ranks alike, also if only some of them have no number left. */
static int claim(const struct proposal *p, struct hb_error *err)
{
    struct hvd__set *s = &hvd__context.sets[p->slot];
    int32_t own[3] = {p->slot > 0, p->slot, -p->slot}, least[3];
    int rc;

    if (p->slot && hvd__world_is_first(p->ranks, p->n))
        own[0] = hvd__set_claim(s, p->slot, p->slot);
    rc = hvd__words_allreduce(own, least, 3, HVD_INT32, HVD_MIN, err);
    if (rc == 0 && least[0] && least[1] == -least[2])
        return 0;
    hvd__set_unclaim(s);
    return rc < 0 ? rc : too_many(p, err);
}

/* Makes the set on this rank, and publishes it if all ranks could. */
static int make_set(const struct proposal *p, struct hb_error *err)
{
    struct hvd__set *s = &hvd__context.sets[p->slot];
    int me = -1;
    int rc;

    for (int i = 0; i < p->n; i++)
        if (p->ranks[i] == hvd__context.topology.rank)
            me = i;
    s->n = p->n;
    s->me = me;
    s->founded = 0;
    rc = hvd__set_connect(s, p->ranks, p->n, me, err);
    if (rc == 0 && hvd__set_open(s, p->ranks, p->n, me) < 0)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for a process set");
    /* No rank may use the set before all can. */
    if (agree_on_outcome(p, err) == 0) {
        hvd__set_publish(s);
        return 0;
    }
    if (rc == 0 && me >= 0)
        hvd__engine_close(&s->engine, err);
    hvd__set_disconnect(s);
    hvd__words_barrier(NULL); /* until all have freed their planes */
    hvd__set_unclaim(s);
    return err->status;
}

/* Sums `own` over the ranks; own[0] is 1 on each.  Fails if a rank has joined:
 * it takes no part in changing the sets, and the others cannot do it alone. */
static int sum_of_all(int32_t own[3], struct hb_error *err)
{
    int rc = hvd__words_allreduce(own, own, 3, HVD_INT32, HVD_SUM, err);

    if (rc < 0)
        return rc;
    if (own[0] == hvd__context.topology.size)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "a rank has joined; wait until all have");
}

/* Fails on all ranks, as hvd__outcome_merge does, because some have failed:
 * on these for `why`, and on the others for the first of these. */
static int fail_for(int has_failed, enum hvd_status status, const char *why,
                    struct hb_error *err)
{
    int32_t first =
        has_failed ? hvd__context.topology.rank : hvd__context.topology.size;
    int rc = hvd__words_allreduce(&first, &first, 1, HVD_INT32, HVD_MIN, err);

    if (has_failed) {
        hb_error_clear(err);
        return hb_error_set(err, status, "%s", why);
    }
    if (rc < 0)
        return rc;
    err->is_told = 1;
    return hb_error_set(err, status, "rank %d: %s", (int)first, why);
}

/* Agrees on whether all ranks have valid arguments and memory.  Allocates
 * nothing itself. */
static int agree_to_begin(const struct proposal *p, int valid,
                          struct hb_error *err)
{
    int has_memory = p->ranks && p->all && p->outcomes;
    int32_t ranks[3] = {1, !valid, !has_memory};
    char why[96];
    int rc = sum_of_all(ranks, err);

    if (rc < 0)
        return rc;
    if (ranks[1]) {
        snprintf(why, sizeof(why),
                 "ranks or set is NULL, or count is not in 1..%d", p->size);
        return fail_for(!valid, HVD_EINVAL, why, err);
    }
    if (!ranks[2])
        return 0;
    snprintf(why, sizeof(why), "no memory for %d ranks", p->size);
    return fail_for(!has_memory, HVD_ENOMEM, why, err);
}

int hvd__sets_agree(int number, const char *what, struct hb_error *err)
{
    int32_t ranks[3] = {1, 0, 0}, bounds[2] = {number, ~number};
    int rc = sum_of_all(ranks, err);

    if (rc == 0)
        rc = hvd__words_allreduce(bounds, bounds, 2, HVD_INT32, HVD_MAX, err);
    if (rc < 0)
        return rc;
    if (bounds[0] == ~bounds[1])
        return 0;
    return hb_error_set(err, HVD_EMISMATCH, "one rank %s %d and another %d",
                        what, ~bounds[1], bounds[0]);
}

static int add(const int *ranks, struct proposal *p, struct hb_error *err)
{
    size_t bytes = (size_t)p->size * sizeof(int);
    int rc;

    for (int i = 0; i < p->size; i++)
        p->ranks[i] = i < p->n ? ranks[i] : INT32_MAX;
    qsort(p->ranks, (size_t)p->size, sizeof(int), by_value);
    rc = hvd__words_allgather(p->ranks, bytes, p->all, bytes * (size_t)p->size,
                              err);
    if (rc == 0)
        rc = compare_all(p, err);
    if (rc == 0)
        rc = check_ranks(p, err);
    if (rc == 0)
        rc = choose_slot(p, err);
    if (rc == 0)
        rc = claim(p, err);
    if (rc == 0)
        rc = make_set(p, err);
    if (p->slot)
        hvd__sets_changed(&hvd__context.sets[p->slot]);
    return rc;
}

static int add_set(const int *ranks, size_t count, int *set,
                   struct hb_error *err)
{
    struct proposal p = {.size = hvd__context.topology.size, .twin = -1};
    size_t size = (size_t)p.size;
    int valid = ranks && set && count >= 1 && count <= size;

    p.n = valid ? (int)count : 0;
    p.ranks = hb_calloc(size, sizeof(int));
    p.all = hb_calloc(size * size, sizeof(int));
    p.outcomes = hb_calloc(size, sizeof(*p.outcomes));
    if (agree_to_begin(&p, valid, err) == 0 && add(ranks, &p, err) == 0)
        *set = p.slot;
    else if (p.twin >= 0)
        *set = p.twin;
    hb_free(p.outcomes);
    hb_free(p.ranks);
    hb_free(p.all);
    return err->status ? hb_error_context(err, "hvd_process_set_add") : 0;
}

int hvd__set_add(const int *ranks, size_t count, int *set, struct hb_error *err)
{
    int rc = hvd__sets_begin_change(err);

    if (rc < 0)
        return rc;
    rc = add_set(ranks, count, set, err);
    hvd__sets_end_change();
    return rc;
}

int hvd__set_remake(int id, int *ranks, int n, struct hb_error *err)
{
    struct proposal p = {
        .size = hvd__context.topology.size, .ranks = ranks, .n = n, .slot = id};
    int rc = hvd__sets_begin_change(err);

    if (rc < 0)
        return rc;
    p.outcomes = hb_calloc((size_t)p.size, sizeof(*p.outcomes));
    if (!p.outcomes)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", p.size);
    if (rc == 0) {
        hvd__sets_lock();
        hvd__sets_take_locked(&hvd__context.sets[id]);
        hvd__sets_unlock();
        rc = claim(&p, err);
        if (rc == 0)
            rc = make_set(&p, err);
        hvd__sets_changed(&hvd__context.sets[id]);
    }
    hvd__sets_end_change();
    hb_free(p.outcomes);
    return rc;
}

/* ---- Removing ------------------------------------------------------------ */

/* Cancels what some members have launched while others, which had halted
 * before, have not: it would never end.  Ranks whose plane does not launch, and
 * those that are no members, do not matter. */
static void cancel_launched(struct hvd__set *s, const struct hb_error *why)
{
    const struct hvd__launch_ops *l = s->plane ? s->plane->ops->launches : NULL;
    int64_t own = l ? (int64_t)l->count(s->plane) : INT64_MAX;
    int64_t least = own;

    if (hvd__words_allreduce(&own, &least, 1, HVD_INT64, HVD_MIN, NULL) == 0 &&
        l && own > least)
        l->cancel(s->plane, why);
}

/* Removes a set that is marked. */
static int remove_marked(struct hvd__set *s, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    int rc;

    hb_error_set(&why, HVD_ENOSET, "process set %d was removed", s->id);
    /* A rank uses buffers that others have lent to it (hvd_alloc) until it has
     * halted, so no operation may end before all ranks have. */
    if (s->me >= 0)
        hvd__engine_halt(&s->engine, &why);
    cancel_launched(s, &why); /* its exchange also waits for all to halt */
    hvd__set_stop(s, &why);
    if (s->me >= 0)
        hvd__set_collect_stats(s);
    hvd__set_disconnect(s);
    /* Its number may be used again once all have removed it. */
    rc = hvd__words_barrier(err);
    hvd__set_unclaim(s);
    return rc;
}

static int remove_set(int set, struct hb_error *err)
{
    struct hvd__set *s;
    int rc;

    if (hvd__sets_agree(set, "removes set", err) < 0)
        return hb_error_context(err, "hvd_process_set_remove");
    if (set == HVD_WORLD)
        return hb_error_set(
            err, HVD_EINVAL,
            "hvd_process_set_remove: the world cannot be removed");
    if (hvd__sets_mark(set, &s, err) < 0)
        return hb_error_context(err, "hvd_process_set_remove");
    rc = remove_marked(s, err);
    hvd__sets_changed(s);
    return rc;
}

int hvd__set_remove(int set, struct hb_error *err)
{
    const struct hvd__set *s = hvd__alive() ? hvd__set_find(set) : NULL;
    int rc;

    if (s && s->founded)
        return hvd__set_remove_members(set, err);
    rc = hvd__sets_begin_change(err);

    if (rc < 0)
        return rc;
    rc = remove_set(set, err);
    hvd__sets_end_change();
    return rc;
}
