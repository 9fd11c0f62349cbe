/* SPDX-License-Identifier: Apache-2.0 */
/* Requests; see request.h. */
#include "runtime/core/sched/request.h"

#include "lib/base/alloc.h"
#include "runtime/core/sched/shapes.h"

#include <string.h>

void hvd__request_init(struct hvd_request *req)
{
    req->op.err = &req->err;
    req->err.status = 0;
    req->err.sys_errno = 0;
    req->err.stage = HB_STAGE_NONE;
    req->err.rank = -1;
    req->err.host[0] = '\0';
    req->err.text[0] = '\0';
    req->engine = NULL;
    req->next = req->before = req->same = NULL;
    req->entry = NULL;
    req->issued_ns = 0;
    req->stall_ns = 0;
    req->priority = 0;
    req->caller = NULL;
    req->last_rank = NULL;
    req->on_done = NULL;
    req->done_arg = NULL;
    req->given = NULL;
    req->members = NULL;
    req->member_count = 0;
    req->shapes = NULL;
    atomic_init(&req->done, 0);
}

/* Takes the next `bytes` of a block and advances *at, aligned. */
static void *take(char **at, size_t bytes)
{
    char *p = *at;

    *at += (bytes + 15) & ~(size_t)15;
    return p;
}

struct hvd_request *hvd__request_copy(const struct hvd_request *from, int n)
{
    const struct hvd__op *op = &from->op;
    size_t name = strlen(op->name) + 1;
    size_t counts = op->sendcounts ? (size_t)n * sizeof(size_t) : 0;
    size_t parts = op->nparts * sizeof(struct hvd__part) * (op->parts != NULL);
    size_t members = from->member_count * sizeof(struct hvd__op);
    size_t shaped = from->shapes ? hvd__shapes_count(op) : 0;
    size_t shapes = hvd__shapes_copy_bytes(from->shapes, shaped);
    struct hvd_request *req = hb_malloc(sizeof(*req) + 16 + name + counts +
                                        parts + members + shapes + 80);
    char *at;

    if (!req)
        return NULL;
    at = (char *)(req + 1);
    req->op = *op;
    hvd__request_init(req);
    req->signature = from->signature;
    req->priority = from->priority;
    req->caller = from->caller;
    req->last_rank = from->last_rank;
    req->on_done = from->on_done;
    req->done_arg = from->done_arg;
    at += -(uintptr_t)at & 15;
    if (op->parts)
        req->op.parts = memcpy(take(&at, parts), op->parts, parts);
    if (members)
        req->members = memcpy(take(&at, members), from->members, members);
    req->member_count = from->member_count;
    if (shaped)
        req->shapes = hvd__shapes_copy(take(&at, shapes), from->shapes, shaped);
    if (counts)
        req->op.sendcounts = memcpy(take(&at, counts), op->sendcounts, counts);
    req->op.name = memcpy(take(&at, name), op->name, name);
    return req;
}

void hvd__request_free(struct hvd_request *req)
{
    hb_free(req);
}
