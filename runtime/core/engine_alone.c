/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking calls.  When nothing is queued, one is carried out by its thread
 * from start to end without the queue; else it is one of the queue's.
 */
#include "runtime/core/engine_impl.h"
#include "runtime/core/gpu.h"
#include "runtime/core/record.h"

#include <string.h>

/* Behind others: through the queue. */
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
    engine_wait(e, req);
    return req->err.status;
}

static int step_back_and_wait(struct hvd__engine *e, struct hvd_request *req)
{
    engine_step_back(e);
    engine_wait(e, req);
    return req->err.status;
}

/* Not alone any more. */
static void append(struct hvd__engine *e, struct hvd_request *req)
{
    pthread_mutex_lock(&e->lock);
    req->entry = &e->controller.plan.unnamed;
    engine_append_locked(e, req);
    pthread_mutex_unlock(&e->lock);
}

/* The others propose something else: as one of the queue, then. */
static int run_denied(struct hvd__engine *e, struct hvd_request *req, int rc)
{
    append(e, req);
    hvd__controller_denied(&e->controller, req, rc);
    return step_back_and_wait(e, req);
}

/* As one of the queue, which is for hvd__engine_close to end. */
static int run_stopped(struct hvd__engine *e, struct hvd_request *req)
{
    append(e, req);
    return step_back_and_wait(e, req);
}

/* Nothing is queued and the driver is this thread, which goes on with what it
 * was; 0: the engine stops. */
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
            engine_pause(e, req);
    }
    return rc;
}

static void settle(struct hvd__engine *e)
{
    if (!hvd__stall_listed(&e->stall))
        return;
    pthread_mutex_lock(&e->lock);
    hvd__stall_settle(e);
    pthread_mutex_unlock(&e->lock);
}

/* even: memory for n sendcounts. */
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

static void remember(struct hvd__engine *e, const struct hvd_request *req)
{
    struct hvd__again *a = &e->again;
    size_t n = (size_t)e->controller.n;

    if (!req->given || hvd__gpu_places || n > HVD__EVEN_MAX)
        return;
    if (!hvd__given_same(&a->given, req->given)) {
        a->given = *req->given;
        atomic_store_explicit(&a->hint, NULL, memory_order_relaxed);
        return;
    }
    /* The second time in succession. */
    copy(&a->req, a->even, req, n);
    a->req.given = NULL;
    atomic_store_explicit(&a->hint, a->given.sendbuf, memory_order_relaxed);
}

/* After carry_out: the driver steps back. */
static int run_over(struct hvd__engine *e, struct hvd_request *req, int rc)
{
    if (rc == 0)
        return run_stopped(e, req);
    if (rc == HVD__CUT || rc == -HVD_EMISMATCH)
        return run_denied(e, req, rc);
    if (req->op.launch)
        hvd__engine_launched(e, &req, 1, req->op.launch);
    engine_finish(e, req, rc);
    if (rc == 1)
        remember(e, req);
    settle(e);
    engine_step_back(e);
    return req->err.status;
}

static int run_alone(struct hvd__engine *e, struct hvd_request *req)
{
    int rc = engine_supports(e, &req->op, &req->err);

    return run_over(e, req, rc < 0 ? rc : carry_out(e, req));
}

/* Whether a call may skip the queue; the driver is this thread.  Something may
 * have been queued before it was. */
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

    hvd__stall_returned(call);
    return rc;
}

/* After carry_out: others may use the engine's request from here on. */
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
        settle(e);
        engine_step_back(e);
    } else {
        *rc = run_again_over(e, req, even, *rc);
    }
    hvd__stall_returned(call);
    return 1;
}
