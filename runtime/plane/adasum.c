/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adasum: which data is sent, and in which order; see adasum.h.  Compiled
 * without floating-point contraction, so that ranks which compute the same get
 * the same bits on any CPU.
 */
#include "runtime/plane/adasum.h"

#include "lib/base/alloc.h"
#include "runtime/plane/kernels/cast.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    /* Up to this total size of all vectors, gathering them and computing
     * everything on every rank costs less than the messages of a level. */
    WHOLE_BYTES = 64 << 10,
    ALIGN_BYTES = 64,
    DOTS = 3, /* per pair and tensor */
};

enum stage { STAGE_EXCHANGE, STAGE_LEVEL, STAGE_GATHER };

/* ---- Memory ----------------------------------------------------------- */

static size_t tensors_of(const struct hvd__op *op)
{
    return hvd__op_direct(op) ? 1 : op->nparts;
}

/* Appends a piece to the layout of a block, whose size is *bytes so far, and
 * returns its offset.  On overflow *bytes becomes SIZE_MAX, which cannot be
 * allocated. */
static size_t lay_out(size_t *bytes, size_t count, size_t elem_bytes)
{
    size_t at = *bytes, piece;

    if (__builtin_mul_overflow(count, elem_bytes, &piece) ||
        __builtin_add_overflow(piece, ALIGN_BYTES - 1, &piece) ||
        __builtin_add_overflow(at, piece / ALIGN_BYTES * ALIGN_BYTES, bytes))
        *bytes = SIZE_MAX;
    return at;
}

static int make_room(struct hvd__adasum *a, size_t bytes)
{
    if (bytes <= a->memory_bytes)
        return 0;
    hb_free(a->memory);
    a->memory_bytes = 0;
    a->memory =
        bytes < SIZE_MAX - ALIGN_BYTES ? hb_malloc(bytes + ALIGN_BYTES) : NULL;
    if (!a->memory)
        return hb_error_set(a->op->err, HVD_ENOMEM,
                            "no memory for Adasum of %zu elements",
                            a->op->count);
    a->memory_bytes = bytes;
    return 0;
}

static int allocate(struct hvd__adasum *a)
{
    const struct hvd__op *op = a->op;
    size_t n = (size_t)a->n, all = n * a->count, bytes = 0;
    int narrow = a->work != op->dtype;
    size_t inputs, values, tensors, result, dots, counts, vector;
    unsigned char *base;
    int rc;

    if (a->count > SIZE_MAX / n)
        all = SIZE_MAX;
    inputs = lay_out(&bytes, all, op->elem_bytes);
    values = narrow ? lay_out(&bytes, all, a->work_bytes) : inputs;
    tensors =
        lay_out(&bytes, hvd__op_direct(op) ? 0 : op->count, op->elem_bytes);
    result = lay_out(&bytes, a->count, op->elem_bytes);
    dots = lay_out(&bytes, DOTS * (n / 2) * tensors_of(op), sizeof(double));
    counts = lay_out(&bytes, n, sizeof(*a->counts));
    vector = lay_out(&bytes, n, sizeof(*a->vector));
    rc = make_room(a, bytes);
    if (rc < 0)
        return rc;
    base = a->memory + -(uintptr_t)a->memory % ALIGN_BYTES;
    a->inputs = base + inputs;
    a->values = base + values;
    a->tensors = base + tensors;
    a->result = base + result;
    a->dots = (double *)(void *)(base + dots);
    a->counts = (size_t *)(void *)(base + counts);
    a->vector = (unsigned char **)(void *)(base + vector);
    return 0;
}

/* Returns a rank's slice; the first ranks get one element more. */
static struct hvd__share slice_of(const struct hvd__op *op, int rank, int n)
{
    size_t each = op->count / (size_t)n, rest = op->count % (size_t)n;
    size_t r = (size_t)rank;
    struct hvd__share s = {r * each + (r < rest ? r : rest), each + (r < rest)};

    return s;
}

/* ---- Arithmetic ------------------------------------------------------- */

