/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collective calls: check the arguments, make an operation, hand it to
 * the engine.  A blocking call keeps everything on its stack.
 */
#include "runtime/core/context.h"
#include "runtime/core/message.h"

#include <math.h>
#include <string.h>

static const struct hvd_options defaults = HVD_OPTIONS_INIT;

/* ---- Checks -------------------------------------------------------- */

enum { OPTIONS_BYTES_MAX = 4096 };

/* A caller built with a newer hvd.h may pass more fields; they are
 * understood as long as they hold their default, 0. */
static int read_options(const struct hvd_options *opts, struct hvd_options *out,
                        struct hb_error *err)
{
    const unsigned char *bytes = (const unsigned char *)opts;

    *out = defaults;
    if (!opts)
        return 0;
    if (opts->size < sizeof(*opts) || opts->size > OPTIONS_BYTES_MAX)
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
    if (!isfinite(opts->prescale) || !isfinite(opts->postscale))
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: a scale is not finite");
    *out = *opts;
    return 0;
}

static int no_scales(const struct hvd_options *o, struct hb_error *err)
{
    if (o->prescale == 1.0 && o->postscale == 1.0)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "hvd_options: only reductions can be scaled");
}

/* What a caller passes; count is what this rank sends. */
struct buffers {
    const void *sendbuf;
    void *recvbuf;
    size_t count;
    enum hvd_dtype dtype;
};

static int check_buffer(const char *what, const void *p, size_t count,
                        size_t elem_bytes, struct hb_error *err)
{
    if (count == 0)
        return 0;
    if (count > PTRDIFF_MAX / elem_bytes)
        return hb_error_set(err, HVD_EINVAL,
                            "%s: %zu elements do not fit in memory", what,
                            count);
    if (!p)
        return hb_error_set(err, HVD_EINVAL, "%s is NULL", what);
    if ((uintptr_t)p % elem_bytes)
        return hb_error_set(err, HVD_EINVAL,
                            "%s is not aligned to its %zu-byte elements", what,
                            elem_bytes);
    return 0;
}

/* Equal is in place; anything between is refused. */
static int check_overlap(const struct buffers *b, size_t elem_bytes,
                         struct hb_error *err)
{
    uintptr_t s = (uintptr_t)b->sendbuf, r = (uintptr_t)b->recvbuf;
    size_t bytes = b->count * elem_bytes;

    if (s == r || s + bytes <= r || r + bytes <= s)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "sendbuf and recvbuf overlap without being equal");
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

/* What all collectives begin with. */
static int begin(struct hvd__op *op, enum hvd__kind kind, const char *name,
                 const struct hvd_options *opts, struct hb_error *err)
{
    struct hvd_options o = defaults;
    int rc;

    memset(op, 0, sizeof(*op));
    op->kind = kind;
    op->err = err;
    if (!hvd__alive())
        return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    rc = check_name(&name, err);
    if (rc == 0)
        rc = read_options(opts, &o, err);
    op->name = name;
    op->prescale = o.prescale;
    op->postscale = o.postscale;
    op->elem_bytes = 1;
    if (rc == 0 && kind != HVD__ALLREDUCE)
        rc = no_scales(&o, err);
    return rc;
}

static int set_dtype(struct hvd__op *op, enum hvd_dtype dtype,
                     struct hb_error *err)
{
    op->dtype = dtype;
    op->elem_bytes = hvd_dtype_size(dtype);
    if (op->elem_bytes)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "%d is not an enum hvd_dtype",
                        (int)dtype);
}

static void set_buffers(struct hvd__op *op, const struct buffers *b)
{
    op->sendbuf = b->sendbuf;
    op->recvbuf = b->recvbuf;
    op->count = b->count;
}

/* ---- One maker per kind -------------------------------------------- */

static int make_allreduce(struct hvd__op *op, const struct buffers *b,
                          enum hvd_op rop, struct hb_error *err)
{
    int rc = set_dtype(op, b->dtype, err);

    if (rc < 0)
        return rc;
    op->op = rop;
    op->reduce = hvd__reduce_get(b->dtype, rop);
    if (!op->reduce)
        return hb_error_set(err, HVD_EINVAL, "%s of %s is not defined",
                            hvd_op_name(rop), hvd_dtype_name(b->dtype));
    rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);
    if (rc == 0)
        rc = check_buffer("recvbuf", b->recvbuf, b->count, op->elem_bytes, err);
    if (rc == 0)
        rc = check_overlap(b, op->elem_bytes, err);
    set_buffers(op, b);
    op->args.pre = op->prescale;
    op->args.post = op->postscale;
    op->args.divisor = rop == HVD_AVERAGE ? hvd__context.topology.size : 1;
    return rc;
}

static int make_broadcast(struct hvd__op *op, const struct buffers *b, int root,
                          struct hb_error *err)
{
    int rc = set_dtype(op, b->dtype, err);
    int is_root = hvd__context.topology.rank == root;

    if (rc < 0)
        return rc;
    if (root < 0 || root >= hvd__context.topology.size)
        return hb_error_set(err, HVD_EINVAL, "root %d is not in 0..%d", root,
                            hvd__context.topology.size - 1);
    op->root = root;
    rc = check_buffer("recvbuf", b->recvbuf, b->count, op->elem_bytes, err);
    if (rc == 0 && is_root)
        rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);
    if (rc == 0 && is_root)
        rc = check_overlap(b, op->elem_bytes, err);
    set_buffers(op, b);
    return rc;
}

