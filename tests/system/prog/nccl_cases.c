/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions in device memory, one by one and together, checked against
 * formulas on random data.  See nccl_rank.h; nccl_moves.c has the other
 * collectives.
 */
#include "tests/system/prog/nccl_rank.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOGETHER = 5 };

static size_t some_count(uint64_t place)
{
    static const size_t counts[] = {1, 2, 7, 33, 255, 1000, 4099};

    return counts[common(place) % (sizeof(counts) / sizeof(*counts))];
}

/* ---- One by one -----------------------------------------------------------
 */

static void allreduce(struct values v, size_t count, int in_place)
{
    struct hvd_options o = options();
    struct array in = array_filled(&v, count), out = in;

    if (!in_place)
        out = array_new(count, v.dtype);
    o.prescale = v.pre;
    o.postscale = v.post;
    o.wire = v.wire;
    must(hvd_allreduce(in.at, out.at, count, v.dtype, v.op, &o), "allreduce");
    array_check(&out, &v, 0, count, in_place ? "in place" : "allreduce");
    if (!in_place)
        array_free(&out);
    array_free(&in);
}

static int can_scale(enum hvd_dtype dtype)
{
    return dtype <= HVD_BFLOAT16;
}

static void allreduce_of(enum hvd_dtype dtype, enum hvd_op op)
{
    static const double factors[][2] = {{1.25, 1}, {1, 0.3}, {0.7, 3}};
    struct values v;
    const double *f;

    for (int in_place = 0; in_place < 2; in_place++) {
        next_case();
        v = values_of(dtype, op, hvd_size());
        allreduce(v, some_count(1), in_place);
    }
    if (!can_scale(dtype))
        return;
    next_case();
    v = values_of(dtype, op, hvd_size());
    f = factors[common(2) % 3];
    v.pre = f[0];
    v.post = f[1];
    allreduce(v, some_count(1), common(3) % 2);
}

void cases_allreduce(void)
{
    struct values v;

    for (int dtype = 0; dtype < VALUES_DTYPES; dtype++)
        for (int op = 0; op <= HVD_BOR; op++)
            if (values_has((enum hvd_dtype)dtype, (enum hvd_op)op))
                allreduce_of((enum hvd_dtype)dtype, (enum hvd_op)op);
    next_case();
    allreduce(values_of(HVD_FLOAT32, HVD_SUM, hvd_size()), 0, 1);
    next_case();
    allreduce(values_of(HVD_FLOAT32, HVD_SUM, hvd_size()), 300007, 0);
    next_case();
    allreduce(values_of(HVD_INT16, HVD_SUM, hvd_size()), 100003, 1);
    next_case();
    allreduce(values_of(HVD_BFLOAT16, HVD_AVERAGE, hvd_size()), 50001, 1);
    next_case();
    v = values_of(HVD_FLOAT32, HVD_SUM, hvd_size());
    v.pre = 0;
    allreduce(v, 1000, 1);
    v.dtype = HVD_FLOAT64;
    allreduce(v, 1000, 0);
}

/* ---- Together -------------------------------------------------------------
 */

/* Several tensors: their values, inputs and outputs. */
struct tensors {
    struct values v[TOGETHER];
    struct array in[TOGETHER], out[TOGETHER];
    size_t counts[TOGETHER];
};

static void tensors_new(struct tensors *t, struct values v, size_t times)
{
    for (uint64_t i = 0; i < TOGETHER; i++) {
        t->v[i] = v;
        t->v[i].seed = common(20 + i);
        t->counts[i] = some_count(30 + i) * times;
        t->in[i] = t->out[i] = array_filled(&t->v[i], t->counts[i]);
        if (common(40 + i) % 2)
            t->out[i] = array_new(t->counts[i], v.dtype);
    }
}

static void tensors_check(struct tensors *t, const char *what)
{
    for (int i = 0; i < TOGETHER; i++) {
        array_check(&t->out[i], &t->v[i], 0, t->counts[i], what);
        if (t->out[i].at != t->in[i].at)
            array_free(&t->out[i]);
        array_free(&t->in[i]);
    }
}

static struct hvd_options options_of(const struct values *v)
{
    struct hvd_options o = options();

    o.prescale = v->pre;
    o.postscale = v->post;
    o.wire = v->wire;
    return o;
}

/* Issues several allreduces at once, in an order of each rank's own, and waits
 * by the host or the stream. */
