/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests, and the calls on them: hvd_wait and hvd_test.
 */
#include "runtime/core/request.h"

#include "lib/base/alloc.h"
#include "runtime/core/context.h"
#include "runtime/core/message.h"

#include <string.h>

void hvd__request_init(struct hvd_request *req)
{
    req->op.err = &req->err;
    req->err.status = 0;
    req->err.sys_errno = 0;
    req->err.rank = -1;
    req->err.host[0] = '\0';
    req->err.text[0] = '\0';
    req->engine = NULL;
    req->next = NULL;
    req->started = 0;
    atomic_init(&req->done, 0);
}

struct hvd_request *hvd__request_new(const struct hvd__op *op)
{
    size_t name_bytes = strlen(op->name) + 1;
    struct hvd_request *req = hb_malloc(sizeof(*req) + name_bytes);

    if (!req)
        return NULL;
    req->op = *op;
    memcpy(req->name, op->name, name_bytes);
    req->op.name = req->name;
    hvd__request_init(req);
    return req;
}

void hvd__request_free(struct hvd_request *req)
{
    hb_free(req);
}

static int forked_child(const char *call)
{
    return hvd__fail(HVD_ENOTINIT,
                     "%s: the request is in flight in the process that this "
                     "one was forked from",
                     call);
}

int hvd_wait(hvd_request *req)
{
    int rc;

    if (!req)
        return hvd__fail(HVD_EINVAL, "hvd_wait: the request is NULL");
    if (hvd__forked() && !hvd__request_done(req))
        return forked_child("hvd_wait");
    hvd__engine_wait(req->engine, req);
    rc = hvd__tell(&req->err);
    hvd__request_free(req);
    return rc;
}

int hvd_test(hvd_request *req, int *done)
{
    if (!req || !done)
        return hvd__fail(HVD_EINVAL, "hvd_test: a pointer is NULL");
    if (hvd__forked() && !hvd__request_done(req))
        return forked_child("hvd_test");
    *done = hvd__engine_test(req->engine, req);
    return 0;
}
