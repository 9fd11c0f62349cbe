/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the arguments of a call, makes a request of them, and hands it to
 * the engine of its process set; see call.h. */
#include "runtime/core/call.h"

#include "lib/base/alloc.h"
#include "runtime/core/context.h"
#include "runtime/core/gpu.h"
#include "runtime/core/message.h"

#include <math.h>
#include <string.h>

/* ---- Options --------------------------------------------------------- */

enum { OPTIONS_BYTES_MAX = 4096, OPTIONS_BYTES_MIN = 3 * 8 };

static const struct hvd_options defaults = HVD_OPTIONS_INIT;

/* A caller built with a newer hvd.h may pass more fields; they are
 * understood as long as they hold their default, 0.  One built with an older
 * one passes fewer. */
static int read_options(const struct hvd_options *opts, struct hvd_options *out,
                        struct hb_error *err)
{
    const unsigned char *bytes = (const unsigned char *)opts;

    *out = defaults;
    if (!opts)
        return 0;
    if (opts->size < OPTIONS_BYTES_MIN || opts->size > OPTIONS_BYTES_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: size is %zu; begin with "
                            "HVD_OPTIONS_INIT",
                            opts->size);
    for (size_t i = sizeof(*opts); i < opts->size; i++)
        if (bytes[i])
            return hb_error_set(err, HVD_EUNSUPPORTED,
                                "hvd_options: a field this libhvd (%s) "
                                "does not know is set",
                                HVD_VERSION);
    memcpy(out, opts, opts->size < sizeof(*out) ? opts->size : sizeof(*out));
    if (!isfinite(out->prescale) || !isfinite(out->postscale))
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: a scale is not finite");
    if (out->wire < HVD_WIRE_FULL || out->wire > HVD_WIRE_BFLOAT16)
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: wire %d is not an enum hvd_wire",
                            out->wire);
    return 0;
}

static int no_scales(const struct hvd_options *o, struct hb_error *err)
{
    if (o->prescale == 1.0 && o->postscale == 1.0)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "hvd_options: only reductions can be scaled");
}

static int is_reduction(enum hvd__kind kind)
{
    return kind == HVD__ALLREDUCE || kind == HVD__REDUCESCATTER;
}

/* ---- A call ----------------------------------------------------------- */

static int find_set(struct hvd__call *c, struct hb_error *err)
{
    c->set = hvd__set_find(c->o.process_set);
    if (!c->set && !hvd__alive()) /* any more */
        return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    if (!c->set)
        return hb_error_set(err, HVD_ENOSET, "there is no process set %d",
                            c->o.process_set);
    if (c->set->me >= 0)
        return 0;
    return hb_error_set(err, HVD_ENOTMEMBER,
                        "rank %d is not a member of process set %d",
                        hvd__context.topology.rank, c->o.process_set);
}

static int check_name(const char **name, struct hb_error *err)
{
    if (!*name)
        *name = "";
    if (strlen(*name) < HVD__NAME_BYTES)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "name: longer than %d bytes: %.32s...",
                        HVD__NAME_BYTES - 1, *name);
}

/* What all calls begin with. */
int hvd__call_begin(struct hvd__call *c, enum hvd__kind kind, const char *name,
                    const struct hvd_options *opts)
{
    struct hvd__op *op = &c->req.op;
    struct hb_error *err = &c->req.err;
    int rc;

    c->more = NULL;
    c->parts = NULL;
    c->members = NULL;
    c->needs_device = 0;
    hvd__op_init(op);
    hvd__request_init(&c->req);
    op->kind = kind;
    if (!hvd__alive())
        return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    rc = check_name(&name, err);
    if (rc == 0)
        rc = read_options(opts, &c->o, err);
    if (rc == 0)
        rc = find_set(c, err);
    if (rc == 0 && !is_reduction(kind))
        rc = no_scales(&c->o, err);
    op->name = name;
    op->name_hash = name[0] ? hvd__name_hash(name) : 0;
    op->prescale = c->o.prescale;
    op->postscale = c->o.postscale;
    op->elem_bytes = 1;
    c->req.priority = c->o.priority;
    return rc;
}

/* Buffers that may be in device memory, or have to be. */
static int place(struct hvd__call *c, int rc)
{
    if (rc < 0 || (!hvd__gpu_places && !c->o.stream && !c->needs_device))
        return rc;
    return hvd__gpu_issue(c);
}