static void fused(struct values v)
{
    hvd_request *reqs[TOGETHER];
    struct tensors t;
    struct hvd_options o = options_of(&v);
    int shift = (int)(own(hvd_rank(), 50) % TOGETHER);
    char name[32];

    tensors_new(&t, v, 1);
    for (int k = 0; k < TOGETHER; k++) {
        int i = (k + shift) % TOGETHER;

        snprintf(name, sizeof(name), "fused.%d", i);
        must(hvd_allreduce_async(name, t.in[i].at, t.out[i].at, t.counts[i],
                                 v.dtype, v.op, &o, &reqs[i]),
             "allreduce_async");
    }
    for (int i = 0; i < TOGETHER; i++)
        must(rank.stream && own(hvd_rank(), 51) % 2
                 ? hvd_wait_on_stream(reqs[i], rank.stream)
                 : hvd_wait(reqs[i]),
             "wait");
    tensors_check(&t, "fused");
}

static void grouped(struct values v, size_t times)
{
    const void *in[TOGETHER];
    void *out[TOGETHER];
    struct tensors t;
    struct hvd_options o = options_of(&v);

    tensors_new(&t, v, times);
    for (int i = 0; i < TOGETHER; i++) {
        in[i] = t.in[i].at;
        out[i] = t.out[i].at;
    }
    must(hvd_grouped_allreduce(TOGETHER, in, out, t.counts, v.dtype, v.op, &o),
         "grouped_allreduce");
    tensors_check(&t, "grouped");
}

static void scale(struct values *v, uint64_t place)
{
    if (!can_scale(v->dtype) || common(place) % 2)
        return;
    v->pre = 0.75;
    v->post = common(place) % 4 ? 1.5 : 1;
}

void cases_fused(void)
{
    for (int dtype = 0; dtype < VALUES_DTYPES; dtype++)
        for (int op = 0; op <= HVD_BOR; op++) {
            struct values v;

            if (!values_has((enum hvd_dtype)dtype, (enum hvd_op)op))
                continue;
            next_case();
            v = values_of((enum hvd_dtype)dtype, (enum hvd_op)op, hvd_size());
            scale(&v, 60);
            if (common(61) % 2)
                fused(v);
            else
                grouped(v, 1);
        }
}

/* Reduces float32 and float64 with 16 bits on the wire. */
void cases_wire(void)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MAX};

    for (int i = 0; i < 24; i++) {
        struct values v;

        next_case();
        v = values_of(i % 2 ? HVD_FLOAT32 : HVD_FLOAT64, ops[i / 2 % 3],
                      hvd_size());
        v.wire = i % 4 < 2 ? HVD_WIRE_FLOAT16 : HVD_WIRE_BFLOAT16;
        scale(&v, 60);
        if (i % 3 == 0)
            allreduce(v, some_count(1), i % 2);
        else if (i % 3 == 1)
            fused(v);
        else
            grouped(v, 1);
    }
}

/* ---- Reduce and scatter ----------------------------------------------------
 */

static size_t first_row(size_t rows, int n, int me)
{
    size_t each = rows / (size_t)n, more = rows % (size_t)n, r = (size_t)me;

    return r * each + (r < more ? r : more);
}

static void reducescatter(struct values v, size_t rows, size_t row_elems)
{
    size_t mine = hvd_reducescatter_rows(rows, 0) * row_elems;
    size_t first = first_row(rows, hvd_size(), hvd_rank()) * row_elems;
    struct hvd_options o = options_of(&v);
    struct array in = array_filled(&v, rows * row_elems);
    struct array out = array_new(mine, v.dtype);

    must(hvd_reducescatter(in.at, out.at, rows, row_elems, v.dtype, v.op, &o),
         "reducescatter");
    /* this rank's part begins in the middle of the formula's elements */
    array_check(&out, &v, first, mine, "reducescatter");
    array_free(&out);
    array_free(&in);
}

void cases_reducescatter(void)
{
    for (int dtype = 0; dtype < VALUES_DTYPES; dtype++)
        for (int op = 0; op <= HVD_BOR; op++) {
            struct values v;
            size_t rows;

            if (!values_has((enum hvd_dtype)dtype, (enum hvd_op)op))
                continue;
            next_case();
            v = values_of((enum hvd_dtype)dtype, (enum hvd_op)op, hvd_size());
            scale(&v, 60);
            rows = common(4) % 9;
            if (common(5) % 2)
                rows *= (size_t)hvd_size();
            reducescatter(v, rows, 1 + common(6) % 37);
        }
}

static void grouped_reducescatter(struct values v)
{
    const void *in[TOGETHER];
    void *out[TOGETHER];
    struct array ins[TOGETHER], outs[TOGETHER];
    size_t rows[TOGETHER], elems[TOGETHER], mine[TOGETHER];
    struct hvd_options o = options_of(&v);

    for (uint64_t i = 0; i < TOGETHER; i++) {
        rows[i] = common(70 + i) % 9;
        elems[i] = 1 + common(80 + i) % 50;
        mine[i] = hvd_reducescatter_rows(rows[i], 0) * elems[i];
        ins[i] = array_filled(&v, rows[i] * elems[i]);
        outs[i] = array_new(mine[i], v.dtype);
        in[i] = ins[i].at;
        out[i] = outs[i].at;
    }
    must(hvd_grouped_reducescatter(TOGETHER, in, out, rows, elems, v.dtype,
                                   v.op, &o),
         "grouped_reducescatter");
    for (int i = 0; i < TOGETHER; i++) {
        array_check(&outs[i], &v,
                    first_row(rows[i], hvd_size(), hvd_rank()) * elems[i],
                    mine[i], "grouped_reducescatter");
        array_free(&outs[i]);
        array_free(&ins[i]);
    }
}

