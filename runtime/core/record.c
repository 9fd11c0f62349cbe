/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics and timeline of what is done; see record.h. */
#include "runtime/core/record.h"

#include "lib/base/clock.h"
#include "runtime/core/engine.h"

void hvd__record_begin(struct hvd__controller *c, struct hvd__op *op,
                       struct hvd_request *const *reqs, size_t n)
{
    int timed = 0;

    op->agreed_ns = 0;
    op->late_rank = -1;
    for (size_t i = 0; i < n && !timed; i++)
        timed = reqs[i]->issued_ns != 0;
    if (timed)
        hvd__op_time(op);
    c->timed = timed;
    c->began_ns = timed && hvd__timeline_on() ? hb_now_ns() : 0;
}

static void trace(const struct hvd__controller *c, const struct hvd__op *op,
                  struct hvd_request *const *reqs, size_t n, uint64_t done_ns)
{
    struct hvd__timeline_event e = {
        .plane = c->plane->ops->name,
        .set = c->set,
        .fused = (uint32_t)n,
        .began_ns = c->began_ns,
        .agreed_ns = op->agreed_ns == HVD__OP_TIMED ? 0 : op->agreed_ns,
        .done_ns = done_ns,
        .status = op->err->status,
    };

    for (size_t i = 0; i < n; i++) {
        struct hvd__op own = reqs[i]->op;

        own.algorithm = op->algorithm;
        e.what = HVD__TIMELINE_REQUEST;
        e.op = &own;
        e.issued_ns = reqs[i]->issued_ns;
        hvd__timeline_add(&e);
    }
    e.what = HVD__TIMELINE_OPERATION;
    e.op = op;
    hvd__timeline_add(&e);
}

void hvd__record_done(struct hvd__controller *c, const struct hvd__op *op,
                      struct hvd_request *const *reqs, size_t n)
{
    uint64_t agreed_ns, done_ns;

    if (!c->timed) {
        for (size_t i = 0; i < n; i++)
            hvd__record_done_one(c, reqs[i]);
        return;
    }
    agreed_ns = op->agreed_ns == HVD__OP_TIMED ? 0 : op->agreed_ns;
    done_ns = hb_now_ns();
    for (size_t i = 0; i < n; i++) {
        const struct hvd__stats_sample sample = {
            .kind = reqs[i]->op.kind,
            .bytes = hvd__record_bytes(&reqs[i]->op),
            .issued_ns = reqs[i]->issued_ns,
            .agreed_ns = agreed_ns,
            .done_ns = done_ns,
            .late_rank = op->late_rank,
        };

        if (sample.kind != HVD__JOIN)
            hvd__stats_request(&c->stats, &sample);
    }
    if (hvd__timeline_on())
        trace(c, op, reqs, n, done_ns);
}
