/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference of test_reduce: what runtime/plane/kernels/reduce.h promises,
 * one element at a time, written with ldexp and rint instead of bits.
 */
#ifndef TEST_REDUCE_REFERENCE_H
#define TEST_REDUCE_REFERENCE_H

#include "runtime/plane/kernels/reduce.h"
#include "tests/unit/half_reference.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { NDTYPES = HVD_BFLOAT16 + 1, MAX_SRCS = 64 };

static const size_t elem_size[NDTYPES] = {
    [HVD_UINT8] = 1,   [HVD_INT8] = 1,  [HVD_UINT16] = 2,  [HVD_INT16] = 2,
    [HVD_INT32] = 4,   [HVD_INT64] = 8, [HVD_FLOAT16] = 2, [HVD_FLOAT32] = 4,
    [HVD_FLOAT64] = 8, [HVD_BOOL] = 1,  [HVD_BFLOAT16] = 2};

static int is_float(enum hvd_dtype t)
{
    return t == HVD_FLOAT16 || t == HVD_FLOAT32 || t == HVD_FLOAT64 ||
           t == HVD_BFLOAT16;
}

static double get_float(enum hvd_dtype t, const void *p)
{
    uint16_t h;
    float f;
    double d;

    switch (t) {
    case HVD_FLOAT32:
        memcpy(&f, p, sizeof(f));
        return (double)f;
    case HVD_FLOAT64:
        memcpy(&d, p, sizeof(d));
        return d;
    default:
        memcpy(&h, p, sizeof(h));
        return t == HVD_FLOAT16 ? decode_small(h, 10, 5)
                                : decode_small(h, 7, 8);
    }
}

static void put_float(enum hvd_dtype t, void *p, double y)
{
    uint64_t quiet64 = UINT64_C(0x7ff8000000000000);
    uint32_t quiet32 = 0x7fc00000;
    float f = (float)y;
    uint16_t h;

    switch (t) {
    case HVD_FLOAT32:
        memcpy(p, isnan(y) ? (void *)&quiet32 : (void *)&f, sizeof(f));
        break;
    case HVD_FLOAT64:
        memcpy(p, isnan(y) ? (void *)&quiet64 : (void *)&y, sizeof(y));
        break;
    default:
        h = (uint16_t)(t == HVD_FLOAT16 ? encode_small(y, 10, 5)
                                        : encode_small(y, 7, 8));
        memcpy(p, &h, sizeof(h));
    }
}

/* Computes one step in the accumulator's precision; a double holds both
 * types. */
static double step_float(enum hvd_dtype t, enum hvd_op op, double a, double b)
{
    if (op == HVD_MIN || op == HVD_MAX) {
        if (isnan(a) || isnan(b))
            return (double)NAN;
        return (op == HVD_MIN ? b < a : b > a) ? b : a;
    }
    if (t == HVD_FLOAT64)
        return op == HVD_SUM ? a + b : a * b;
    return (double)(op == HVD_SUM ? (float)a + (float)b : (float)a * (float)b);
}

static double scale_float(enum hvd_dtype t, double x, double factor)
{
    if (t == HVD_FLOAT64)
        return x * factor;
    return (double)((float)x * (float)factor);
}

static void ref_float(enum hvd_dtype t, enum hvd_op op, void *dst,
                      const void *const *at, int nsrc,
                      const struct hvd__reduce_args *args)
{
    double y = 0, x;

    for (int k = 0; k < nsrc; k++) {
        x = get_float(t, at[k]);
        if (args->pre != 1.0)
            x = scale_float(t, x, args->pre);
        y = k ? step_float(t, op, y, x) : x;
    }
    if (args->post != 1.0)
        y = scale_float(t, y, args->post);
    if (args->divisor != 1)
        y = t == HVD_FLOAT64 ? y / args->divisor
                             : (double)((float)y / (float)args->divisor);
    put_float(t, dst, y);
}

static int64_t get_int(enum hvd_dtype t, const void *p)
{
    int64_t i64;
    int32_t i32;
    int16_t i16;
    uint16_t u16;

    memcpy(&i64, p, elem_size[t]);
    memcpy(&i32, &i64, sizeof(i32));
    memcpy(&i16, &i64, sizeof(i16));
    memcpy(&u16, &i64, sizeof(u16));
    switch (t) {
    case HVD_UINT8:
        return *(const uint8_t *)p;
    case HVD_INT8:
        return *(const int8_t *)p;
    case HVD_UINT16:
        return u16;
    case HVD_INT16:
        return i16;
    case HVD_INT32:
        return i32;
    default:
        return i64;
    }
}

/* Wraps v to the dtype's range. */
static int64_t wrap(enum hvd_dtype t, uint64_t v)
{
    return get_int(t, &v);
}

static int64_t scale_int(enum hvd_dtype t, double y)
{
    int is_unsigned = t == HVD_UINT8 || t == HVD_UINT16;
    int bits = 8 * (int)elem_size[t] - !is_unsigned;
    double above = ldexp(1, bits);
    int64_t max = (int64_t)((UINT64_C(1) << bits) - 1);
    int64_t min = is_unsigned ? 0 : -max - 1;

    if (isnan(y))
        return 0;
    y = trunc(y);
    return y >= above ? max : y <= (double)min ? min : (int64_t)y;
}

static int64_t step_int(enum hvd_dtype t, enum hvd_op op, int64_t a, int64_t b)
{
    switch (op) {
    case HVD_SUM:
        return wrap(t, (uint64_t)a + (uint64_t)b);
    case HVD_PRODUCT:
        return wrap(t, (uint64_t)a * (uint64_t)b);
    case HVD_MIN:
        return a < b ? a : b;
    case HVD_MAX:
        return a > b ? a : b;
    case HVD_BAND:
        return a & b;
    default:
        return a | b;
    }
}

static void ref_int(enum hvd_dtype t, enum hvd_op op, void *dst,
                    const void *const *at, int nsrc,
                    const struct hvd__reduce_args *args)
{
    int64_t y = 0, x;

    for (int k = 0; k < nsrc; k++) {
        x = get_int(t, at[k]);
        if (args->pre != 1.0)
            x = scale_int(t, (double)x * args->pre);
        y = k ? step_int(t, op, y, x) : x;
    }
    if (args->post != 1.0)
        y = scale_int(t, (double)y * args->post / args->divisor);
    else
        y /= args->divisor;
    memcpy(dst, &y, elem_size[t]);
}

static void ref_bool(enum hvd_op op, uint8_t *dst, const void *const *at,
                     int nsrc)
{
    int any = 0, all = 1;

    for (int k = 0; k < nsrc; k++) {
        any |= *(const uint8_t *)at[k] != 0;
        all &= *(const uint8_t *)at[k] != 0;
    }
    *dst =
        (uint8_t)(op == HVD_SUM || op == HVD_MAX || op == HVD_BOR ? any : all);
}

static void reference(enum hvd_dtype t, enum hvd_op op, char *dst,
                      const void *const *srcs, int nsrc, size_t count,
                      const struct hvd__reduce_args *args)
{
    const void *at[MAX_SRCS];

    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < nsrc; k++)
            at[k] = (const char *)srcs[k] + i * elem_size[t];
        if (is_float(t))
            ref_float(t, op, dst + i * elem_size[t], at, nsrc, args);
        else if (t == HVD_BOOL)
            ref_bool(op, (uint8_t *)dst + i, at, nsrc);
        else
            ref_int(t, op, dst + i * elem_size[t], at, nsrc, args);
    }
}

#endif
