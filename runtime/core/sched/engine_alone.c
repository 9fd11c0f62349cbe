/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking calls.  When nothing is queued, the calling thread carries the call
 * out from start to end without the queue; else the call is queued.
 */
#include "runtime/core/sched/engine_impl.h"
#include "runtime/core/sched/record.h"

#include <string.h>

/* Queues req behind others and waits for it. */
static int run_queued(struct hvd__engine *e, struct hvd_request *req)
{
    int rc;

    hvd__record_issued(&e->controller, req, 0);
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&e->stopping))
        rc = engine_stopped(e, req, &req->err);
    else
        rc = engine_find_entry(e, req, &req->err);
    if (rc == 0)
        rc = engine_supports(e, &req->op, &req->err);
    if (rc == 0) {
        engine_append_locked(e, req);
        engine_tell_driver(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (rc < 0)
        return rc;
    engine_wait(e, req, 0);
    return req->err.status;
}

static int step_back_and_wait(struct hvd__engine *e, struct hvd_request *req)
{
    engine_step_back(e);
    engine_wait(e, req, 0);
    return req->err.status;
}

/* Queues a request that was being carried out alone. */
static void append(struct hvd__engine *e, struct hvd_request *req)
{
    pthread_mutex_lock(&e->lock);
    req->entry = &e->controller.plan.unnamed;
    engine_append_locked(e, req);
    pthread_mutex_unlock(&e->lock);
}

/* Queues req after the other ranks have proposed something else, so that it
 * takes part in the agreement. */
static int run_denied(struct hvd__engine *e, struct hvd_request *req, int rc)
{
    append(e, req);
    hvd__controller_denied(&e->controller, req, rc);
    return step_back_and_wait(e, req);
}

/* Queues req when the engine stops, so that hvd__engine_close fails it. */
static int run_stopped(struct hvd__engine *e, struct hvd_request *req)
{
    append(e, req);
    return step_back_and_wait(e, req);
}

/* Carries req out while nothing is queued; the calling thread is the driver and
 * stays it.  Returns 0 if the engine stops, else the outcome of progress. */
static int carry_out(struct hvd__engine *e, struct hvd_request *req)
{
    struct hvd__controller *c = &e->controller;
    int rc;

    hvd__record_issued(c, req, 1);
    rc = hvd__controller_start(c, req);
    while (rc == 0) {
        rc = hvd__controller_progress(c, req);
        if (rc == 0 && atomic_load(&e->stopping))
            return 0;
        if (rc == 0)
            engine_pause(e, req, 0);
    }
    return rc;
}

/* Updates the stall list after a request was completed without the queue. */
static void update_stall_list(struct hvd__engine *e)
{
    if (!hvd__stall_listed(&e->stall))
        return;
    pthread_mutex_lock(&e->lock);
    hvd__stall_settle(e);
    pthread_mutex_unlock(&e->lock);
}

/* Copies a request; even: memory for its n sendcounts. */
static void copy(struct hvd_request *to, size_t *even,
                 const struct hvd_request *from, size_t n)
{
    *to = *from;
    to->op.err = &to->err;
    if (!from->op.sendcounts)
        return;
    memcpy(even, from->op.sendcounts, n * sizeof(*even));
    to->op.sendcounts = even;
}

/* Caches a blocking call that was made twice in succession.  Not where a
 * provider must look at the buffers of each call. */
static void remember(struct hvd__engine *e, const struct hvd_request *req)
{
    struct hvd__again *a = &e->again;
    size_t n = (size_t)e->controller.n;

    if (!req->given || hvd__context.looks_at_buffers || n > HVD__EVEN_MAX)
        return;
    if (!hvd__given_same(&a->given, req->given)) {
        a->given = *req->given;
        atomic_store_explicit(&a->hint, NULL, memory_order_relaxed);
        return;
    }
    /* The same call twice in succession: it is worth caching. */
    copy(&a->req, a->even, req, n);
    a->req.given = NULL;
    atomic_store_explicit(&a->hint, a->given.sendbuf, memory_order_relaxed);
}

/* Ends a request after carry_out returned rc, and steps back as the driver. */
static int run_over(struct hvd__engine *e, struct hvd_request *req, int rc)
{
    if (rc == 0)
        return run_stopped(e, req);
    if (rc == HVD__CUT || rc == -HVD_EMISMATCH)
        return run_denied(e, req, rc);
    if (req->op.device.launch)
        hvd__engine_launched(e, &req, 1, &req->op);
    engine_finish(e, req, rc);
    if (rc == 1)
        remember(e, req);
    update_stall_list(e);
    engine_step_back(e);
    return req->err.status;
}

static int run_alone(struct hvd__engine *e, struct hvd_request *req)
{
    int rc = engine_supports(e, &req->op, &req->err);

    return run_over(e, req, rc < 0 ? rc : carry_out(e, req));
}

/* Returns whether a call may skip the queue.  Called by the driver, because
 * something may have been queued before this thread became it. */
static int is_free(struct hvd__engine *e)
{
    return !atomic_load(&e->queued) && !atomic_load(&e->stopping) &&
           hvd__controller_free(&e->controller);
}

static int run(struct hvd__engine *e, struct hvd_request *req)
{
    if (atomic_load(&e->queued) || !engine_try_drive(e, HVD__DRIVER_CALLER))
        return run_queued(e, req);
    if (!is_free(e)) {
        engine_step_back(e);
        return run_queued(e, req);
    }
    return run_alone(e, req);
}

int hvd__engine_run(struct hvd__engine *e, struct hvd_request *req)
{
    uint64_t call = hvd__stall_issued(&e->stall, req);
    int rc = run(e, req);

    hvd__stall_returned(hvd__stall_on(), call);
    return rc;
}

/* Ends a cached call that did not succeed at once, from a copy: other threads
 * may use the cache from here on. */
static int run_again_over(struct hvd__engine *e, struct hvd_request *req,
                          size_t *even, int rc)
{
    copy(req, even, &e->again.req, (size_t)e->controller.n);
    atomic_init(&req->done, 0);
    hb_error_clear(&e->again.req.err);
    return run_over(e, req, rc);
}

int hvd__engine_run_again(struct hvd__engine *e, const struct hvd__given *given,
                          struct hvd_request *req, size_t *even, int *rc)
{
    struct hvd__again *a = &e->again;
    uint64_t call;

    if (atomic_load(&e->queued) || !engine_try_drive(e, HVD__DRIVER_CALLER))
        return 0;
    if (!atomic_load_explicit(&a->hint, memory_order_relaxed) || !is_free(e) ||
        !hvd__given_same(&a->given, given)) {
        engine_step_back(e);
        return 0;
    }
    call = hvd__stall_issued(&e->stall, &a->req);
    a->req.issued_ns = 0;
    *rc = carry_out(e, &a->req);
    if (*rc == 1) {
        *rc = 0;
        update_stall_list(e);
        engine_step_back(e);
    } else {
        *rc = run_again_over(e, req, even, *rc);
    }
    hvd__stall_returned(hvd__stall_on(), call);
    return 1;
}
