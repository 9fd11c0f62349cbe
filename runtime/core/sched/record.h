/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records operations that are done, in the statistics and the timeline
 * (runtime/trace).  Called by the driver.
 */
#ifndef HVD_CORE_RECORD_H
#define HVD_CORE_RECORD_H

#include "runtime/core/sched/controller.h"
#include "runtime/trace/timeline.h"

/* Returns the bytes of op's input in the caller's dtype, which may be wider
 * than what travels. */
static inline uint64_t hvd__record_bytes(const struct hvd__op *op)
{
    return (uint64_t)op->count * (op->part_dtype == op->dtype
                                      ? op->elem_bytes
                                      : hvd_dtype_size(op->part_dtype));
}

/* Notes the time at which `req` is issued; of small blocking ones that are not
 * rare, for a random sample only, as reading the clock costs. */
static inline void hvd__record_issued(struct hvd__controller *c,
                                      struct hvd_request *req, int blocking)
{
    req->timing = HVD__TIMED;
    if (blocking && !hvd__timeline_on())
        req->timing = hvd__stats_timing(&c->stats, hvd__record_bytes(&req->op),
                                        req->stall_ns);
    if (req->timing != HVD__UNTIMED)
        req->issued_ns = hb_now_ns();
}

/* Decides whether `op` is timed, before it begins for these n requests. */
void hvd__record_begin(struct hvd__controller *c, struct hvd__op *op,
                       struct hvd_request *const *reqs, size_t n);

/* Counts and traces these n requests, carried out as `op`, before they are
 * completed. */
void hvd__record_done(struct hvd__controller *c, const struct hvd__op *op,
                      struct hvd_request *const *reqs, size_t n);

/* Decides as hvd__record_begin, for a single request, which is seldom timed. */
static inline void hvd__record_begin_one(struct hvd__controller *c,
                                         struct hvd_request *req)
{
    if (req->issued_ns) {
        hvd__record_begin(c, &req->op, &req, 1);
        return;
    }
    req->op.trace.agreed_ns = 0;
    req->op.trace.copies =
        NULL; /* a repeated call may have been traced before */
    c->timed = 0;
}

static inline void hvd__record_untimed(struct hvd__controller *c,
                                       const struct hvd_request *req)
{
    uint64_t bytes = hvd__record_bytes(&req->op);
    struct segment_status *s = hvd__counted();

    hvd__stats_untimed(&c->stats, req->op.kind, bytes);
    if (s)
        status_add_call(s, c->set == HVD_WORLD, bytes, 0);
}

static inline void hvd__record_done_one(struct hvd__controller *c,
                                        struct hvd_request *req)
{
    if (c->timed)
        hvd__record_done(c, &req->op, &req, 1);
    else if (req->op.kind != HVD__JOIN)
        hvd__record_untimed(c, req);
}

#endif