static void end(struct hvd__call *c)
{
    hvd__gpu_done(&c->req.op);
    hb_free(c->more);
    hb_free(c->parts);
    hb_free(c->members);
}

static int told(struct hvd__call *c)
{
    hb_error_context(&c->req.err, "%s", hvd__kind_name(c->req.op.kind));
    return hvd__tell(&c->req.err);
}

/* No options but the defaults. */
static int is_plain(const struct hvd_options *o)
{
    return !o || (o->size == sizeof(*o) && o->prescale == 1.0 &&
                  o->postscale == 1.0 && !o->process_set && !o->wire &&
                  !o->live_average && !o->priority && !o->stream);
}

int hvd__call_again(const struct hvd__given *given,
                    const struct hvd_options *opts, int *rc)
{
    struct hvd__own_request own;

    if (!is_plain(opts) || !hvd__alive() ||
        !hvd__engine_again(&hvd__sets[HVD_WORLD].engine, given, &own, rc))
        return 0;
    if (*rc < 0)
        hvd__tell(&own.req.err);
    return 1;
}

/* rc: what making it gave. */
int hvd__call_run(struct hvd__call *c, int rc)
{
    struct hvd_request *req = &c->req;

    rc = place(c, rc);
    if (rc < 0) {
        rc = told(c);
    } else {
        if (!is_plain(&c->o))
            req->given = NULL;
        req->signature = hvd__op_signature(&req->op);
        rc = hvd__engine_run(&c->set->engine, req);
        if (rc == 0 && req->op.launch)
            hvd__engine_wait_on_stream(&c->set->engine, req, c->o.stream);
        rc = req->err.status;
        if (rc < 0)
            hvd__tell(&req->err);
    }
    end(c);
    return rc < 0 ? rc : 0;
}

static int queue(struct hvd__call *c, hvd_request **out)
{
    struct hb_error *err = &c->req.err;
    struct hvd_request *req;
    int rc;

    c->req.signature = hvd__op_signature(&c->req.op);
    req = hvd__request_copy(&c->req, c->set->n);
    if (!req)
        return hvd__fail(HVD_ENOMEM, "no memory for a request");
    rc = hvd__engine_submit(&c->set->engine, req, err);
    if (rc < 0) {
        req->op.ready = NULL; /* the call's */
        hvd__request_free(req);
        return hvd__tell(err);
    }
    c->req.op.ready = NULL; /* the request's */
    *out = req;
    return 0;
}

int hvd__call_submit(struct hvd__call *c, int rc, hvd_request **out)
{
    if (rc == 0 && !out)
        rc = hb_error_set(&c->req.err, HVD_EINVAL, "req is NULL");
    rc = place(c, rc);
    rc = rc < 0 ? told(c) : queue(c, out);
    end(c);
    return rc;
}

/* Blocking, by way of the queue. */
int hvd__call_submit_and_wait(struct hvd__call *c, int rc)
{
    hvd_request *req = NULL;

    rc = hvd__call_submit(c, rc, &req);
    if (rc < 0)
        return rc;
    return c->o.stream ? hvd_wait_on_stream(req, c->o.stream) : hvd_wait(req);
}

/* ---- Buffers ----------------------------------------------------------- */

static int check_buffer(const char *what, const void *p, size_t count,
                        size_t elem_bytes, struct hb_error *err)
{
    size_t bytes;

    if (count == 0)
        return 0;
    if (__builtin_mul_overflow(count, elem_bytes, &bytes) ||
        bytes > PTRDIFF_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "%s: %zu elements do not fit in memory", what,
                            count);
    if (!p)
        return hb_error_set(err, HVD_EINVAL, "%s is NULL", what);
    if ((uintptr_t)p & (elem_bytes - 1)) /* a power of two */
        return hb_error_set(err, HVD_EINVAL,
                            "%s is not aligned to its %zu-byte elements", what,
                            elem_bytes);
    return 0;
}

/* Equal is in place, if that is allowed; anything between is refused. */
static int check_overlap(const struct hvd__buffers *b, size_t elem_bytes,
                         struct hb_error *err)
{
    uintptr_t s = (uintptr_t)b->sendbuf, r = (uintptr_t)b->recvbuf;
    size_t bytes = b->count * elem_bytes;

    if (s == r || s + bytes <= r || r + bytes <= s)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "sendbuf and recvbuf overlap without being equal");
}

