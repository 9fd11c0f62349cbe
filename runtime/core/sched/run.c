/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that are carried out as one operation; see run.h. */
#include "runtime/core/sched/run.h"

#include "lib/base/alloc.h"
#include "runtime/core/sched/record.h"

/* ---- What is carried out ------------------------------------------------ */

static size_t run_bytes(const struct hvd_request *req)
{
    return req->op.count * req->op.elem_bytes;
}

static int run_can_fuse(const struct hvd__controller *c,
                        const struct hvd_request *req)
{
    const struct hvd__op *op = &req->op;

    return op->kind == HVD__ALLREDUCE && op->op != HVD_ADASUM &&
           !(op->flags & HVD__OP_GROUP) && run_bytes(req) > 0 &&
           run_bytes(req) <= c->fusion_part_bytes;
}

static int fit_together(const struct hvd_request *a,
                        const struct hvd_request *b)
{
    const struct hvd__op *p = &a->op, *q = &b->op;

    return p->dtype == q->dtype && p->part_dtype == q->part_dtype &&
           p->op == q->op && p->prescale == q->prescale &&
           p->postscale == q->postscale && p->flags == q->flags;
}

/* Appends req to the run.  Returns 0 when there is no memory; run_cap is never
 * 0, so the first one fits. */
static int run_add(struct hvd__controller *c, struct hvd_request *req)
{
    if (c->run_count == c->run_cap) {
        size_t cap = 2 * c->run_cap;
        struct hvd_request **run =
            hb_realloc_array((void *)c->run, cap, sizeof(struct hvd_request *));

        if (!run)
            return 0;
        c->run = run;
        c->run_cap = cap;
    }
    c->run[c->run_count++] = req;
    return 1;
}

/* Appends req if it can be fused with the run, whose size *bytes it then
 * updates; not beyond the fusion limit, nor when there is no memory.  Returns
 * whether it did; req may be NULL. */
static int run_join(struct hvd__controller *c, struct hvd_request *req,
                    size_t *bytes)
{
    if (!req || !run_can_fuse(c, req) || !fit_together(c->run[0], req) ||
        run_bytes(req) > c->fusion_bytes ||
        *bytes > c->fusion_bytes - run_bytes(req) || !run_add(c, req))
        return 0;
    *bytes += run_bytes(req);
    return 1;
}

/* Stops at the first predicted request that is not queued or cannot be
 * fused. */
int hvd__run_collect(struct hvd__controller *c, struct hvd_request *req)
{
    struct hvd__entry *e = req->entry;
    size_t bytes = run_bytes(req);

    c->run_count = 0;
    c->run_was_agreed = 0;
    if (!run_add(c, req))
        return 0;
    if (!run_can_fuse(c, req))
        return 1;
    if (e == &c->plan.unnamed) {
        while (req->same && run_join(c, req->same, &bytes))
            req = req->same;
        return 1;
    }
    for (e = e->next; e && e != req->entry && e != &c->plan.unnamed;
         e = e->next)
        if (!run_join(c, e->pending, &bytes))
            break;
    return 1;
}

/* Returns the queued request that an agreed record means, or NULL. */
static struct hvd_request *own_of(struct hvd__controller *c,
                                  const struct hvd__record *rec)
{
    struct hvd_request *req;
    struct hvd__entry *e;

    if (rec->d.name[0]) {
        e = hvd__plan_entry(&c->plan, rec->d.name, rec->d.name_hash);
        return e ? e->pending : NULL;
    }
    req = c->plan.unnamed.pending;
    for (uint64_t i = c->plan.unnamed_done; req && i < rec->index; i++)
        req = req->same;
    return req;
}