/* Number of independent sums, so that additions overlap and fill vectors. */
enum { LANES = 4 };

#define DOT_LOOP(T)                                                    \
    static void dot_##T(const T *x, const T *y, size_t count,          \
                        double out[DOTS])                              \
    {                                                                  \
        double xy[LANES] = {0}, xx[LANES] = {0}, yy[LANES] = {0};      \
        size_t i = 0;                                                  \
                                                                       \
        for (; i + LANES <= count; i += LANES)                         \
            for (size_t k = 0; k < LANES; k++) {                       \
                double u = (double)x[i + k], v = (double)y[i + k];     \
                                                                       \
                xy[k] += u * v;                                        \
                xx[k] += u * u;                                        \
                yy[k] += v * v;                                        \
            }                                                          \
        for (size_t k = 0; i < count; i++, k++) {                      \
            double u = (double)x[i], v = (double)y[i];                 \
                                                                       \
            xy[k] += u * v;                                            \
            xx[k] += u * u;                                            \
            yy[k] += v * v;                                            \
        }                                                              \
        out[0] = (xy[0] + xy[1]) + (xy[2] + xy[3]);                    \
        out[1] = (xx[0] + xx[1]) + (xx[2] + xx[3]);                    \
        out[2] = (yy[0] + yy[1]) + (yy[2] + yy[3]);                    \
    }                                                                  \
    static void combine_##T(T x[], const T *y, size_t count, double f, \
                            double g)                                  \
    {                                                                  \
        for (size_t i = 0; i < count; i++)                             \
            x[i] = (T)(f * (double)x[i] + g * (double)y[i]);           \
    }

DOT_LOOP(float)
DOT_LOOP(double)

static void dot(const struct hvd__adasum *a, const void *x, const void *y,
                size_t count, double out[DOTS])
{
    if (a->work == HVD_FLOAT32)
        dot_float(x, y, count, out);
    else
        dot_double(x, y, count, out);
}

/* Returns 1 - xy / 2xx, or 1 if xx is too small to divide by. */
static double factor(double xy, double xx)
{
    static const double least = 0x1p-511; /* the root of DBL_MIN */

    return xx >= least ? 1.0 - 0.5 * (xy / xx) : 1.0;
}

/* Combines a pair's x and y into x. */
static void combine(const struct hvd__adasum *a, void *x, const void *y,
                    size_t count, const double dots[DOTS])
{
    double f = factor(dots[0], dots[1]), g = factor(dots[0], dots[2]);

    if (a->work == HVD_FLOAT32)
        combine_float(x, y, count, f, g);
    else
        combine_double(x, y, count, f, g);
}

/* Converts between dtypes, which may be the same, and multiplies by `by`. */
static void convert(void *dst, enum hvd_dtype to, const void *src,
                    enum hvd_dtype from, size_t count, double by)
{
    const struct hvd__reduce_args args = {by, 1.0, 1, 0};

    if (to != from)
        hvd__cast_get(to, from)(dst, src, count, by);
    else
        hvd__reduce_get(to, HVD_SUM)(dst, &src, 1, count, &args);
}

/* ---- Levels ----------------------------------------------------------- */

/* Returns the part of a tensor in this rank's slice, relative to the slice. */
static struct hvd__share in_slice(const struct hvd__adasum *a, size_t tensor)
{
    struct hvd__share s = {0, a->op->count};
    size_t end;

    if (!hvd__op_direct(a->op)) {
        s.first = a->op->parts[tensor].first;
        s.count = a->op->parts[tensor].count;
    }
    end = s.first + s.count;
    if (end > a->first + a->count)
        end = a->first + a->count;
    if (s.first < a->first)
        s.first = a->first;
    s.count = end > s.first ? end - s.first : 0;
    s.first = s.count ? s.first - a->first : 0;
    return s;
}

static double *dots_of(const struct hvd__adasum *a, int pair, size_t tensor)
{
    return a->dots + DOTS * ((size_t)pair * tensors_of(a->op) + tensor);
}

