/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the arguments of each kind of call and makes its operation of them;
 * see call.h. */
#include "runtime/core/api/call.h"

#include "lib/base/alloc.h"

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

/* Accepts buffers that are equal (in place) or do not overlap at all. */
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

/* Sets the dtype that travels instead of the caller's. */
static void set_wire(struct hvd__call *c)
{
    struct hvd__op *op = &c->req.op;

    if (c->o.wire == HVD_WIRE_FULL || op->op == HVD_ADASUM ||
        (op->dtype != HVD_FLOAT32 && op->dtype != HVD_FLOAT64))
        return;
    op->dtype = c->o.wire == HVD_WIRE_FLOAT16 ? HVD_FLOAT16 : HVD_BFLOAT16;
    op->elem_bytes = hvd_dtype_size(op->dtype);
    op->args.pre = 1.0; /* hvd__op_pack scales the inputs */
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
        return hvd__call_no_scales(&c->o, err);
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

/* Checks the arrays of a group; has_alloc: recvbufs may be NULL. */
static int check_group(const struct hvd__group *g, int has_alloc,
                       struct hb_error *err)
{
    if (g->n < 1 || g->n > PTRDIFF_MAX / sizeof(struct hvd__op))
        return hb_error_set(err, HVD_EINVAL, "a group of %zu members", g->n);
    if (!g->sendbufs || !g->counts || (!g->recvbufs && !has_alloc))
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
    int rc = check_group(g, 0, err);

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

/* ---- The others ---------------------------------------------------------- */

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

/* Makes op ask the caller for the memory of what arrives. */
static int set_alloc(struct hvd__call *c, struct hvd__op *op,
                     const struct hvd__buffers *b,
                     const struct hvd__received *r)
{
    if (b->recvbuf || r->cap)
        return hb_error_set(&c->req.err, HVD_EINVAL,
                            "recvbuf and recvcap are given, and hvd_options "
                            "has an alloc; use one of the two");
    op->alloc.fn = c->o.alloc;
    op->alloc.arg = c->o.alloc_arg;
    return 0;
}

int hvd__call_allgather(struct hvd__call *c, struct hvd__op *op,
                        const struct hvd__buffers *b,
                        const struct hvd__received *r)
{
    struct hb_error *err = &c->req.err;
    int rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);

    if (rc == 0)
        rc = check_buffer("recvbuf", b->recvbuf, r->cap, op->elem_bytes, err);
    if (rc == 0 && c->o.alloc)
        rc = set_alloc(c, op, b, r);
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

    c->elems = b->count;
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

/* ---- Groups carried out member by member --------------------------------- */

static int begin_members(struct hvd__call *c, const struct hvd__group *g)
{
    struct hb_error *err = &c->req.err;
    int rc = check_group(g, c->o.alloc != NULL, err);

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

/* Hashes what must be equal in all members on all ranks. */
static void sum_up_members(struct hvd__call *c)
{
    struct hvd__op *op = &c->req.op;
    uint64_t h = 0;

    for (size_t i = 0; i < c->req.member_count; i++)
        h = hvd__mix(h, op->kind == HVD__ALLGATHER
                            ? 0
                            : hvd__op_signature(&c->members[i]));
    op->hashes.members = h;
}

int hvd__call_group_allgather(struct hvd__call *c, const struct hvd__group *g,
                              const size_t *recvcaps, size_t *recvcounts)
{
    struct hb_error *err = &c->req.err;
    size_t n = (size_t)c->set->n;
    int rc = hvd__call_set_dtype(&c->req.op, g->dtype, err);

    if (rc == 0 && !recvcaps && !c->o.alloc)
        rc = hb_error_set(err, HVD_EINVAL, "recvcaps is NULL");
    if (rc == 0)
        rc = begin_members(c, g);
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        const struct hvd__buffers b = {g->sendbufs[i],
                                       g->recvbufs ? g->recvbufs[i] : NULL,
                                       g->counts[i], g->dtype};
        const struct hvd__received r = {recvcaps ? recvcaps[i] : 0,
                                        recvcounts ? recvcounts + i * n : NULL};

        if (hvd__call_allgather(c, &c->members[i], &b, &r) < 0)
            return in_member(err, i);
        c->members[i].alloc.member = i;
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