static int check_apart(const struct hvd__buffers *b, size_t recv_count,
                       size_t elem_bytes, struct hb_error *err)
{
    uintptr_t s = (uintptr_t)b->sendbuf, r = (uintptr_t)b->recvbuf;

    if (s + b->count * elem_bytes <= r || r + recv_count * elem_bytes <= s)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "sendbuf and recvbuf overlap");
}

int hvd__call_set_dtype(struct hvd__op *op, enum hvd_dtype dtype,
                        struct hb_error *err)
{
    op->dtype = op->part_dtype = dtype;
    op->elem_bytes = hvd_dtype_size(dtype);
    if (op->elem_bytes)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "%d is not an enum hvd_dtype",
                        (int)dtype);
}

static void set_buffers(struct hvd__op *op, const struct hvd__buffers *b)
{
    op->sendbuf = b->sendbuf;
    op->recvbuf = b->recvbuf;
    op->count = b->count;
}

/* ---- Reductions --------------------------------------------------------- */

static int is_float(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 ||
           dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
}

static int is_float8(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT8_E4M3 || dtype == HVD_FLOAT8_E5M2;
}

/* What travels instead of the caller's dtype. */
static void set_wire(struct hvd__call *c)
{
    struct hvd__op *op = &c->req.op;

    if (c->o.wire == HVD_WIRE_FULL || op->op == HVD_ADASUM ||
        (op->dtype != HVD_FLOAT32 && op->dtype != HVD_FLOAT64))
        return;
    op->dtype = c->o.wire == HVD_WIRE_FLOAT16 ? HVD_FLOAT16 : HVD_BFLOAT16;
    op->elem_bytes = hvd_dtype_size(op->dtype);
    op->args.pre = 1.0; /* hvd__op_pack does it */
}

int hvd__call_set_reduction(struct hvd__call *c, enum hvd_dtype dtype,
                            enum hvd_op rop)
{
    struct hvd__op *op = &c->req.op;
    struct hb_error *err = &c->req.err;
    int rc = hvd__call_set_dtype(op, dtype, err);

    if (rc < 0)
        return rc;
    op->op = rop;
    op->args.pre = op->prescale;
    op->args.post = op->postscale;
    op->args.divisor = rop == HVD_AVERAGE ? c->set->n : 1;
    if (c->o.live_average && rop == HVD_AVERAGE)
        op->flags |= HVD__OP_LIVE;
    if (op->kind == HVD__ALLREDUCE)
        set_wire(c);
    if (rop == HVD_ADASUM && op->kind == HVD__ALLREDUCE && is_float(dtype))
        return 0;
    op->reduce = hvd__reduce_get(op->dtype, rop);
    if (op->reduce)
        return 0;
    if (is_float8(dtype) && rop != HVD_ADASUM && rop != HVD_BAND &&
        rop != HVD_BOR) {
        c->needs_device = 1;
        return no_scales(&c->o, err);
    }
    return hb_error_set(err, HVD_EINVAL, "%s of %s is not defined",
                        hvd_op_name(rop), hvd_dtype_name(dtype));
}

static int check_reduction(const struct hvd__buffers *b, struct hb_error *err)
{
    size_t elem_bytes = hvd_dtype_size(b->dtype);
    int rc = check_buffer("sendbuf", b->sendbuf, b->count, elem_bytes, err);

    if (rc == 0)
        rc = check_buffer("recvbuf", b->recvbuf, b->count, elem_bytes, err);
    return rc < 0 ? rc : check_overlap(b, elem_bytes, err);
}

int hvd__call_allreduce(struct hvd__call *c, const struct hvd__buffers *b,
                        enum hvd_op rop)
{
    struct hvd__op *op = &c->req.op;
    int rc = hvd__call_set_reduction(c, b->dtype, rop);

    if (rc == 0)
        rc = check_reduction(b, &c->req.err);
    if (rc < 0)
        return rc;
    op->count = b->count;
    if (op->dtype == op->part_dtype) {
        set_buffers(op, b);
        return 0;
    }
    c->part = (struct hvd__part){b->sendbuf, b->recvbuf, 0, b->count, NULL};
    op->parts = &c->part;
    op->nparts = 1;
    return 0;
}