static void level_dots(struct hvd__adasum *a)
{
    for (int i = 0; i < a->vectors / 2; i++)
        for (size_t t = 0; t < tensors_of(a->op); t++) {
            struct hvd__share s = in_slice(a, t);
            size_t at = s.first * a->work_bytes;

            dot(a, a->vector[2 * i] + at, a->vector[2 * i + 1] + at, s.count,
                dots_of(a, i, t));
        }
}

static void level_combine(struct hvd__adasum *a)
{
    int pairs = a->vectors / 2;

    for (int i = 0; i < pairs; i++) {
        for (size_t t = 0; t < tensors_of(a->op); t++) {
            struct hvd__share s = in_slice(a, t);
            size_t at = s.first * a->work_bytes;

            combine(a, a->vector[2 * i] + at, a->vector[2 * i + 1] + at,
                    s.count, dots_of(a, i, t));
        }
        a->vector[i] = a->vector[2 * i];
    }
    if (a->vectors % 2)
        a->vector[pairs] = a->vector[2 * pairs];
    a->vectors = pairs + a->vectors % 2;
}

/* ---- Operations of the plane ------------------------------------------ */

static void new_sub(struct hvd__adasum *a, enum hvd__kind kind)
{
    struct hvd__op *sub = &a->sub, *op = a->op;

    memset(sub, 0, sizeof(*sub));
    sub->kind = kind;
    sub->dtype = sub->part_dtype = op->dtype;
    sub->elem_bytes = op->elem_bytes;
    sub->prescale = sub->postscale = 1.0;
    sub->args = (struct hvd__reduce_args){1.0, 1.0, 1, 0};
    sub->row_elems = 1;
    sub->name = op->name;
    sub->hashes.name = op->hashes.name;
    sub->signature = op->signature;
    sub->first_signature = op->first_signature;
    sub->entries = op->entries;
    sub->trace.agreed_ns = op->trace.agreed_ns;
    sub->trace.late_rank = op->trace.late_rank;
    if (a->steps > 0) {
        sub->trace.agreed_ns = 0;
        sub->signature = hvd__mix(op->signature, a->steps);
        sub->first_signature = sub->signature;
        sub->entries = 1;
    }
    sub->err = op->err;
}

static int start_sub(struct hvd__adasum *a)
{
    a->steps++;
    return a->plane->ops->start(a->plane, &a->sub);
}

/* Returns op's input as one piece, for a direct operation. */
static const void *one_piece(struct hvd__adasum *a)
{
    if (hvd__op_direct(a->op))
        return a->op->sendbuf;
    hvd__op_pack(a->op, a->tensors, 0, a->op->count);
    return a->tensors;
}

static int start_exchange(struct hvd__adasum *a)
{
    struct hvd__op *sub = &a->sub;

    new_sub(a, a->whole ? HVD__ALLGATHER : HVD__ALLTOALL);
    sub->sendbuf = one_piece(a);
    sub->count = a->op->count;
    sub->recvbuf = a->inputs;
    sub->recvcap = (size_t)a->n * a->count;
    for (int r = 0; r < a->n; r++)
        a->counts[r] = slice_of(a->op, r, a->n).count;
    sub->sendcounts = a->whole ? NULL : a->counts;
    a->stage = STAGE_EXCHANGE;
    return start_sub(a);
}

static int start_sum_of_dots(struct hvd__adasum *a)
{
    struct hvd__op *sub = &a->sub;

    new_sub(a, HVD__ALLREDUCE);
    sub->dtype = sub->part_dtype = HVD_FLOAT64;
    sub->elem_bytes = sizeof(double);
    sub->op = HVD_SUM;
    sub->reduce = hvd__reduce_get(HVD_FLOAT64, HVD_SUM);
    sub->sendbuf = sub->recvbuf = a->dots;
    sub->count = DOTS * (size_t)(a->vectors / 2) * tensors_of(a->op);
    a->stage = STAGE_LEVEL;
    return start_sub(a);
}

