/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Neutral contributions: added anywhere among the inputs, they do not change a
 * bit of a reduction's result.
 */
#include "runtime/plane/kernels/reduce.h"
#include "runtime/plane/neutral.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1100, LIVE = 3, NDTYPES = HVD_BFLOAT16 + 1 };

static const double scales[] = {1.0,   -1.0, 0.5,  2.0,   -0.25,
                                0.125, 3.0,  -7.0, 1e-3,  0.1,
                                1e-60, 0.0,  -0.0, 255.0, 1 / 3.0};
enum { NSCALES = sizeof(scales) / sizeof(scales[0]) };

static int is_float(enum hvd_dtype t)
{
    return t == HVD_FLOAT16 || t == HVD_BFLOAT16 || t == HVD_FLOAT32 ||
           t == HVD_FLOAT64;
}

/* Fills with random bits; every eighth element is 0, -0, 1 or all ones. */
static void fill(unsigned char *p, enum hvd_dtype t)
{
    size_t bytes = hvd_dtype_size(t);

    for (size_t i = 0; i < COUNT; i++) {
        uint64_t v = unit_random();

        if (i % 8 == 0)
            v = i % 32 == 0    ? 0
                : i % 32 == 8  ? UINT64_C(1) << (8 * bytes - 1)
                : i % 32 == 16 ? 1
                               : UINT64_MAX;
        memcpy(p + i * bytes, &v, bytes);
    }
}

static int exact(enum hvd_dtype t, enum hvd_op op, double pre)
{
    if (t == HVD_BOOL || pre == 1.0)
        return 1;
    if (op == HVD_BAND) /* some integer type gets all bits 1 */
        return t == HVD_UINT8 || t == HVD_UINT16
                   ? pre > 1.0
                   : fabs(pre) <= 1.0 && fabs(pre) > 0.1;
    if (op != HVD_PRODUCT)
        return !is_float(t) || (t == HVD_FLOAT64 ? pre != 0 : (float)pre != 0);
    if (is_float(t)) /* powers of two */
        return fabs(pre) <= 2.0 && fabs(pre) >= 0.125 && pre != 1 / 3.0;
    return pre <= 1.0 && pre >= 0.125;
}

static void check_pair(enum hvd_dtype t, enum hvd_op op, double pre)
{
    hvd__reduce_fn *kernel = hvd__reduce_get(t, op);
    const struct hvd__reduce_args args = {pre, 1.0, 1, 0};
    static unsigned char in[LIVE][8 * COUNT], none[8 * COUNT];
    static unsigned char want[8 * COUNT], got[8 * COUNT];
    const void *live[] = {in[0], in[1], in[2]};

    if (!kernel || !exact(t, op, pre))
        return;
    for (int k = 0; k < LIVE; k++)
        fill(in[k], t);
    hvd__neutral_fill(none, COUNT, t, op, pre);
    kernel(want, live, LIVE, COUNT, &args);
    for (int at = 0; at <= LIVE; at++) {
        const void *srcs[LIVE + 1] = {none, none, none, none};

        for (int k = 0; k < LIVE; k++)
            srcs[k + (k >= at)] = live[k];
        kernel(got, srcs, LIVE + 1, COUNT, &args);
        ck_assert_msg(memcmp(got, want, COUNT * hvd_dtype_size(t)) == 0,
                      "%s of %s, prescale %g: the neutral element at %d is not",
                      hvd_op_name(op), hvd_dtype_name(t), pre, at);
    }
}

START_TEST(changes_nothing)
{
    for (int s = 0; s < NSCALES; s++)
        for (int op = HVD_AVERAGE; op <= HVD_BOR; op++)
            check_pair((enum hvd_dtype)_i, (enum hvd_op)op, scales[s]);
}
END_TEST

/* A product keeps its bits even where no element is exact. */
START_TEST(product_of_any_scale)
{
    const struct hvd__reduce_args args = {49.0, 1.0, 1, 0};
    double in[2], out;
    const void *srcs[] = {&in[0], &in[1]};

    in[0] = 1.25;
    hvd__neutral_fill(&in[1], 1, HVD_FLOAT64, HVD_PRODUCT, args.pre);
    hvd__reduce_get(HVD_FLOAT64, HVD_PRODUCT)(&out, srcs, 2, 1, &args);
    ck_assert_double_eq_tol(out, 1.25 * 49, 1e-13);
}
END_TEST

/* 1 / -infinity is -0, beside which there is no smaller integer. */
START_TEST(product_of_an_infinite_scale)
{
    double elem = 1;

    hvd__neutral_fill(&elem, 1, HVD_FLOAT64, HVD_PRODUCT, -(double)INFINITY);
    ck_assert(elem == 0 && signbit(elem));
}
END_TEST

START_TEST(zero_scale_of_extremes)
{
    const struct hvd__reduce_args args = {0.0, 1.0, 1, 0};
    float in[2] = {5, 0}, out;
    const void *srcs[] = {&in[0], &in[1]};

    hvd__neutral_fill(&in[1], 1, HVD_FLOAT32, HVD_MIN, args.pre);
    hvd__reduce_get(HVD_FLOAT32, HVD_MIN)(&out, srcs, 2, 1, &args);
    ck_assert(out == 0);
    hvd__neutral_fill(&in[1], 1, HVD_FLOAT32, HVD_MAX, args.pre);
    hvd__reduce_get(HVD_FLOAT32, HVD_MAX)(&out, srcs, 2, 1, &args);
    ck_assert(out == 0);
}
END_TEST

START_TEST(adasum_and_nothing)
{
    double v[2] = {1, 1};

    hvd__neutral_fill(v, 2, HVD_FLOAT64, HVD_ADASUM, 1.0);
    ck_assert(v[0] == 0 && v[1] == 0 && signbit(v[0]));
    v[0] = 7;
    hvd__neutral_fill(v, 0, HVD_FLOAT64, HVD_SUM, 1.0);
    ck_assert(v[0] == 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("neutral");
    TCase *tc = tcase_create("neutral");

    tcase_add_loop_test(tc, changes_nothing, 0, NDTYPES);
    tcase_add_test(tc, product_of_any_scale);
    tcase_add_test(tc, product_of_an_infinite_scale);
    tcase_add_test(tc, zero_scale_of_extremes);
    tcase_add_test(tc, adasum_and_nothing);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