static int check_group(const struct hvd__group *g, struct hb_error *err)
{
    if (g->n < 1 || g->n > PTRDIFF_MAX / sizeof(struct hvd__op))
        return hb_error_set(err, HVD_EINVAL, "a group of %zu members", g->n);
    if (!g->sendbufs || !g->recvbufs || !g->counts)
        return hb_error_set(err, HVD_EINVAL, "an array of the group is NULL");
    return 0;
}

static int in_member(struct hb_error *err, size_t i)
{
    return hb_error_context(err, "member %zu", i);
}

int hvd__call_group_allreduce(struct hvd__call *c, const struct hvd__group *g,
                              enum hvd_op rop)
{
    struct hvd__op *op = &c->req.op;
    struct hb_error *err = &c->req.err;
    int rc = check_group(g, err);

    if (rc == 0)
        rc = hvd__call_set_reduction(c, g->dtype, rop);
    if (rc == 0)
        c->parts = hb_calloc(g->n, sizeof(*c->parts));
    if (rc == 0 && !c->parts)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for a group");
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        const struct hvd__buffers b = {g->sendbufs[i], g->recvbufs[i],
                                       g->counts[i], g->dtype};

        if (check_reduction(&b, err) < 0)
            return in_member(err, i);
        c->parts[i] =
            (struct hvd__part){b.sendbuf, b.recvbuf, op->count, b.count, NULL};
        if (__builtin_add_overflow(op->count, b.count, &op->count))
            return hb_error_set(err, HVD_EINVAL, "the group is too large");
    }
    op->flags |= HVD__OP_GROUP;
    op->parts = c->parts;
    op->nparts = g->n;
    return rc;
}

int hvd__call_reducescatter(struct hvd__call *c, struct hvd__op *op,
                            const struct hvd__buffers *b, size_t row_elems)
{
    struct hb_error *err = &c->req.err;
    struct hvd__buffers all = *b;
    size_t own;
    int rc;

    if (row_elems == 0 ||
        __builtin_mul_overflow(b->count, row_elems, &all.count))
        return hb_error_set(err, HVD_EINVAL,
                            "%zu rows of %zu elements are impossible", b->count,
                            row_elems);
    op->row_elems = row_elems;
    set_buffers(op, &all);
    own = hvd__op_share(op, c->set->me, c->set->n).count;
    rc = check_buffer("sendbuf", b->sendbuf, all.count, op->elem_bytes, err);
    if (rc == 0)
        rc = check_buffer("recvbuf", b->recvbuf, own, op->elem_bytes, err);
    if (rc == 0 && own)
        rc = check_apart(&all, own, op->elem_bytes, err);
    return rc;
}

/* ---- The others -----------------------------------------------------------
 */

int hvd__call_broadcast(struct hvd__call *c, const struct hvd__buffers *b,
                        int root)
{
    struct hvd__op *op = &c->req.op;
    struct hb_error *err = &c->req.err;
    int rc = hvd__call_set_dtype(op, b->dtype, err);

    if (rc < 0)
        return rc;
    op->root = hvd__set_place(c->set, root);
    if (op->root < 0)
        return c->set->id
                   ? hb_error_set(err, HVD_EINVAL,
                                  "root %d is not in process set %d", root,
                                  c->set->id)
                   : hb_error_set(err, HVD_EINVAL, "root %d is not in 0..%d",
                                  root, c->set->n - 1);
    rc = check_buffer("recvbuf", b->recvbuf, b->count, op->elem_bytes, err);
    if (rc == 0 && op->root == c->set->me)
        rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);
    if (rc == 0 && op->root == c->set->me)
        rc = check_overlap(b, op->elem_bytes, err);
    set_buffers(op, b);
    return rc;
}

int hvd__call_allgather(struct hvd__call *c, struct hvd__op *op,
                        const struct hvd__buffers *b,
                        const struct hvd__received *r)
{
    struct hb_error *err = &c->req.err;
    int rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);

    if (rc == 0)
        rc = check_buffer("recvbuf", b->recvbuf, r->cap, op->elem_bytes, err);
    set_buffers(op, b);
    op->recvcap = r->cap;
    op->recvcounts = r->counts;
    return rc;
}

static int split_evenly(struct hvd__call *c, size_t count)
{
    size_t n = (size_t)c->set->n, *even = c->even;

    if (count % n)
        return hb_error_set(&c->req.err, HVD_EINVAL,
                            "%zu elements do not divide evenly by %zu ranks; "
                            "give sendcounts",
                            count, n);
    if (n > HVD__EVEN_MAX)
        even = c->more = hb_calloc(n, sizeof(*even));
    if (!even)
        return hb_error_set(&c->req.err, HVD_ENOMEM, "no memory for %zu ranks",
                            n);
    for (size_t i = 0; i < n; i++)
        even[i] = count / n;
    c->req.op.sendcounts = even;
    return 0;
}

