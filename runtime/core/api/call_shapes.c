/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the shapes that a caller gives with tensors; see call.h. */
#include "runtime/core/api/call.h"

#include "runtime/core/sched/shapes.h"

#include <inttypes.h>

/* Stores the product of the dimensions.  Returns 0 if no size_t holds it. */
static int multiply(const struct hvd_shape *s, size_t *elems)
{
    int fits = 1;

    *elems = 1;
    for (int i = 0; i < s->ndim; i++)
        if (__builtin_mul_overflow(*elems, (uint64_t)s->dims[i], elems))
            fits = 0;
    for (int i = 0; i < s->ndim; i++)
        if (s->dims[i] == 0) {
            *elems = 0;
            fits = 1;
        }
    return fits;
}

/* Checks the dimensions of a shape alone, and stores their product. */
static int check_dims(const struct hvd_shape *s, size_t *elems,
                      struct hb_error *err)
{
    if (s->ndim < 0 || s->ndim > HVD_NDIM_MAX)
        return hb_error_set(err, HVD_EINVAL, "shape: ndim %d is not in 0..%d",
                            s->ndim, HVD_NDIM_MAX);
    if (s->ndim && !s->dims)
        return hb_error_set(err, HVD_EINVAL, "shape: dims is NULL");
    for (int i = 0; i < s->ndim; i++)
        if (s->dims[i] < 0)
            return hb_error_set(err, HVD_EINVAL,
                                "shape: dimension %d is %" PRId64, i,
                                s->dims[i]);
    if (multiply(s, elems))
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "shape: its elements do not fit in memory");
}

/* Checks a shape against the elements that the call sends, and for a
 * reducescatter (row_elems > 0) against its rows. */
static int check_shape(const struct hvd_shape *s, size_t count,
                       size_t row_elems, struct hb_error *err)
{
    size_t elems = 0;
    int rc = check_dims(s, &elems, err);

    if (rc < 0)
        return rc;
    if (row_elems && (!s->ndim || (uint64_t)s->dims[0] != count / row_elems))
        return hb_error_set(err, HVD_EINVAL,
                            "shape: dimension 0 is not the number of rows, %zu",
                            count / row_elems);
    if (elems == count)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "shape: it has %zu elements and the call %zu", elems,
                        count);
}

/* Returns the elements of the i-th tensor of the call. */
static size_t count_of(const struct hvd__call *c, size_t i)
{
    const struct hvd__op *op = &c->req.op;

    if (c->members)
        return c->members[i].count;
    if (op->flags & HVD__OP_GROUP)
        return op->parts[i].count;
    return op->kind == HVD__ALLTOALL ? c->elems : op->count;
}

int hvd__call_shapes(struct hvd__call *c)
{
    const struct hvd_shape *shapes = c->o.shapes;
    struct hvd__op *op = &c->req.op;
    size_t n = hvd__shapes_count(op);

    if (op->kind == HVD__BARRIER || op->kind == HVD__JOIN)
        return hb_error_set(&c->req.err, HVD_EINVAL,
                            "hvd_options: shapes of no tensor");
    for (size_t i = 0; i < n; i++) {
        const struct hvd__op *m = c->members ? &c->members[i] : op;
        int rc =
            check_shape(&shapes[i], count_of(c, i), m->row_elems, &c->req.err);

        if (rc < 0 && op->flags & HVD__OP_GROUP)
            hb_error_context(&c->req.err, "member %zu", i);
        if (rc < 0)
            return rc;
    }
    c->req.shapes = shapes;
    op->flags |= HVD__OP_SHAPED;
    op->hashes.shapes = hvd__shapes_hash(op->kind, shapes, n);
    return 0;
}