void hvd__run_collect_agreed(struct hvd__controller *c)
{
    const struct hvd__record *rec = &c->agreed.records[c->agreed_at++];
    struct hvd_request *req = own_of(c, rec);
    size_t bytes;

    c->run_count = 0;
    c->run_was_agreed = 1;
    if (!req || !run_add(c, req) || rec->err.status || c->agreed.joined ||
        !run_can_fuse(c, req))
        return;
    bytes = run_bytes(req);
    while (c->agreed_at < c->agreed.count) {
        rec = &c->agreed.records[c->agreed_at];
        if (rec->err.status || !run_join(c, own_of(c, rec), &bytes))
            break;
        c->agreed_at++;
    }
}

void hvd__run_shorten(struct hvd__controller *c, size_t n)
{
    if (n >= c->run_count)
        return;
    if (c->run_was_agreed)
        c->agreed_at -= c->run_count - n;
    c->run_count = n;
}

/* ---- Beginning an operation ---------------------------------------------- */

static int room_for_parts(struct hvd__controller *c, size_t n)
{
    struct hvd__part *parts;

    if (n <= c->parts_cap)
        return 1;
    parts = hb_realloc_array(c->parts, 2 * n, sizeof(*parts));
    if (!parts)
        return 0;
    c->parts = parts;
    c->parts_cap = 2 * n;
    return 1;
}

/* Makes c->carrier the operation of all requests of the run: their parts, one
 * after the other.  Returns NULL when there is no memory. */
static struct hvd__op *fuse(struct hvd__controller *c)
{
    size_t nparts = 0, first = 0;
    int ordered = 1;

    if (!room_for_parts(c, c->run_count))
        return NULL;
    c->carrier = c->run[0]->op;
    for (size_t i = 0; i < c->run_count; i++) {
        const struct hvd__op *op = &c->run[i]->op;
        struct hvd__part *part = &c->parts[nparts++];

        *part = hvd__op_direct(op)
                    ? (struct hvd__part){op->sendbuf, op->recvbuf, 0, op->count,
                                         op->device.ready}
                    : op->parts[0];
        part->first = first;
        first += part->count;
        ordered &= op->device.ordered;
    }
    c->carrier.device.ordered = ordered;
    c->carrier.device.ready = NULL; /* each part has its own */
    c->carrier.sendbuf = NULL;
    c->carrier.recvbuf = NULL;
    c->carrier.parts = c->parts;
    c->carrier.nparts = nparts;
    c->carrier.count = first;
    c->carrier.err = &c->err;
    hb_error_clear(&c->err);
    return &c->carrier;
}

static void divide(const struct hvd__controller *c, struct hvd__op *op)
{
    if (op->op == HVD_AVERAGE && (op->flags & HVD__OP_LIVE))
        op->args.divisor = c->n - c->agreed.joined;
}

int hvd__run_start(struct hvd__controller *c, struct hvd__op *op,
                   struct hvd__op *members, size_t count)
{
    c->current = op;
    c->state = HVD__STATE_RUN;
    divide(c, op);
    hvd__run_count(c, op);
    for (size_t i = 0; i < count; i++) {
        divide(c, &members[i]);
        hvd__run_count(c, &members[i]);
    }
    hvd__record_begin(c, op, c->run, c->run_count);
    return hvd__execute_begin(&c->execution, c->plane, op, members, count);
}

int hvd__run_begin(struct hvd__controller *c)
{
    struct hvd_request *first = c->run[0];
    struct hvd__op *op = &first->op;

    if (c->run_count > 1) {
        op = fuse(c);
        if (!op) { /* without memory, the first one alone */
            hvd__run_shorten(c, 1);
            op = &first->op;
        }
    } else if (op->kind == HVD__JOIN) {
        c->carrier = *op;
        op = &c->carrier;
        op->kind = HVD__BARRIER;
        op->err = &c->err;
        hb_error_clear(&c->err);
    }
    hvd__run_sign(c, op, first->signature);
    for (size_t i = 1; i < c->run_count; i++)
        op->signature = hvd__mix(op->signature, c->run[i]->signature);
    op->entries = (uint32_t)c->run_count;
    return hvd__run_start(c, op, first->members, first->member_count);
}