int hvd__call_alltoall(struct hvd__call *c, const struct hvd__buffers *b,
                       const size_t *sendcounts, const struct hvd__received *r)
{
    struct hvd__op *op = &c->req.op;
    struct hb_error *err = &c->req.err;
    struct hvd__buffers sent = *b;
    int rc = hvd__call_set_dtype(op, b->dtype, err);

    if (rc == 0)
        rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);
    if (rc == 0 && sendcounts) {
        sent.count = 0;
        op->sendcounts = sendcounts;
        for (int i = 0; i < c->set->n; i++)
            if (__builtin_add_overflow(sent.count, sendcounts[i],
                                       &sent.count) ||
                sent.count > b->count)
                return hb_error_set(err, HVD_EINVAL,
                                    "the sendcounts up to rank %d are more "
                                    "than count, %zu",
                                    i, b->count);
    } else if (rc == 0) {
        rc = split_evenly(c, b->count);
    }
    if (rc == 0)
        rc = hvd__call_allgather(c, op, &sent, r);
    if (rc == 0 && r->cap)
        rc = check_apart(&sent, r->cap, op->elem_bytes, err);
    return rc;
}

/* ---- Groups that are carried out member by member
 * ---------------------------- */

static int begin_members(struct hvd__call *c, const struct hvd__group *g)
{
    struct hb_error *err = &c->req.err;
    int rc = check_group(g, err);

    if (rc < 0)
        return rc;
    c->members = hb_calloc(g->n, sizeof(*c->members));
    if (!c->members)
        return hb_error_set(err, HVD_ENOMEM, "no memory for a group");
    for (size_t i = 0; i < g->n; i++)
        c->members[i] = c->req.op;
    c->req.members = c->members;
    c->req.member_count = g->n;
    c->req.op.flags |= HVD__OP_GROUP;
    c->req.op.nparts = g->n;
    return 0;
}

/* What the ranks compare of the members: everything that must be equal. */
static void sum_up_members(struct hvd__call *c)
{
    struct hvd__op *op = &c->req.op;
    uint64_t h = 0;

    for (size_t i = 0; i < c->req.member_count; i++)
        h = hvd__mix(h, op->kind == HVD__ALLGATHER
                            ? 0
                            : hvd__op_signature(&c->members[i]));
    op->members_hash = h;
}

int hvd__call_group_allgather(struct hvd__call *c, const struct hvd__group *g,
                              const size_t *recvcaps, size_t *recvcounts)
{
    struct hb_error *err = &c->req.err;
    size_t n = (size_t)c->set->n;
    int rc = hvd__call_set_dtype(&c->req.op, g->dtype, err);

    if (rc == 0 && !recvcaps)
        rc = hb_error_set(err, HVD_EINVAL, "recvcaps is NULL");
    if (rc == 0)
        rc = begin_members(c, g);
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        const struct hvd__buffers b = {g->sendbufs[i], g->recvbufs[i],
                                       g->counts[i], g->dtype};
        const struct hvd__received r = {recvcaps[i],
                                        recvcounts ? recvcounts + i * n : NULL};

        if (hvd__call_allgather(c, &c->members[i], &b, &r) < 0)
            return in_member(err, i);
    }
    if (rc == 0)
        sum_up_members(c);
    return rc;
}

int hvd__call_group_reducescatter(struct hvd__call *c,
                                  const struct hvd__group *g,
                                  const size_t *row_elems, enum hvd_op rop)
{
    struct hb_error *err = &c->req.err;
    int rc = hvd__call_set_reduction(c, g->dtype, rop);

    if (rc == 0 && !row_elems)
        rc = hb_error_set(err, HVD_EINVAL, "row_elems is NULL");
    if (rc == 0)
        rc = begin_members(c, g);
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        const struct hvd__buffers b = {g->sendbufs[i], g->recvbufs[i],
                                       g->counts[i], g->dtype};

        if (hvd__call_reducescatter(c, &c->members[i], &b, row_elems[i]) < 0)
            return in_member(err, i);
    }
    if (rc == 0)
        sum_up_members(c);
    return rc;
}
