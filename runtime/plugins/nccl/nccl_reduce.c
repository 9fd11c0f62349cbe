/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce and reducescatter.
 *
 * Scaling: a sum of floats has one factor, prescale * postscale / divisor.  It
 * is done by ncclAvg, or by PreMulSum if its dtype holds the factor exactly,
 * else by our kernels before NCCL, so that half-precision sums overflow as
 * little as possible.  For other operations our kernels apply prescale before,
 * and postscale and divisor after.
 *
 * A direct operation is reduced from sendbuf to recvbuf.  Any other is packed
 * into the fusion buffer, as many elements at a time as every rank's buffer
 * can hold.
 *
 * In layers, each rank of a host reduces a share of the elements with its
 * peers on other hosts; the remainder is reduced directly.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include <math.h>
#include <string.h>

/* ---- Types ------------------------------------------------------------------
 */

static ncclDataType_t type_of(enum hvd_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [HVD_UINT8] = ncclUint8,
        [HVD_INT8] = ncclInt8,
        [HVD_INT32] = ncclInt32,
        [HVD_INT64] = ncclInt64,
        [HVD_FLOAT16] = ncclFloat16,
        [HVD_FLOAT32] = ncclFloat32,
        [HVD_FLOAT64] = ncclFloat64,
        [HVD_BFLOAT16] = ncclBfloat16,
        [HVD_FLOAT8_E4M3] = HVD__NCCL_FLOAT8E4M3,
        [HVD_FLOAT8_E5M2] = HVD__NCCL_FLOAT8E5M2,
    };

    return types[dtype];
}

static int is_float8(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT8_E4M3 || dtype == HVD_FLOAT8_E5M2;
}

static int is_float(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 ||
           dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64 || is_float8(dtype);
}

/* A floating-point format of few bits. */
struct format {
    int mantissa, bias;
};

static struct format format_of(enum hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_FLOAT16:
        return (struct format){10, 15};
    case HVD_BFLOAT16:
        return (struct format){7, 127};
    case HVD_FLOAT8_E4M3:
        return (struct format){3, 7};
    default:
        return (struct format){2, 15};
    }
}

/* Stores v as a dtype of few bits: 1 if that is exact and neither subnormal
 * nor near the largest numbers, else 0. */
static int put_small(void *out, enum hvd_dtype dtype, double v)
{
    struct format f = format_of(dtype);
    int exponent, bytes = (int)hvd_dtype_size(dtype);
    double m = frexp(fabs(v), &exponent) * 2.0; /* 1 <= m < 2 */
    double fraction = ldexp(m - 1.0, f.mantissa);
    uint16_t bits, sign = signbit(v) ? 1 : 0;

    exponent--;
    if (!isfinite(v) || v == 0 || exponent <= -f.bias || exponent >= f.bias ||
        fraction != (double)(unsigned)fraction)
        return 0;
    bits = (uint16_t)((unsigned)(exponent + f.bias) << f.mantissa |
                      (unsigned)fraction | (unsigned)sign << (8 * bytes - 1));
    memcpy(out, &bits, (size_t)bytes);
    return 1;
}

/* Stores the factor as PreMulSum takes it; 0 if it cannot: 0 itself, which
 * means "no factor" here, and factors that would lose digits. */
static int put_scalar(void *out, enum hvd_dtype dtype, double v)
{
    float f = (float)v;

    if (dtype == HVD_FLOAT64) {
        memcpy(out, &v, sizeof(v));
        return isnormal(v);
    }
    if (dtype == HVD_FLOAT32) {
        memcpy(out, &f, sizeof(f));
        return isnormal(f);
    }
    return put_small(out, dtype, v);
}

/* ---- Scales
 * ------------------------------------------------------------------
 */

static ncclRedOp_t plain_op(enum hvd_op op)
{
    switch (op) {
    case HVD_MIN:
        return ncclMin;
    case HVD_MAX:
        return ncclMax;
    case HVD_PRODUCT:
        return ncclProd;
    default:
        return ncclSum;
    }
}

