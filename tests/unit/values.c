/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and expected results of allreduce tests; see values.h. */
#include "tests/unit/values.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Returns the bits of a small number that the format represents exactly. */
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
    unsigned k = (unsigned)(i % VALUES_PERIOD) + (unsigned)r;

    if (dtype == HVD_BOOL)
        return k % 5 == 0;
    switch (op) {
    case HVD_AVERAGE: /* a multiple, for a whole mean */
        return r < 2 ? n * (int)(k % 2) : 0;
    case HVD_SUM:
        return k % (n > 16 ? 2 : 4);
    case HVD_PRODUCT: /* at most 2^4 */
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
    size_t bytes = hvd_dtype_size(dtype);
    size_t done = count < VALUES_PERIOD ? count : VALUES_PERIOD;

    for (size_t i = 0; i < done; i++)
        value_put(dtype, p + i * bytes, value_in(dtype, op, n, r, i));
    while (done < count) {
        size_t more = done < count - done ? done : count - done;

        memcpy(p + done * bytes, p, more * bytes);
        done += more;
    }
}

/* Returns the index of the first of count elements that differs, or count. */
static size_t first_difference(const unsigned char *a, const unsigned char *b,
                               size_t bytes, size_t count)
{
    size_t i = 0;

    if (memcmp(a, b, count * bytes) == 0)
        return count;
    while (memcmp(a + i * bytes, b + i * bytes, bytes) == 0)
        i++;
    return i;
}

size_t values_check_from(enum hvd_dtype dtype, enum hvd_op op, int n,
                         double scale, const void *buf, size_t first,
                         size_t count)
{
    const unsigned char *p = buf;
    size_t bytes = hvd_dtype_size(dtype), part, bad;
    size_t period = count < VALUES_PERIOD ? count : VALUES_PERIOD;
    unsigned char wanted[VALUES_PERIOD * 8];

    for (size_t i = 0; i < period; i++)
        value_put(dtype, wanted + i * bytes,
                  scale * value_out(dtype, op, n, first + i));
    for (size_t i = 0; i < count; i += part) {
        part = count - i < period ? count - i : period;
        bad = first_difference(p + i * bytes, wanted, bytes, part);
        if (bad < part)
            return i + bad;
    }
    return count;
}

size_t values_check(enum hvd_dtype dtype, enum hvd_op op, int n, double scale,
                    const void *buf, size_t count)
{
    return values_check_from(dtype, op, n, scale, buf, 0, count);
}
