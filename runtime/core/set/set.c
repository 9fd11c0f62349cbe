/* SPDX-License-Identifier: Apache-2.0 */
/* The table of process sets; see set.h. */
#include "runtime/core/set/set.h"

#include "lib/base/alloc.h"
#include "runtime/core/world/context.h"

#include <pthread.h>
#include <string.h>

void hvd__sets_init(void)
{
    static struct hvd__set table[HVD_PROCESS_SETS_MAX] = {
        [0 ... HVD_PROCESS_SETS_MAX - 1] = {.engine = HVD__ENGINE_INIT}};

    if (!hvd__context.sets)
        hvd__context.sets = table;
}

/* ---- Life --------------------------------------------------------------- */

int hvd__set_open(struct hvd__set *s, const int *ranks, int n, int me)
{
    int rc = 0;

    s->id = (int)(s - hvd__context.sets);
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
    hvd__stall_member(hvd__stall_on(), s->engine.stall.set, s->me >= 0);
    atomic_store_explicit(&s->exists, 1, memory_order_release);
}

void hvd__set_stop(struct hvd__set *s, const struct hb_error *why)
{
    /* Reads first: most of the table is memory that was never written to. */
    if (!atomic_load(&s->exists) || !atomic_exchange(&s->exists, 0))
        return;
    hvd__stall_member(hvd__stall_on(), s->engine.stall.set, 0);
    if (s->me >= 0)
        hvd__engine_close(&s->engine, why);
}

void hvd__set_disconnect(struct hvd__set *s)
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
    if (s->has_claimed)
        s->has_claimed = 0; /* the segment goes */
    if (!s->ranks && !s->plane && !s->has_hosts)
        return; /* was never used: writes nothing, as in hvd__set_stop */
    hvd__set_disconnect(s);
    hb_free(s->ranks);
    s->ranks = NULL; /* n stays: a late caller may still read it */
    s->founded = 0;
    s->has_claimed = 0;
}

/* ---- Changing the table -------------------------------------------------- */

/* Held while all ranks make or remove a set; taken before `changes`. */
static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;
/* Held for moments, never while waiting for other ranks. */
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;
/* Sets whose is_changing is set, and their end; protected by `changes`. */
static int changing;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* The last value for `founded`; protected by `changes`. */
static uint32_t last_founded;

static int lock_alive(pthread_mutex_t *lock, struct hb_error *err)
{
    if (hvd__alive()) {
        pthread_mutex_lock(lock);
        if (hvd__alive())
            return 0;
        pthread_mutex_unlock(lock);
    }
    return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
}

int hvd__sets_begin_change(struct hb_error *err)
{
    return lock_alive(&turns, err);
}

void hvd__sets_end_change(void)
{
    pthread_mutex_unlock(&turns);
}

void hvd__sets_lock(void)
{
    pthread_mutex_lock(&changes);
}

void hvd__sets_unlock(void)
{
    pthread_mutex_unlock(&changes);
}

static void mark(struct hvd__set *s)
{
    s->is_changing = 1;
    changing++;
}

void hvd__sets_take_locked(struct hvd__set *s)
{
    mark(s);
    s->has_claimed = 0;
}

int hvd__sets_reserve(struct hvd__set **s, uint32_t *founded,
                      struct hb_error *err)
{
    int rc = lock_alive(&changes, err), id = HVD_PROCESS_SETS_MAX - 1;

    if (rc < 0)
        return rc;
    while (id > 0 && (hvd__set_find(id) || hvd__context.sets[id].is_changing))
        id--;
    *s = &hvd__context.sets[id];
    *founded = ++last_founded;
    if (id > 0)
        hvd__sets_take_locked(*s);
    else
        rc = hb_error_set(err, HVD_EINVAL, "there are %d process sets already",
                          HVD_PROCESS_SETS_MAX);
    hvd__sets_unlock();
    return rc;
}

int hvd__sets_take(int id, struct hvd__set **s, uint32_t *founded,
                   struct hb_error *err)
{
    int rc = lock_alive(&changes, err);

    if (rc < 0)
        return rc;
    *s = &hvd__context.sets[id];
    *founded = ++last_founded;
    hvd__sets_take_locked(*s);
    hvd__sets_unlock();
    return 0;
}

int hvd__sets_mark(int id, struct hvd__set **s, struct hb_error *err)
{
    int rc = lock_alive(&changes, err);

    if (rc < 0)
        return rc;
    *s = hvd__set_find(id);
    if (*s && !(*s)->is_changing)
        mark(*s);
    else
        rc = hb_error_set(err, HVD_ENOSET, "there is no process set %d", id);
    hvd__sets_unlock();
    return rc;
}

void hvd__sets_changed(struct hvd__set *s)
{
    pthread_mutex_lock(&changes);
    s->is_changing = 0;
    changing--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&changes);
}

void hvd__set_collect_stats(struct hvd__set *s)
{
    pthread_mutex_lock(&changes);
    hvd__stats_move(&hvd__context.removed, &s->engine.controller.stats);
    pthread_mutex_unlock(&changes);
}

void hvd__sets_await_change(void)
{
    pthread_mutex_lock(&turns);
    pthread_mutex_lock(&changes);
    while (changing)
        pthread_cond_wait(&changed, &changes);
    pthread_mutex_unlock(&changes);
    pthread_mutex_unlock(&turns);
}

int hvd__sets_hold(void)
{
    if (pthread_mutex_trylock(&turns) != 0)
        return 0;
    if (pthread_mutex_trylock(&changes) == 0) {
        if (!changing)
            return 1;
        pthread_mutex_unlock(&changes);
    }
    pthread_mutex_unlock(&turns);
    return 0;
}

void hvd__sets_release(void)
{
    pthread_mutex_unlock(&changes);
    pthread_mutex_unlock(&turns);
}

/* ---- Asking -------------------------------------------------------------- */

static int order(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

int hvd__set_birth_compare(const struct hvd__set_birth *a,
                           const struct hvd__set_birth *b)
{
    if (a->generation != b->generation)
        return order(a->generation, b->generation);
    return a->rank != b->rank ? order(a->rank, b->rank)
                              : order(a->number, b->number);
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
