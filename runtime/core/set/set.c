/* SPDX-License-Identifier: Apache-2.0 */
/* The table of process sets, and the calls on it; see set.h. */
#include "runtime/core/set/set.h"

#include "lib/base/alloc.h"
#include "runtime/core/set/words.h"
#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hvd__stats hvd__removed_stats;
struct hvd__set hvd__sets[HVD_PROCESS_SETS_MAX] = {
    [0 ... HVD_PROCESS_SETS_MAX - 1] = {.engine = HVD__ENGINE_INIT}};

/* ---- Life -------------------------------------------------------------- */

int hvd__set_open(struct hvd__set *s, const int *ranks, int n, int me)
{
    int rc = 0;

    s->id = (int)(s - hvd__sets);
    s->engine.stall.set = s->id;
    /* Allocated once for all sets of this number: a call that found the set may
     * still read it after the set was removed. */
    if (!s->ranks)
        s->ranks =
            hb_calloc((size_t)hvd__context.topology.size, sizeof(*s->ranks));
    if (!s->ranks)
        return -HVD_ENOMEM;
    memcpy(s->ranks, ranks, (size_t)n * sizeof(*s->ranks));
    s->n = n;
    s->me = me;
    if (me >= 0)
        rc = hvd__engine_open(&s->engine, s->plane, ranks, n, me);
    s->engine.controller.set = s->id;
    s->engine.controller.host_of = s->has_hosts ? hvd__hosts_name : NULL;
    s->engine.controller.host_arg = &s->hosts;
    s->engine.cpu = hvd__context.knobs.engine_cpu;
    s->engine.controller.fusion_bytes = hvd__context.knobs.fusion_bytes;
    return rc;
}

void hvd__set_publish(struct hvd__set *s)
{
    hvd__stall_member(s->id, s->me >= 0);
    atomic_store_explicit(&s->exists, 1, memory_order_release);
}

void hvd__set_stop(struct hvd__set *s, const struct hb_error *why)
{
    if (!atomic_exchange(&s->exists, 0))
        return;
    hvd__stall_member(s->id, 0);
    if (s->me >= 0)
        hvd__engine_close(&s->engine, why);
}

/* Waits for what was launched in the set, and frees its plane and
 * connections. */
static void disconnect(struct hvd__set *s)
{
    if (s->plane) {
        hvd__engine_drain(&s->engine);
        s->plane->ops->free(s->plane);
    }
    s->plane = NULL;
    if (s->has_hosts)
        hvd__hosts_fini(&s->hosts);
    s->has_hosts = 0;
}

void hvd__set_free(struct hvd__set *s)
{
    disconnect(s);
    hb_free(s->ranks);
    s->ranks = NULL; /* n stays: a late caller may still read it */
}

/* Held while a set is made or removed. */
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;

/* Takes `changes`.  Returns 0, or negative with err set.  A forked child takes
 * no lock. */
static int begin_change(struct hb_error *err)
{
    if (hvd__alive()) {
        pthread_mutex_lock(&changes);
        if (hvd__alive())
            return 0;
        pthread_mutex_unlock(&changes);
    }
    return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
}

static void end_change(void)
{
    pthread_mutex_unlock(&changes);
}

void hvd__sets_await_change(void)
{
    pthread_mutex_lock(&changes);
    pthread_mutex_unlock(&changes);
}

int hvd__sets_hold(void)
{
    return pthread_mutex_trylock(&changes) == 0;
}

void hvd__sets_release(void)
{
    pthread_mutex_unlock(&changes);
}

