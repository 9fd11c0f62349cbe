/* SPDX-License-Identifier: Apache-2.0 */
/* Records operations that are done; see record.h. */
#include "runtime/core/sched/record.h"

#include "lib/base/sys/clock.h"

#include <string.h>

void hvd__record_begin(struct hvd__controller *c, struct hvd__op *op,
                       struct hvd_request *const *reqs, size_t n)
{
    int timed = 0;

    op->trace.agreed_ns = 0;
    op->trace.late_rank = -1;
    for (size_t i = 0; i < n && !timed; i++)
        timed = reqs[i]->issued_ns != 0;
    if (timed)
        hvd__op_time(op);
    c->timed = timed;
    c->began_ns = timed && hvd__timeline_on() ? hb_now_ns() : 0;
    op->trace.copies = NULL;
    if (c->began_ns) {
        memset(c->copies, 0, sizeof(c->copies));
        op->trace.copies = c->copies;
    }
}

/* Traces the copies to and from the fusion buffer on the lanes of the requests:
 * a row for each direction, as the copies of many rounds overlap.  Requests
 * without a name share a lane, and get one event. */
static void trace_copies(const struct hvd__controller *c,
                         struct hvd_request *const *reqs, size_t n,
                         struct hvd__timeline_event *e)
{
    static const char *const activities[HVD__COPY_WAYS] = {
        [HVD__COPY_IN] = "MEMCPY_IN_FUSION_BUFFER",
        [HVD__COPY_OUT] = "MEMCPY_OUT_FUSION_BUFFER",
    };

    e->what = HVD__TIMELINE_ACTIVITY;
    for (int way = 0; way < HVD__COPY_WAYS; way++) {
        const struct hvd__copies *copies = &c->copies[way];
        int unnamed = 0;

        e->activity = activities[way];
        e->row = HVD__TIMELINE_COPY_ROW + (uint32_t)way;
        e->began_ns = copies->began_ns;
        e->done_ns = copies->ended_ns;
        e->busy_ns = copies->busy_ns;
        for (size_t i = 0; copies->began_ns && i < n; i++) {
            e->op = &reqs[i]->op;
            if (e->op->name[0] || !unnamed++)
                hvd__timeline_add(e);
        }
    }
}

static void trace(const struct hvd__controller *c, const struct hvd__op *op,
                  struct hvd_request *const *reqs, size_t n, uint64_t done_ns)
{
    struct hvd__timeline_event e = {
        .plane = c->plane->ops->name,
        .set = c->set,
        .fused = (uint32_t)n,
        .began_ns = c->began_ns,
        .agreed_ns =
            op->trace.agreed_ns == HVD__OP_TIMED ? 0 : op->trace.agreed_ns,
        .done_ns = done_ns,
        .status = op->err->status,
    };

    for (size_t i = 0; i < n; i++) {
        struct hvd__op own = reqs[i]->op;

        own.trace.algorithm = op->trace.algorithm;
        e.what = HVD__TIMELINE_REQUEST;
        e.op = &own;
        e.issued_ns = reqs[i]->issued_ns;
        hvd__timeline_add(&e);
    }
    e.what = HVD__TIMELINE_OPERATION;
    e.op = op;
    hvd__timeline_add(&e);
    if (c->began_ns) /* else c->copies are of an earlier timeline */
        trace_copies(c, reqs, n, &e);
}

void hvd__record_done(struct hvd__controller *c, const struct hvd__op *op,
                      struct hvd_request *const *reqs, size_t n)
{
    struct segment_status *s = hvd__counted();
    uint64_t agreed_ns, done_ns;

    if (!c->timed) {
        for (size_t i = 0; i < n; i++)
            hvd__record_done_one(c, reqs[i]);
        return;
    }
    agreed_ns = op->trace.agreed_ns == HVD__OP_TIMED ? 0 : op->trace.agreed_ns;
    done_ns = hb_now_ns();
    for (size_t i = 0; i < n; i++) {
        const struct hvd__stats_sample sample = {
            .kind = reqs[i]->op.kind,
            .bytes = hvd__record_bytes(&reqs[i]->op),
            .issued_ns = reqs[i]->issued_ns,
            .agreed_ns = agreed_ns,
            .done_ns = done_ns,
            .late_rank = op->trace.late_rank,
            .timing = reqs[i]->timing,
        };
        uint64_t waited_ns;

        if (sample.kind == HVD__JOIN)
            continue;
        waited_ns = hvd__stats_request(&c->stats, &sample);
        if (s)
            status_add_call(s, c->set == HVD_WORLD, sample.bytes, waited_ns);
    }
    if (hvd__timeline_on())
        trace(c, op, reqs, n, done_ns);
}