static int make_allgather(struct hvd__op *op, const struct buffers *b,
                          size_t recvcap, size_t *recvcounts,
                          struct hb_error *err)
{
    int rc = set_dtype(op, b->dtype, err);

    if (rc == 0)
        rc = check_buffer("sendbuf", b->sendbuf, b->count, op->elem_bytes, err);
    if (rc == 0)
        rc = check_buffer("recvbuf", b->recvbuf, recvcap, op->elem_bytes, err);
    set_buffers(op, b);
    op->recvcap = recvcap;
    op->recvcounts = recvcounts;
    return rc;
}

/* ---- To the engine ------------------------------------------------- */

static int told(const struct hvd__op *op, struct hb_error *err)
{
    hb_error_context(err, "%s", hvd__kind_name(op->kind));
    return hvd__tell(err);
}

/* rc: what making the operation gave. */
static int run(struct hvd_request *req, int rc)
{
    struct hb_error *err = &req->err;

    if (rc < 0)
        return told(&req->op, err);
    hvd__op_sign(&req->op);
    rc = hvd__engine_run(&hvd__context.engine, req);
    return rc < 0 ? hvd__tell(err) : 0;
}

static int submit(struct hvd__op *op, int rc, hvd_request **out,
                  struct hb_error *err)
{
    struct hvd_request *req;

    if (rc == 0 && !out)
        rc = hb_error_set(err, HVD_EINVAL, "req is NULL");
    if (rc < 0)
        return told(op, err);
    op->name_hash = hvd__name_hash(op->name);
    hvd__op_sign(op);
    req = hvd__request_new(op);
    if (!req)
        return hvd__fail(HVD_ENOMEM, "no memory for a request");
    rc = hvd__engine_submit(&hvd__context.engine, req, err);
    if (rc < 0) {
        hvd__request_free(req);
        return hvd__tell(err);
    }
    *out = req;
    return 0;
}

/* ---- The calls ----------------------------------------------------- */

int hvd_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                  enum hvd_dtype dtype, enum hvd_op op,
                  const struct hvd_options *opts)
{
    struct buffers b = {sendbuf, recvbuf, count, dtype};
    struct hvd_request req;
    int rc;

    hvd__request_init(&req);
    rc = begin(&req.op, HVD__ALLREDUCE, NULL, opts, &req.err);
    if (rc == 0)
        rc = make_allreduce(&req.op, &b, op, &req.err);
    return run(&req, rc);
}

int hvd_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                        size_t count, enum hvd_dtype dtype, enum hvd_op op,
                        const struct hvd_options *opts, hvd_request **req)
{
    struct buffers b = {sendbuf, recvbuf, count, dtype};
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__op o;
    int rc = begin(&o, HVD__ALLREDUCE, name, opts, &err);

    if (rc == 0)
        rc = make_allreduce(&o, &b, op, &err);
    return submit(&o, rc, req, &err);
}

int hvd_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                  enum hvd_dtype dtype, int root,
                  const struct hvd_options *opts)
{
    struct buffers b = {sendbuf, recvbuf, count, dtype};
    struct hvd_request req;
    int rc;

    hvd__request_init(&req);
    rc = begin(&req.op, HVD__BROADCAST, NULL, opts, &req.err);
    if (rc == 0)
        rc = make_broadcast(&req.op, &b, root, &req.err);
    return run(&req, rc);
}

int hvd_broadcast_async(const char *name, const void *sendbuf, void *recvbuf,
                        size_t count, enum hvd_dtype dtype, int root,
                        const struct hvd_options *opts, hvd_request **req)
{
    struct buffers b = {sendbuf, recvbuf, count, dtype};
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__op o;
    int rc = begin(&o, HVD__BROADCAST, name, opts, &err);

    if (rc == 0)
        rc = make_broadcast(&o, &b, root, &err);
    return submit(&o, rc, req, &err);
}

int hvd_allgather(const void *sendbuf, size_t sendcount, void *recvbuf,
                  size_t recvcap, size_t *recvcounts, enum hvd_dtype dtype,
                  const struct hvd_options *opts)
{
    struct buffers b = {sendbuf, recvbuf, sendcount, dtype};
    struct hvd_request req;
    int rc;

    hvd__request_init(&req);
    rc = begin(&req.op, HVD__ALLGATHER, NULL, opts, &req.err);
    if (rc == 0)
        rc = make_allgather(&req.op, &b, recvcap, recvcounts, &req.err);
    return run(&req, rc);
}

int hvd_allgather_async(const char *name, const void *sendbuf, size_t sendcount,
                        void *recvbuf, size_t recvcap, size_t *recvcounts,
                        enum hvd_dtype dtype, const struct hvd_options *opts,
                        hvd_request **req)
{
    struct buffers b = {sendbuf, recvbuf, sendcount, dtype};
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__op o;
    int rc = begin(&o, HVD__ALLGATHER, name, opts, &err);

    if (rc == 0)
        rc = make_allgather(&o, &b, recvcap, recvcounts, &err);
    return submit(&o, rc, req, &err);
}

int hvd_barrier(const struct hvd_options *opts)
{
    struct hvd_request req;

    hvd__request_init(&req);
    return run(&req, begin(&req.op, HVD__BARRIER, NULL, opts, &req.err));
}

int hvd_barrier_async(const char *name, const struct hvd_options *opts,
                      hvd_request **req)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__op o;
    int rc = begin(&o, HVD__BARRIER, name, opts, &err);

    return submit(&o, rc, req, &err);
}