int hvd__set_place(const struct hvd__set *s, int rank)
{
    int low = 0, high = s->n;

    if (rank < 0)
        return -1;
    if (rank < s->n && s->ranks[rank] == rank)
        return rank;
    while (low < high) {
        int mid = low + (high - low) / 2;

        if (s->ranks[mid] < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n && s->ranks[low] == rank ? low : -1;
}

/* ---- Adding ------------------------------------------------------------- */

static int by_value(const void *pa, const void *pb)
{
    int a = *(const int *)pa, b = *(const int *)pb;

    return (a > b) - (a < b);
}

/* One rank's outcome; all ranks report the first failure. */
struct outcome {
    int32_t status;
    char text[HB_ERROR_TEXT_MAX];
};

/* What a rank asks for, and the outcome. */
struct proposal {
    int size;    /* of the world */
    int *ranks;  /* [size], sorted, INT32_MAX where there are fewer */
    int *all;    /* [size * size]: every rank's */
    int n, slot; /* members; number of the set */
    struct outcome *outcomes; /* [size] */
};

static int same_members(const struct hvd__set *s, const struct proposal *p)
{
    return s->n == p->n &&
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

/* Chooses the set's number: the same on all ranks, since all have the same
 * sets. */
static int choose_slot(struct proposal *p, struct hb_error *err)
{
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++) {
        const struct hvd__set *s = hvd__set_find(i);

        if (s && same_members(s, p))
            return hb_error_set(err, HVD_EINVAL,
                                "process set %d has the same ranks", i);
        if (!s && !p->slot)
            p->slot = i;
    }
    if (p->slot)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "there are %d process sets already",
                        HVD_PROCESS_SETS_MAX);
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

/* Exchanges all ranks' outcomes.  Returns the first failure, this rank's own
 * before the others'. */
static int agree_on_outcome(const struct proposal *p, struct hb_error *err)
{
    struct outcome own = {err->status, ""}, *all = p->outcomes;
    size_t room = (size_t)p->size * sizeof(own);

    snprintf(own.text, sizeof(own.text), "%s", err->text);
    hvd__words_allgather(&own, sizeof(own), all, room, err);
    for (int r = 0; r < p->size && !err->status; r++)
        if (all[r].status)
            hb_error_set(err, hb_status_told(all[r].status), "rank %d: %.*s", r,
                         (int)sizeof(all[r].text) - 1, all[r].text);
    return err->status;
}

/* Makes the set on this rank, and publishes it if all ranks could. */
static int make_set(const struct proposal *p, struct hb_error *err)
{
    struct hvd__set *s = &hvd__sets[p->slot];
    int me = -1;
    int rc;

    for (int i = 0; i < p->n; i++)
        if (p->ranks[i] == hvd__context.topology.rank)
            me = i;
    s->n = p->n;
    s->me = me;
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
    disconnect(s);
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

/* Agrees on whether all ranks have valid arguments and memory.  Allocates
 * nothing itself. */
static int agree_to_begin(const struct proposal *p, int valid,
                          struct hb_error *err)
{
    int has_memory = p->ranks && p->all && p->outcomes;
    int32_t ranks[3] = {1, !valid, !has_memory};
    int rc = sum_of_all(ranks, err);

    if (rc < 0)
        return rc;
    if (ranks[1])
        return hb_error_set(err, HVD_EINVAL,
                            "ranks or set is NULL, or count is not in 1..%d, "
                            "on %s rank",
                            p->size, valid ? "another" : "this");
    if (!ranks[2])
        return 0;
    return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks on %s rank",
                        p->size, has_memory ? "another" : "this");
}

/* Checks that `number` is the same on all ranks.  what: a phrase for the
 * message on what is done with it. */
static int agree_on_number(int number, const char *what, struct hb_error *err)
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
    return rc == 0 ? make_set(p, err) : rc;
}

static int add_set(const int *ranks, size_t count, int *set,
                   struct hb_error *err)
{
    struct proposal p = {.size = hvd__context.topology.size};
    size_t size = (size_t)p.size;
    int valid = ranks && set && count >= 1 && count <= size;

    p.n = valid ? (int)count : 0;
    p.ranks = hb_calloc(size, sizeof(int));
    p.all = hb_calloc(size * size, sizeof(int));
    p.outcomes = hb_calloc(size, sizeof(*p.outcomes));
    if (agree_to_begin(&p, valid, err) == 0 && add(ranks, &p, err) == 0)
        *set = p.slot;
    hb_free(p.outcomes);
    hb_free(p.ranks);
    hb_free(p.all);
    return err->status ? hb_error_context(err, "hvd_process_set_add") : 0;
}

int hvd__set_add(const int *ranks, size_t count, int *set, struct hb_error *err)
{
    int rc = begin_change(err);

    if (rc < 0)
        return rc;
    rc = add_set(ranks, count, set, err);
    end_change();
    return rc;
}

int hvd_process_set_add(const int *ranks, size_t count, int *set)
{
    struct hb_error err = HB_ERROR_INIT;

    hvd__set_add(ranks, count, set, &err);
    return hvd__tell(&err);
}

static int add_sets(const int *const *ranks, const size_t *counts, size_t n,
                    struct hb_error *err)
{
    int shown = n < INT32_MAX ? (int)n : INT32_MAX;
    int rc = agree_on_number(shown, "wants this many sets:", err);

    for (size_t i = 0; i < n && rc == 0; i++) {
        int set;

        rc = hvd__set_add(ranks[i], counts[i], &set, err);
    }
    return rc;
}

int hvd_init_sets(const int *const *ranks, const size_t *counts, size_t n)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    if (hvd_is_initialized())
        return hvd__fail(HVD_EINVAL, "hvd_init_sets: already initialised");
    if (n && (!ranks || !counts))
        return hvd__fail(HVD_EINVAL, "hvd_init_sets: ranks or counts is NULL");
    rc = hvd_init();
    if (rc < 0)
        return rc;
    if (add_sets(ranks, counts, n, &err) == 0)
        return 0;
    hb_error_context(&err, "hvd_init_sets");
    hvd__blame(&err); /* while there is an agent to tell */
    hvd_shutdown();
    return hvd__tell(&err);
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

static int remove_set(int set, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    struct hvd__set *s;

    if (agree_on_number(set, "removes set", err) < 0)
        return hb_error_context(err, "hvd_process_set_remove");
    if (set == HVD_WORLD)
        return hb_error_set(
            err, HVD_EINVAL,
            "hvd_process_set_remove: the world cannot be removed");
    s = hvd__set_find(set);
    if (!s)
        return hb_error_set(err, HVD_ENOSET,
                            "hvd_process_set_remove: there is no process set "
                            "%d",
                            set);
    hb_error_set(&why, HVD_ENOSET, "process set %d was removed", set);
    /* A rank uses buffers that others have lent to it (hvd_alloc) until it has
     * halted, so no operation may end before all ranks have. */
    if (s->me >= 0)
        hvd__engine_halt(&s->engine, &why);
    cancel_launched(s, &why); /* its exchange also waits for all to halt */
    hvd__set_stop(s, &why);
    if (s->me >= 0)
        hvd__stats_move(&hvd__removed_stats, &s->engine.controller.stats);
    disconnect(s);
    /* Its number may be used again once all have removed it. */
    return hvd__words_barrier(err);
}

int hvd_process_set_remove(int set)
{
    struct hb_error err = HB_ERROR_INIT;

    if (begin_change(&err) == 0) {
        remove_set(set, &err);
        end_change();
    }
    return hvd__tell(&err);
}

/* ---- Asking -------------------------------------------------------------- */

/* Returns the set, or NULL with *rc set and the error recorded. */
static struct hvd__set *look_up(int set, int *rc)
{
    struct hvd__set *s = hvd__alive() ? hvd__set_find(set) : NULL;

    if (!s && !hvd__alive())
        *rc = hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    else if (!s)
        *rc = hvd__fail(HVD_ENOSET, "there is no process set %d", set);
    return s;
}

int hvd_process_set_rank(int set)
{
    int rc = 0;
    const struct hvd__set *s = look_up(set, &rc);

    if (s && s->me < 0)
        return hvd__fail(HVD_ENOTMEMBER, "rank %d is not in process set %d",
                         hvd__context.topology.rank, set);
    return s ? s->me : rc;
}

int hvd_process_set_size(int set)
{
    int rc = 0;
    const struct hvd__set *s = look_up(set, &rc);

    return s ? s->n : rc;
}

int hvd_process_set_ranks(int set, int *ranks, size_t cap)
{
    int rc = 0;
    const struct hvd__set *s = look_up(set, &rc);

    if (!s)
        return rc;
    for (size_t i = 0; ranks && i < cap && i < (size_t)s->n; i++)
        ranks[i] = s->ranks[i];
    return s->n;
}

int hvd_process_sets(int *sets, size_t cap)
{
    int count = 0;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        if (hvd__set_find(i)) {
            if (sets && (size_t)count < cap)
                sets[count] = i;
            count++;
        }
    return count;
}

size_t hvd_reducescatter_rows(size_t rows, int process_set)
{
    const struct hvd__set *s = hvd__alive() ? hvd__set_find(process_set) : NULL;
    struct hvd__op op = {.count = rows, .row_elems = 1};

    return s && s->me >= 0 ? hvd__op_share(&op, s->me, s->n).count : 0;
}
