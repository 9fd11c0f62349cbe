/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what an engine waits for, for the stall inspector (trace/stall.h). */
#include "runtime/core/sched/engine_impl.h"

static const uint64_t list_ns = 50 * 1000000; /* shorter waits are not listed */
static const uint64_t look_ns = 1000 * 1000000; /* longest time between looks */

static void add(struct hvd__stall_waits *w, const struct hvd_request *req,
                uint64_t index)
{
    const struct hvd__op *op = &req->op;

    w->waits[w->count++] = (struct hvd__stall_wait){
        .since_ns = req->stall_ns,
        .key = op->name[0] ? op->hashes.name : hvd__mix(1, index),
        .kind = op->kind,
        .name = op->name,
    };
}

/* Lists the oldest requests of the queue, and `alone`, which is not in it (or
 * NULL); under the lock, which keeps their names.  While the oldest one is a
 * join, the set does not wait for others. */
static void list(const struct hvd__engine *e, const struct hvd_request *alone,
                 const struct segment_status *s, struct hvd__stall_waits *w)
{
    const struct hvd_request *oldest = alone ? alone : e->head;
    uint64_t index = e->controller.plan.unnamed_done;

    w->set = e->stall.set;
    w->asked = atomic_load(&s->asked);
    w->pending = e->head ? atomic_load(&e->queued) : alone != NULL;
    w->since_ns = oldest && oldest->op.kind != HVD__JOIN ? oldest->stall_ns : 0;
    w->count = 0;
    if (alone)
        add(w, alone, index);
    for (const struct hvd_request *r = e->head;
         r && w->count < STATUS_WAITS_MAX; r = r->next)
        add(w, r, r->op.name[0] ? 0 : index++);
}

void hvd__stall_look(struct hvd__engine *e, const struct hvd_request *alone,
                     struct segment_status *s, uint64_t now_ns)
{
    uint64_t next_ns = now_ns + look_ns, since_ns, limit_ns;
    const struct hvd_request *oldest;
    struct hvd__stall_waits w;

    pthread_mutex_lock(&e->lock);
    oldest = alone ? alone : e->head;
    since_ns = oldest ? oldest->stall_ns : now_ns;
    /* The request may have been issued after the clock was read. */
    if (since_ns > now_ns)
        now_ns = since_ns;
    if (now_ns - since_ns < list_ns &&
        atomic_load(&s->asked) == atomic_load(&s->answered)) {
        e->stall.look_ns = since_ns + list_ns;
        pthread_mutex_unlock(&e->lock);
        return;
    }
    list(e, alone, s, &w);
    atomic_store_explicit(&e->stall.listed, 1, memory_order_relaxed);
    limit_ns = hvd__stall_publish(&w, s, now_ns);
    if (w.since_ns && limit_ns && w.since_ns + limit_ns > now_ns &&
        w.since_ns + limit_ns < next_ns)
        next_ns = w.since_ns + limit_ns;
    e->stall.look_ns = next_ns;
    pthread_mutex_unlock(&e->lock);
}

void hvd__stall_settle(struct hvd__engine *e)
{
    struct segment_status *s = hvd__stall_on();
    struct hvd__stall_waits w;

    atomic_store_explicit(&e->stall.listed, e->head != NULL,
                          memory_order_relaxed);
    if (!s)
        return;
    list(e, NULL, s, &w);
    hvd__stall_publish(&w, s, status_now_ns());
}