/* ---- Larger than the buffers that they go through --------------------------
 */

void cases_large(void)
{
    struct values v;

    next_case();
    v = values_of(HVD_FLOAT32, HVD_AVERAGE, hvd_size());
    v.pre = 0.5;
    grouped(v, 100);
    next_case();
    v = values_of(HVD_FLOAT64, HVD_SUM, hvd_size());
    v.wire = HVD_WIRE_BFLOAT16;
    allreduce(v, 700001, 0);
    next_case();
    v = values_of(HVD_FLOAT16, HVD_SUM, hvd_size());
    v.post = 0.5;
    allreduce(v, 600007, 1);
    next_case();
    allreduce(values_of(HVD_INT8, HVD_BAND, hvd_size()), 5000011, 1);
    next_case();
    allreduce(values_of(HVD_UINT16, HVD_SUM, hvd_size()), 2500003, 0);
    next_case();
    grouped(values_of(HVD_INT16, HVD_MAX, hvd_size()), 100);
    next_case();
    reducescatter(values_of(HVD_FLOAT32, HVD_SUM, hvd_size()), 40001, 10);
    next_case();
    reducescatter(values_of(HVD_INT16, HVD_SUM, hvd_size()), 30001, 77);
}

/* ---- Process sets and joins ------------------------------------------------
 */

static void allreduce_in(int set, const int *ranks, int n, enum hvd_op op)
{
    struct hvd_options o = options();
    struct values v = values_of(HVD_FLOAT32, op, n);
    size_t count = some_count(1);
    struct array a;

    v.ranks = ranks;
    o.process_set = set;
    a = array_filled(&v, count);
    must(hvd_allreduce(a.at, a.at, count, v.dtype, v.op, &o), "of a set");
    array_check(&a, &v, 0, count, "of a set");
    array_free(&a);
}

/* Reduces in the set of each rank's parity, and in one of all but rank 0. */
void cases_sets(void)
{
    int parity[2][VALUES_RANKS], n[2] = {0, 0}, set[2] = {-1, -1}, rest = -1;
    int size = hvd_size(), mine = hvd_rank() % 2;

    for (int r = 0; r < size; r++)
        parity[r % 2][n[r % 2]++] = r;
    for (int k = 0; k < 2 && size > 2; k++)
        must(hvd_process_set_add(parity[k], (size_t)n[k], &set[k]), "set");
    if (size > 3)
        must(hvd_process_set_add(rank.all + 1, (size_t)size - 1, &rest), "set");
    for (int i = 0; i < 6; i++) {
        next_case();
        if (set[mine] >= 0)
            allreduce_in(set[mine], parity[mine], n[mine], HVD_AVERAGE);
        next_case();
        if (rest >= 0 && hvd_rank() > 0)
            allreduce_in(rest, rank.all + 1, size - 1, HVD_SUM);
        next_case();
        allreduce_in(0, rank.all, size, HVD_MAX);
    }
    for (int k = 0; k < 2 && size > 2; k++)
        must(hvd_process_set_remove(set[k]), "remove");
    if (rest >= 0)
        must(hvd_process_set_remove(rest), "remove");
}

/* Reduces while the last rank has joined, as it has no more data. */
void cases_join(void)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_MIN, HVD_AVERAGE,
                                      HVD_PRODUCT, HVD_MAX};
    int last = hvd_size() - 1, joined;

    for (int i = 0; i < 5 && hvd_size() > 1; i++) {
        next_case();
        if (hvd_rank() != last) {
            struct values v =
                values_of(i % 2 ? HVD_FLOAT32 : HVD_INT32, ops[i], last);
            struct array a = array_filled(&v, some_count(1));
            struct hvd_options o = options();

            v.divisor = hvd_size();
            must(hvd_allreduce(a.at, a.at, some_count(1), v.dtype, v.op, &o),
                 "allreduce without one");
            array_check(&a, &v, 0, some_count(1), "without one");
            array_free(&a);
        }
        if (i == 4)
            must(hvd_join(&joined, NULL), "join");
    }
}

/* ---- All kinds of groups ---------------------------------------------------
 */

void cases_grouped(void)
{
    for (int i = 0; i < 8; i++) {
        next_case();
        grouped_reducescatter(
            values_of(i % 2 ? HVD_FLOAT32 : HVD_INT16, HVD_SUM, hvd_size()));
    }
}
