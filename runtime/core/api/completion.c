/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on requests: hvd_wait, hvd_wait_for, hvd_wait_on_stream and
 * hvd_test. */
#include "lib/base/sys/clock.h"
#include "runtime/core/sched/engine.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

static int forked_child(const char *call)
{
    return hvd__fail(HVD_ENOTINIT,
                     "%s: the request is in flight in the process that this "
                     "one was forked from",
                     call);
}

/* Checks a request that the function `call` was given.  Returns 0, or negative
 * with the error recorded. */
static int check(const struct hvd_request *req, const char *call)
{
    if (!req)
        return hvd__fail(HVD_EINVAL, "%s: the request is NULL", call);
    return hvd__forked() && !hvd__request_done(req) ? forked_child(call) : 0;
}

int hvd_wait(hvd_request *req)
{
    int rc = check(req, "hvd_wait");

    if (rc < 0)
        return rc;
    hvd__engine_wait(req->engine, req, 0);
    rc = hvd__tell(&req->err);
    hvd__request_free(req);
    return rc;
}

int hvd_wait_on_stream(hvd_request *req, void *stream)
{
    int rc = check(req, "hvd_wait_on_stream");

    if (rc < 0)
        return rc;
    hvd__engine_wait_on_stream(req->engine, req, stream);
    rc = hvd__tell(&req->err);
    hvd__request_free(req);
    return rc;
}

int hvd_test(hvd_request *req, int *done)
{
    int rc;

    if (!done)
        return hvd__fail(HVD_EINVAL, "hvd_test: a pointer is NULL");
    rc = check(req, "hvd_test");
    if (rc == 0)
        *done = hvd__engine_test(req->engine, req);
    return rc;
}

int hvd_wait_for(hvd_request *req, int timeout_ms, int *done)
{
    uint64_t until_ns = 0;
    int rc;

    if (!done)
        return hvd__fail(HVD_EINVAL, "hvd_wait_for: a pointer is NULL");
    rc = check(req, "hvd_wait_for");
    if (rc < 0)
        return rc;
    if (timeout_ms > 0)
        until_ns = hb_now_ns() + (uint64_t)timeout_ms * 1000000;
    if (timeout_ms == 0)
        *done = hvd__engine_test(req->engine, req);
    else
        *done = hvd__engine_wait(req->engine, req, until_ns);
    return 0;
}