static void plan_float_sum(const struct nc_plane *p, struct nc_reduction *r)
{
    const struct hvd__op *op = p->run.op;
    double factor = op->args.pre * op->args.post / op->args.divisor;
    unsigned char scalar[8];

    r->pre = 1.0;
    r->has_post = 0;
    if (factor == 1.0)
        return;
    if (p->layers == NC_FLAT && op->args.divisor == p->n &&
        op->args.pre == 1.0 && op->args.post == 1.0)
        r->op = ncclAvg;
    else if (put_scalar(scalar, op->dtype, factor))
        r->premul = factor;
    else
        r->pre = factor;
}

int nc_reduce_plan(struct nc_plane *p, struct hb_error *err)
{
    struct nc_reduction *r = &p->run.how;
    const struct hvd__op *op = p->run.op;
    const struct hvd__reduce_args *a = &op->args;

    r->op = plain_op(op->op);
    r->premul = 0;
    r->pre = a->pre;
    r->post = (struct hvd__reduce_args){1.0, a->post, a->divisor, 0};
    r->has_post = a->post != 1.0 || a->divisor != 1;
    if (is_float(op->dtype) && r->op == ncclSum) {
        plan_float_sum(p, r);
    } else if (r->op == ncclSum && a->pre == 1.0 && a->post == 1.0 &&
               a->divisor == p->n && p->n > 1 && p->layers == NC_FLAT) {
        r->op = ncclAvg;
        r->has_post = 0;
    }
    if (is_float8(op->dtype) && !p->has_float8)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "%s of %s: not all ranks have NCCL 2.24 and a GPU "
                            "of compute capability 9.0",
                            collective_name(op->kind),
                            hvd_dtype_name(op->dtype));
    if (is_float8(op->dtype) && (r->pre != 1.0 || r->has_post))
        return hb_error_set(
            err, HVD_EUNSUPPORTED, "%s of %s cannot be scaled by that",
            collective_name(op->kind), hvd_dtype_name(op->dtype));
    return 0;
}

static int scale(const struct nc_plane *p, void *dst, const void *src,
                 size_t count, const struct hvd__reduce_args *args,
                 struct hb_error *err)
{
    const struct hvd__fuse_scale s = {dst, src, count, p->run.view.dtype, args};

    return count ? hvd__fuse_scale(&nc_world.kernels, &s, p->on->cuda, err) : 0;
}

/* Computes dst = src * pre. */
static int before(const struct nc_plane *p, void *dst, const void *src,
                  size_t count, struct hb_error *err)
{
    const struct hvd__reduce_args args = {p->run.how.pre, 1.0, 1, 0};

    return scale(p, dst, src, count, &args, err);
}

/* ---- Calls of NCCL ---------------------------------------------------------
 */

/* The reduction of a communicator.  A PreMulSum is made for it, and may be
 * destroyed once the call that uses it has returned. */
struct own_op {
    ncclRedOp_t op;
    int is_made;
};

static struct own_op make_op(struct nc_plane *p, enum nc_comm_index i)
{
    struct own_op own = {p->run.how.op, 0};
    unsigned char scalar[8];

    if (p->run.how.premul == 0)
        return own;
    put_scalar(scalar, p->run.view.dtype, p->run.how.premul);
    NC_CALL(p, i, RedOpCreatePreMulSum, &own.op, scalar,
            type_of(p->run.view.dtype), ncclScalarHostImmediate,
            p->on->comm[i]);
    own.is_made = !p->run.awaits_reason;
    return own;
}

static void destroy_op(struct nc_plane *p, enum nc_comm_index i,
                       struct own_op own)
{
    if (own.is_made)
        hvd__nccl.RedOpDestroy(own.op, p->on->comm[i]);
}

/* The elements to reduce next. */
struct region {
    const unsigned char *in;
    unsigned char *out;
    size_t count;
};

static void reduce_all(struct nc_plane *p, const struct region *r)
{
    struct own_op own = make_op(p, NC_ALL);

    if (p->run.awaits_reason)
        return;
    NC_CALL(p, NC_ALL, AllReduce, r->in, r->out, r->count,
            type_of(p->run.view.dtype), own.op, p->on->comm[NC_ALL],
            p->on->cuda);
    destroy_op(p, NC_ALL, own);
}