static int start_gather(struct hvd__adasum *a)
{
    struct hvd__op *sub = &a->sub, *op = a->op;

    new_sub(a, HVD__ALLGATHER);
    convert(a->result, op->dtype, a->vector[0], a->work, a->count,
            op->args.post);
    sub->sendbuf = a->result;
    sub->count = a->count;
    sub->recvbuf = hvd__op_direct(op) ? op->recvbuf : a->tensors;
    sub->recvcap = op->count;
    a->stage = STAGE_GATHER;
    return start_sub(a);
}

/* ---- Stages -------------------------------------------------------------- */

/* Writes the result of short vectors to op's buffers. */
static void deliver_whole(struct hvd__adasum *a)
{
    struct hvd__op *op = a->op;
    void *to = hvd__op_direct(op) ? op->recvbuf : a->tensors;

    convert(to, op->dtype, a->vector[0], a->work, op->count, op->args.post);
    if (!hvd__op_direct(op))
        hvd__op_unpack(op, a->tensors, 0, op->count, 0);
}

/* Begins the next level, or what follows the last one.  Returns 1 when done,
 * else as start. */
static int go_on(struct hvd__adasum *a)
{
    while (a->vectors > 1) {
        level_dots(a);
        if (!a->whole)
            return start_sum_of_dots(a);
        level_combine(a);
    }
    if (!a->whole)
        return start_gather(a);
    deliver_whole(a);
    return 1;
}

/* Continues when the vectors have been exchanged. */
static int exchanged(struct hvd__adasum *a)
{
    struct hvd__op *op = a->op;

    op->trace.agreed_ns = a->sub.trace.agreed_ns;
    op->trace.late_rank = a->sub.trace.late_rank;
    if (op->count == 0)
        return 1;
    if (a->values != a->inputs || op->args.pre != 1.0)
        convert(a->values, a->work, a->inputs, op->dtype,
                (size_t)a->n * a->count, op->args.pre);
    for (int r = 0; r < a->n; r++)
        a->vector[r] = a->values + (size_t)r * a->count * a->work_bytes;
    a->vectors = a->n;
    return go_on(a);
}

static int gathered(struct hvd__adasum *a)
{
    if (!hvd__op_direct(a->op))
        hvd__op_unpack(a->op, a->tensors, 0, a->op->count, 0);
    return 1;
}

static int step_over(struct hvd__adasum *a)
{
    switch (a->stage) {
    case STAGE_EXCHANGE:
        return exchanged(a);
    case STAGE_LEVEL:
        level_combine(a);
        return go_on(a);
    default:
        return gathered(a);
    }
}

int hvd__adasum_begin(struct hvd__adasum *a, struct hvd__plane *plane,
                      struct hvd__op *op, int n, int me)
{
    struct hvd__share slice;
    int rc;

    a->plane = plane;
    a->op = op;
    a->n = n;
    a->me = me;
    a->steps = 0;
    a->vectors = 0;
    a->whole = op->count <= WHOLE_BYTES / op->elem_bytes / (size_t)n;
    slice = slice_of(op, me, n);
    a->first = a->whole ? 0 : slice.first;
    a->count = a->whole ? op->count : slice.count;
    a->work = op->dtype == HVD_FLOAT64 ? HVD_FLOAT64 : HVD_FLOAT32;
    a->work_bytes = hvd_dtype_size(a->work);
    op->trace.algorithm = a->whole ? "adasum.whole" : "adasum.slices";
    rc = allocate(a);
    return rc < 0 ? rc : start_exchange(a);
}

int hvd__adasum_progress(struct hvd__adasum *a)
{
    for (;;) {
        int rc = a->plane->ops->progress(a->plane, &a->sub);

        if (rc == HVD__CUT)
            a->op->agreed_entries = a->sub.agreed_entries;
        if (rc != 1)
            return rc;
        rc = step_over(a);
        if (rc != 0)
            return rc;
    }
}

void hvd__adasum_fini(struct hvd__adasum *a)
{
    hb_free(a->memory);
    memset(a, 0, sizeof(*a));
}
