/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of an engine: what callers append and the controller completes. */
#include "runtime/core/sched/engine_impl.h"

#include "runtime/core/world/message.h"

/* ---- Appending ----------------------------------------------------------- */

int engine_find_entry(struct hvd__engine *e, struct hvd_request *req,
                      struct hb_error *err)
{
    struct hvd__plan *plan = &e->controller.plan;
    const struct hvd__op *op = &req->op;
    int joins = op->kind == HVD__JOIN;

    if (plan->joining.pending)
        return hb_error_set(err, HVD_EINVAL,
                            "%s: this rank has joined, and must wait for that "
                            "first",
                            collective_name(op->kind));
    /* If a caller drives, something is in flight, queued or alone. */
    if (joins && (e->head || atomic_load(&e->driver) == HVD__DRIVER_CALLER))
        return hb_error_set(err, HVD_EINVAL,
                            "join: something is in flight on this rank; wait "
                            "for it first");
    req->entry = joins ? &plan->joining
                       : hvd__plan_entry(plan, op->name, op->hashes.name);
    if (!req->entry)
        return hb_error_set(err, HVD_ENOMEM, "no memory for one more name");
    if (req->entry->pending && req->entry != &plan->unnamed)
        return hb_error_set(err, HVD_EDUPNAME,
                            "%s \"%s\": an operation of that name is in "
                            "flight; wait for it first",
                            collective_name(op->kind), op->name);
    return 0;
}

void engine_append_locked(struct hvd__engine *e, struct hvd_request *req)
{
    struct hvd__entry *entry = req->entry;

    req->engine = e;
    req->next = req->same = NULL;
    req->before = e->tail;
    if (e->tail)
        e->tail->next = req;
    else
        e->head = req;
    e->tail = req;
    if (entry == &e->controller.plan.unnamed) {
        if (e->last_unnamed)
            e->last_unnamed->same = req;
        else
            entry->pending = req;
        e->last_unnamed = req;
    } else {
        entry->pending = req;
    }
    atomic_fetch_add(&e->queued, 1);
    atomic_fetch_add(&e->controller.issued, 1);
}

/* ---- Completing ---------------------------------------------------------- */

void engine_finish(struct hvd__engine *e, struct hvd_request *req, int rc)
{
    hvd__op_release(&req->op);
    if (rc < 0)
        hvd__stats_count(&e->controller.stats.errors, 1);
    if (rc < 0 && !req->err.status)
        hb_error_set(&req->err, (enum hvd_status) - rc, "%s",
                     hb_status_text(rc));
    hvd__translate(&req->err);
    if (req->on_done)
        req->on_done(req->done_arg, req->err.status);
    /* Release: pairs with hvd__request_done.  A sleeper misses nothing: whoever
     * completes requests takes the lock afterwards to wake it. */
    atomic_store_explicit(&req->done, 1, memory_order_release);
}

static void unlink_locked(struct hvd__engine *e, struct hvd_request *req)
{
    struct hvd__entry *entry = req->entry;
    struct hvd_request *r = entry->pending, *older = NULL;

    if (req->before)
        req->before->next = req->next;
    else
        e->head = req->next;
    if (req->next)
        req->next->before = req->before;
    else
        e->tail = req->before;
    for (; r != req; r = r->same)
        older = r;
    if (older)
        older->same = req->same;
    else
        entry->pending = req->same;
    if (e->last_unnamed == req)
        e->last_unnamed = older;
    atomic_fetch_sub(&e->queued, 1);
}

void hvd__engine_launched(struct hvd__engine *e, struct hvd_request **reqs,
                          size_t n, const struct hvd__op *op)
{
    e->launched = op->device.launch;
    for (size_t i = 0; i < n; i++) {
        reqs[i]->op.device.launch = op->device.launch;
        reqs[i]->op.device.earlier = op->device.earlier;
        reqs[i]->opened = atomic_load(&e->opened);
    }
}

void hvd__engine_complete(struct hvd__engine *e, struct hvd_request **reqs,
                          size_t n, int rc)
{
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < n; i++)
        unlink_locked(e, reqs[i]);
    pthread_mutex_unlock(&e->lock);
    for (size_t i = 0; i < n; i++)
        engine_finish(e, reqs[i], rc);
    pthread_mutex_lock(&e->lock);
    if (hvd__stall_listed(&e->stall))
        hvd__stall_settle(e);
    if (atomic_load(&e->sleepers))
        pthread_cond_broadcast(&e->turn);
    pthread_mutex_unlock(&e->lock);
}

void hvd__engine_fail_all(struct hvd__engine *e, const struct hb_error *err)
{
    unsigned left;

    pthread_mutex_lock(&e->lock);
    /* Not those queued meanwhile, which a thread could go on to do for ever. */
    for (left = atomic_load(&e->queued); left > 0; left--) {
        struct hvd_request *req = e->head;

        unlink_locked(e, req);
        req->err = *err;
        hb_error_context(&req->err, "%s", collective_name(req->op.kind));
        pthread_mutex_unlock(&e->lock);
        engine_finish(e, req, err->status);
        pthread_mutex_lock(&e->lock);
    }
    if (hvd__stall_listed(&e->stall))
        hvd__stall_settle(e);
    if (atomic_load(&e->sleepers))
        pthread_cond_broadcast(&e->turn);
    pthread_mutex_unlock(&e->lock);
}
