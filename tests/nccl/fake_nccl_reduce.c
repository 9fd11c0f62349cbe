/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of NCCL: arithmetic, as NCCL's kernels do it.  Operands are combined
 * in pairs and each result is rounded to the type.  Averages of floats multiply
 * each input by 1/n first; those of integers divide the sum and truncate.
 */
#include "tests/nccl/fake_nccl.h"

#include <math.h>
#include <string.h>

/* A binary floating-point format of up to 16 bits. */
struct format {
    int exponent, mantissa; /* bits */
    int finite;             /* no infinity: all ones is NaN, the rest numbers */
    int saturates;          /* values too large become the largest */
};

static const struct format half = {5, 10, 0, 0}, bfloat = {8, 7, 0, 0},
                           e4m3 = {4, 3, 1, 1}, e5m2 = {5, 2, 0, 1};

static const struct format *format_of(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat16:
        return &half;
    case ncclBfloat16:
        return &bfloat;
    case ncclFloat8e4m3:
        return &e4m3;
    case ncclFloat8e5m2:
        return &e5m2;
    default:
        return NULL;
    }
}

size_t fake_type_bytes(ncclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    if ((unsigned)type >= sizeof(bytes) / sizeof(*bytes))
        fake_misuse("%d is no ncclDataType_t", (int)type);
    return bytes[type];
}

static double decode(const struct format *f, unsigned bits)
{
    unsigned ones = (1u << f->exponent) - 1;
    unsigned e = bits >> f->mantissa & ones;
    unsigned m = bits & ((1u << f->mantissa) - 1);
    int bias = (1 << (f->exponent - 1)) - 1;
    double v;

    if (e == ones && (!f->finite || m == (1u << f->mantissa) - 1))
        v = m ? NAN : INFINITY;
    else if (e == 0)
        v = ldexp(m, 1 - bias - f->mantissa);
    else
        v = ldexp(m | 1u << f->mantissa, (int)e - bias - f->mantissa);
    return bits >> (f->exponent + f->mantissa) ? -v : v;
}

/* Rounds to nearest, ties to even. */
static unsigned encode(const struct format *f, double v)
{
    int bias = (1 << (f->exponent - 1)) - 1, e;
    unsigned ones = (1u << f->exponent) - 1;
    unsigned sign = signbit(v) ? 1u << (f->exponent + f->mantissa) : 0;
    unsigned most = (ones << f->mantissa) - 1;
    unsigned nan = (ones << f->mantissa) | ((1u << f->mantissa) - 1);
    double scaled;

    if (f->finite)
        most = nan - 1;
    if (isnan(v))
        return nan;
    v = fabs(v);
    if (isinf(v))
        return sign | (f->saturates ? most : ones << f->mantissa);
    frexp(v, &e);
    if (e - 1 < 1 - bias || v == 0)
        e = 2 - bias;
    scaled = rint(ldexp(v, f->mantissa - (e - 1)));
    scaled += ldexp(e - 1 + bias - 1, f->mantissa);
    if (scaled > most)
        return sign | (f->saturates ? most : ones << f->mantissa);
    return sign | (unsigned)scaled;
}

static double get(ncclDataType_t type, const unsigned char *p)
{
    const struct format *f = format_of(type);
    uint16_t bits = 0;
    float single;
    double v;

    if (f) {
        memcpy(&bits, p, fake_type_bytes(type));
        return decode(f, bits);
    }
    if (type == ncclFloat32) {
        memcpy(&single, p, sizeof(single));
        return (double)single;
    }
    memcpy(&v, p, sizeof(v));
    return v;
}

static void put(ncclDataType_t type, unsigned char *p, double v)
{
    const struct format *f = format_of(type);
    uint16_t bits;
    float single = (float)v;

    if (f) {
        bits = (uint16_t)encode(f, v);
        memcpy(p, &bits, fake_type_bytes(type));
    } else if (type == ncclFloat32) {
        memcpy(p, &single, sizeof(single));
    } else {
        memcpy(p, &v, sizeof(v));
    }
}

double fake_rounded(ncclDataType_t type, double v)
{
    unsigned char bytes[8];

    put(type, bytes, v);
    return get(type, bytes);
}

static double fold(int op, double a, double b)
{
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return fmax(a, b);
    case ncclMin:
        return fmin(a, b);
    default:
        return a + b;
    }
}

int fake_is_float(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclFloat64 || format_of(type);
}

double fake_float(ncclDataType_t type, const void *p)
{
    return fake_is_float(type) ? get(type, p) : 0;
}

static void reduce_floats(const struct fake_reduction *r, unsigned char *dst,
                          const unsigned char *const *srcs, int n, size_t count)
{
    size_t bytes = fake_type_bytes(r->type);

    for (size_t i = 0; i < count; i++) {
        double sum = 0, v;

        for (int k = 0; k < n; k++) {
            v = get(r->type, srcs[k] + i * bytes);
            if (r->scale)
                v = fake_rounded(r->type, v * r->scale->factor);
            sum = k ? fake_rounded(r->type, fold(r->op, sum, v)) : v;
        }
        put(r->type, dst + i * bytes, sum);
    }
}

static int is_signed(ncclDataType_t type)
{
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

/* Truncates `v` to the type and extends it to 64 bits. */
static uint64_t whole(ncclDataType_t type, uint64_t v)
{
    int unused = 64 - 8 * (int)fake_type_bytes(type);

    if (is_signed(type))
        return (uint64_t)((int64_t)(v << unused) >> unused);
    return v << unused >> unused;
}

static int less(ncclDataType_t type, uint64_t a, uint64_t b)
{
    return is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t fold_whole(const struct fake_reduction *r, uint64_t a,
                           uint64_t b)
{
    switch (r->op) {
    case ncclProd:
        return whole(r->type, a * b);
    case ncclMax:
        return less(r->type, a, b) ? b : a;
    case ncclMin:
        return less(r->type, a, b) ? a : b;
    default:
        return whole(r->type, a + b);
    }
}

static void reduce_whole(const struct fake_reduction *r, unsigned char *dst,
                         const unsigned char *const *srcs, int n, size_t count)
{
    size_t bytes = fake_type_bytes(r->type);

    for (size_t i = 0; i < count; i++) {
        uint64_t sum = 0, v;

        for (int k = 0; k < n; k++) {
            v = 0;
            memcpy(&v, srcs[k] + i * bytes, bytes);
            v = whole(r->type, v);
            if (r->scale)
                v = whole(r->type, v * (uint64_t)r->scale->whole);
            sum = k ? fold_whole(r, sum, v) : v;
        }
        if (r->divisor != 1)
            sum = is_signed(r->type) ? (uint64_t)((int64_t)sum / r->divisor)
                                     : sum / (uint64_t)r->divisor;
        memcpy(dst + i * bytes, &sum, bytes);
    }
}

void fake_reduce(const struct fake_reduction *r, void *dst,
                 const unsigned char *const *srcs, int n, size_t count)
{
    if (fake_is_float(r->type))
        reduce_floats(r, dst, srcs, n, count);
    else
        reduce_whole(r, dst, srcs, n, count);
}
