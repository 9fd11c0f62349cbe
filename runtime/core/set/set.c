/* SPDX-License-Identifier: Apache-2.0 */
/* The table of process sets; see set.h. */
#include "runtime/core/set/set.h"

#include "lib/base/alloc.h"
#include "runtime/core/world/context.h"

#include <pthread.h>
#include <string.h>

struct hvd__set hvd__sets[HVD_PROCESS_SETS_MAX] = {
    [0 ... HVD_PROCESS_SETS_MAX - 1] = {.engine = HVD__ENGINE_INIT}};

/* ---- Life --------------------------------------------------------------- */

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
    hvd__set_disconnect(s);
    hb_free(s->ranks);
    s->ranks = NULL; /* n stays: a late caller may still read it */
}

/* ---- Changing the table -------------------------------------------------- */

/* Held while a set is made or removed. */
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;

int hvd__sets_begin_change(struct hb_error *err)
{
    if (hvd__alive()) {
        pthread_mutex_lock(&changes);
        if (hvd__alive())
            return 0;
        pthread_mutex_unlock(&changes);
    }
    return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
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

/* ---- Asking -------------------------------------------------------------- */

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
