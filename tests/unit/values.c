/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and expected results of allreduce tests; see values.h. */
#include "tests/unit/values.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A small number that the format holds exactly. */
static uint16_t half_bits(double v)
{
    int exp;
    double m;

    if (v == 0)
        return 0;
    m = frexp(v, &exp);
    return (uint16_t)((exp + 14) << 10 | (int)((m * 2 - 1) * 1024));
}

static uint16_t bfloat_bits(double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

void value_put(enum hvd_dtype dtype, void *at, double v)
{
    int64_t i = (int64_t)v;
    uint16_t h = dtype == HVD_FLOAT16 ? half_bits(v) : bfloat_bits(v);
    float f = (float)v;

    if (dtype == HVD_FLOAT64)
        memcpy(at, &v, sizeof(v));
    else if (dtype == HVD_FLOAT32)
        memcpy(at, &f, sizeof(f));
    else if (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16)
        memcpy(at, &h, sizeof(h));
    else /* little-endian: the low bytes come first */
        memcpy(at, &i, hvd_dtype_size(dtype));
}

double value_in(enum hvd_dtype dtype, enum hvd_op op, int n, int r, size_t i)
{
    unsigned k = (unsigned)(i % 1009) + (unsigned)r;

    if (dtype == HVD_BOOL)
        return k % 5 == 0;
    switch (op) {
    case HVD_AVERAGE: /* so that the mean is whole */
        return r < 2 ? n * (int)(k % 2) : 0;
    case HVD_SUM:
        return k % (n > 16 ? 2 : 4);
    case HVD_PRODUCT: /* at most 2 to the 4th */
        return k % 16 == 0 ? 2 : 1;
    case HVD_MIN:
    case HVD_MAX:
        return (k * 7 + (unsigned)r) % 11;
    default:
        return (k * 5) & 7;
    }
}

static double fold(enum hvd_op op, double a, double b)
{
    switch (op) {
    case HVD_MIN:
        return fmin(a, b);
    case HVD_MAX:
        return fmax(a, b);
    case HVD_PRODUCT:
        return a * b;
    case HVD_BAND:
        return (int)a & (int)b;
    case HVD_BOR:
        return (int)a | (int)b;
    default:
        return a + b;
    }
}

double value_out(enum hvd_dtype dtype, enum hvd_op op, int n, size_t i)
{
    double v = value_in(dtype, op, n, 0, i);

    for (int r = 1; r < n; r++)
        v = fold(op, v, value_in(dtype, op, n, r, i));
    if (dtype == HVD_BOOL)
        return v != 0;
    return op == HVD_AVERAGE ? v / n : v;
}

void values_fill(enum hvd_dtype dtype, enum hvd_op op, int n, int r, void *buf,
                 size_t count)
{
    unsigned char *p = buf;

    for (size_t i = 0; i < count; i++, p += hvd_dtype_size(dtype))
        value_put(dtype, p, value_in(dtype, op, n, r, i));
}

size_t values_check(enum hvd_dtype dtype, enum hvd_op op, int n, double scale,
                    const void *buf, size_t count)
{
    const unsigned char *p = buf;
    size_t bytes = hvd_dtype_size(dtype);
    unsigned char wanted[8];

    for (size_t i = 0; i < count; i++, p += bytes) {
        value_put(dtype, wanted, scale * value_out(dtype, op, n, i));
        if (memcmp(wanted, p, bytes) != 0)
            return i;
    }
    return count;
}