static void scatter_local(struct nc_plane *p, const struct region *r,
                          unsigned char *own_share, size_t share)
{
    struct own_op own = make_op(p, NC_LOCAL);

    if (p->run.awaits_reason)
        return;
    NC_CALL(p, NC_LOCAL, ReduceScatter, r->in, own_share, share,
            type_of(p->run.view.dtype), own.op, p->on->comm[NC_LOCAL],
            p->on->cuda);
    destroy_op(p, NC_LOCAL, own);
}

enum layer { SCATTER, ACROSS, GATHER, REST, LAYERS };

/* Calls NCCL for one layer of a region; nothing if its share is empty. */
static void reduce_layer(struct nc_plane *p, const struct region *r,
                         enum layer layer)
{
    size_t bytes = p->run.view.elem_bytes;
    size_t share = r->count / (size_t)p->shape.local_size;
    size_t done = share * (size_t)p->shape.local_size;
    unsigned char *own = r->out + share * (size_t)p->shape.local_me * bytes;
    const struct region rest = {r->in + done * bytes, r->out + done * bytes,
                                r->count - done};
    ncclDataType_t type = type_of(p->run.view.dtype);

    if (layer == REST && rest.count)
        reduce_all(p, &rest);
    if (layer == REST || share == 0)
        return;
    if (layer == SCATTER)
        scatter_local(p, r, own, share);
    else if (layer == ACROSS)
        NC_CALL(p, NC_CROSS, AllReduce, own, own, share, type, p->run.how.op,
                p->on->comm[NC_CROSS], p->on->cuda);
    else
        NC_CALL(p, NC_LOCAL, AllGather, own, r->out, share, type,
                p->on->comm[NC_LOCAL], p->on->cuda);
}

/* Makes the next call for a region.  1: all is on the stream; 0: a call was
 * made; or negative. */
static int reduce_step(struct nc_plane *p, const struct region *r,
                       struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int steps = p->layers == NC_FLAT ? 1 : (int)LAYERS, rc;

    if (run->step == steps || r->count == 0)
        return 1;
    rc = nc_lock(p, err);
    if (rc < 0)
        return rc;
    if (p->layers == NC_FLAT)
        reduce_all(p, r);
    else
        reduce_layer(p, r, (enum layer)run->step);
    nc_unlock();
    run->step++;
    return 0;
}

/* ---- Allreduce
 * ---------------------------------------------------------------
 */

static const char *algorithm_of(const struct nc_plane *p)
{
    switch (p->layers) {
    case NC_TORUS:
        return "nccl.allreduce.torus";
    case NC_HIERARCHICAL:
        return "nccl.allreduce.hierarchical";
    default:
        return hvd__op_direct(p->run.op) ? "nccl.allreduce"
                                         : "nccl.allreduce.fused";
    }
}

/* Returns the region of the block in progress. */
static struct region region_of(const struct nc_plane *p)
{
    const struct nc_run *run = &p->run;
    const struct hvd__op *op = &run->view;
    struct region r = {p->on->fusion.ptr, p->on->fusion.ptr, run->block};

    if (hvd__op_direct(op)) {
        r.in = run->how.pre == 1.0 ? op->sendbuf : op->recvbuf;
        r.out = op->recvbuf;
    }
    return r;
}

static int begin_block(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    struct hvd__op *op = &run->view;
    size_t most = p->fusion_bytes / op->elem_bytes;
    struct hvd__fuse_pack pack = {op, p->on->fusion.ptr, run->at, 0,
                                  run->how.pre};

    run->step = 0;
    run->block = op->count - run->at;
    if (hvd__op_direct(op))
        return run->how.pre == 1.0
                   ? 0
                   : before(p, op->recvbuf, op->sendbuf, op->count, err);
    if (run->block > most)
        run->block = most;
    pack.count = run->block;
    return hvd__fuse_pack(&nc_world.kernels, &pack, p->on->cuda, err);
}

