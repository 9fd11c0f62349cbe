/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written down of operations that are done: statistics and timeline
 * (runtime/trace).  The driver's.
 */
#ifndef HVD_CORE_RECORD_H
#define HVD_CORE_RECORD_H

#include "runtime/core/controller.h"
#include "runtime/trace/timeline.h"

/* Of what the caller has. */
static inline uint64_t hvd__record_bytes(const struct hvd__op *op)
{
    return (uint64_t)op->count * (op->part_dtype == op->dtype
                                      ? op->elem_bytes
                                      : hvd_dtype_size(op->part_dtype));
}

/* A request is issued; blocking ones are timed now and then. */
static inline void hvd__record_issued(struct hvd__controller *c,
                                      struct hvd_request *req, int blocking)
{
    if (!blocking || hvd__timeline_on() ||
        hvd__stats_timed(&c->stats, hvd__record_bytes(&req->op)))
        req->issued_ns = hb_now_ns();
}

/* op is about to begin for these requests: says whether it is to be timed. */
void hvd__record_begin(struct hvd__controller *c, struct hvd__op *op,
                       struct hvd_request *const *reqs, size_t n);

/* These requests, carried out as op, are about to be completed. */
void hvd__record_done(struct hvd__controller *c, const struct hvd__op *op,
                      struct hvd_request *const *reqs, size_t n);

/* The same two for a request by itself, which is seldom timed. */
static inline void hvd__record_begin_one(struct hvd__controller *c,
                                         struct hvd_request *req)
{
    if (req->issued_ns) {
        hvd__record_begin(c, &req->op, &req, 1);
        return;
    }
    req->op.agreed_ns = 0;
    c->timed = 0;
}

static inline void hvd__record_done_one(struct hvd__controller *c,
                                        struct hvd_request *req)
{
    if (c->timed)
        hvd__record_done(c, &req->op, &req, 1);
    else if (req->op.kind != HVD__JOIN)
        hvd__stats_untimed(&c->stats, req->op.kind,
                           hvd__record_bytes(&req->op));
}

#endif
