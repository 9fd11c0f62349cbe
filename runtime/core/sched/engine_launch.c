/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in device memory that were only launched when the engine was done
 * with them: waiting for them and testing them.
 */
#include "runtime/core/sched/engine_impl.h"

#include "lib/base/sys/clock.h"

#include <sched.h>

/* Returns the functions for what the plane has launched. */
static const struct hvd__launch_ops *launches(const struct hvd__engine *e)
{
    return e->plane->ops->launches;
}

/* Keeps the plane until let_plane_go.  Returns 0, and holds nothing, if it is
 * about to be freed or was.  The holder is not counted as a waiter, since it
 * waits for the device and does not drive. */
static int hold_plane(struct hvd__engine *e, const struct hvd_request *req)
{
    atomic_fetch_add(&e->holders, 1);
    if (!atomic_load(&e->stopping) && atomic_load(&e->opened) == req->opened)
        return 1;
    atomic_fetch_sub(&e->holders, 1);
    return 0;
}

static void let_plane_go(struct hvd__engine *e)
{
    atomic_fetch_sub(&e->holders, 1);
}

/* Returns 1 when the plane was drained, with req's outcome; it is gone then. */
static int is_drained(struct hvd__engine *e, struct hvd_request *req)
{
    if (atomic_load(&e->opened) == req->opened) {
        if (!atomic_load(&e->drained))
            return 0;
        if (e->launch_err.status)
            req->err = e->launch_err;
    }
    req->op.device.launch = 0;
    return 1;
}

static int wait_until_drained(struct hvd__engine *e, struct hvd_request *req,
                              uint64_t until_ns)
{
    while (!is_drained(e, req)) {
        if (hb_is_over(until_ns))
            return 0;
        sched_yield();
    }
    return 1;
}

static int wait_for_launch(struct hvd__engine *e, struct hvd_request *req,
                           uint64_t until_ns)
{
    const struct hvd__op_device *d = &req->op.device;
    int rc;

    if (!hold_plane(e, req))
        return wait_until_drained(e, req, until_ns);
    rc = launches(e)->wait(e->plane, d->launch - d->earlier, d->launch,
                           until_ns, &req->err);
    let_plane_go(e);
    return rc != 0;
}

/* Returns 1 when the launched `req` is done on the device too, else 0. */
static int test_launch(struct hvd__engine *e, struct hvd_request *req)
{
    const struct hvd__op_device *d = &req->op.device;
    int rc;

    if (!hold_plane(e, req))
        return is_drained(e, req);
    rc = launches(e)->test(e->plane, d->launch - d->earlier, d->launch,
                           &req->err);
    let_plane_go(e);
    return rc != 0;
}

void hvd__engine_drain(struct hvd__engine *e)
{
    hb_error_clear(&e->launch_err);
    if (e->launched)
        launches(e)->wait(e->plane, 1, e->launched, 0, &e->launch_err);
    e->launched = 0;
    atomic_store(&e->drained, 1);
}

int hvd__engine_look(struct hvd__engine *e, struct hb_error *err)
{
    int rc = 0;

    if (!engine_try_drive(e, HVD__DRIVER_CALLER))
        return 0; /* the driver will see it */
    /* If an operation has begun, some thread will go on with it, and sees the
     * failure.  What else keeps a call from being carried out alone is in the
     * queue. */
    if (e->controller.state == HVD__STATE_IDLE)
        rc = e->plane->ops->began(e->plane, err);
    engine_step_back(e);
    return rc < 0 ? rc : 0;
}

int hvd__engine_wait(struct hvd__engine *e, struct hvd_request *req,
                     uint64_t until_ns)
{
    if (!engine_wait(e, req, until_ns))
        return 0;
    return req->op.device.launch ? wait_for_launch(e, req, until_ns) : 1;
}

int hvd__engine_test(struct hvd__engine *e, struct hvd_request *req)
{
    if (!engine_test(e, req))
        return 0;
    return req->op.device.launch ? test_launch(e, req) : 1;
}

void hvd__engine_wait_on_stream(struct hvd__engine *e, struct hvd_request *req,
                                void *stream)
{
    const struct hvd__op_device *d = &req->op.device;

    engine_wait(e, req, 0);
    if (!d->launch)
        return;
    if (hold_plane(e, req)) {
        launches(e)->order(e->plane, d->launch - d->earlier, d->launch, stream,
                           &req->err);
        let_plane_go(e);
    } else {
        wait_until_drained(e, req, 0);
    }
}