static int end_block(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    const struct hvd__op *op = &run->view;
    const struct hvd__fuse_unpack unpack = {
        op, p->on->fusion.ptr, run->at, run->block,
        run->how.has_post ? &run->how.post : NULL};
    int rc = 0;

    if (!hvd__op_direct(op))
        rc = hvd__fuse_unpack(&nc_world.kernels, &unpack, p->on->cuda, err);
    else if (run->how.has_post)
        rc = scale(p, op->recvbuf, op->recvbuf, op->count, &run->how.post, err);
    run->at += run->block;
    run->block = 0;
    return rc;
}

int nc_allreduce(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int rc = 0;

    run->op->trace.algorithm = algorithm_of(p);
    /* The cast scales by prescale. */
    if (run->at == 0 && !run->block && run->view.part_dtype != run->view.dtype)
        run->view.prescale *= run->how.pre;
    for (;;) {
        struct region r;

        if (run->at == run->view.count)
            return 1;
        if (!run->block)
            rc = begin_block(p, err);
        if (rc < 0)
            return rc;
        r = region_of(p);
        rc = reduce_step(p, &r, err);
        if (rc != 1)
            return rc;
        rc = end_block(p, err);
    }
}

/* ---- Reducescatter
 * -----------------------------------------------------------
 */

static int is_even(const struct nc_plane *p)
{
    const struct hvd__op *op = &p->run.view;

    return op->count / op->row_elems % (size_t)p->n == 0;
}

static void scatter_even(struct nc_plane *p, ncclRedOp_t op)
{
    const struct hvd__op *view = &p->run.view;

    NC_CALL(p, NC_ALL, ReduceScatter, view->sendbuf, view->recvbuf,
            hvd__op_share(view, p->me, p->n).count, type_of(view->dtype), op,
            p->on->comm[NC_ALL], p->on->cuda);
}

static void scatter_uneven(struct nc_plane *p, ncclRedOp_t op)
{
    const struct hvd__op *view = &p->run.view;

    NC_CALL(p, NC_ALL, GroupStart);
    for (int r = 0; r < p->n; r++) {
        struct hvd__share s = hvd__op_share(view, r, p->n);
        const unsigned char *in =
            (const unsigned char *)view->sendbuf + s.first * view->elem_bytes;

        if (s.count)
            NC_CALL(p, NC_ALL, Reduce, in, view->recvbuf, s.count,
                    type_of(view->dtype), op, r, p->on->comm[NC_ALL],
                    p->on->cuda);
    }
    NC_CALL(p, NC_ALL, GroupEnd);
}

static int scatter(struct nc_plane *p, struct hb_error *err)
{
    struct own_op own;
    int rc = nc_lock(p, err);

    if (rc < 0)
        return rc;
    own = make_op(p, NC_ALL);
    if (!p->run.awaits_reason && is_even(p))
        scatter_even(p, own.op);
    else if (!p->run.awaits_reason)
        scatter_uneven(p, own.op);
    destroy_op(p, NC_ALL, own);
    nc_unlock();
    return 0;
}

/* Scales sendbuf into other memory: the caller's must not change. */
static int scale_apart(struct nc_plane *p, struct hb_error *err)
{
    struct hvd__op *view = &p->run.view;
    void *apart = nc_scratch_get(p, view->count * view->elem_bytes, err);
    int rc;

    if (!apart)
        return err->status;
    rc = before(p, apart, view->sendbuf, view->count, err);
    view->sendbuf = apart;
    return rc;
}

int nc_reducescatter(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    const struct hvd__op *view = &run->view;
    size_t own = hvd__op_share(view, p->me, p->n).count;
    int rc = 0;

    run->op->trace.algorithm =
        is_even(p) ? "nccl.reducescatter" : "nccl.reducescatter.uneven";
    if (view->count == 0)
        return 1;
    if (run->step++ > 0) {
        if (run->how.has_post)
            rc = scale(p, view->recvbuf, view->recvbuf, own, &run->how.post,
                       err);
        return rc < 0 ? rc : 1;
    }
    if (run->how.pre != 1.0)
        rc = scale_apart(p, err);
    return rc < 0 ? rc : scatter(p, err);
}
