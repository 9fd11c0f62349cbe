/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and results of collectives in device memory; see nccl_values.h. */
#include "tests/system/prog/nccl_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The formats of floats.  NaNs and infinities are not generated. */
struct format {
    int exponent, mantissa; /* bits */
};

static struct format format_of(enum hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_FLOAT16:
        return (struct format){5, 10};
    case HVD_BFLOAT16:
        return (struct format){8, 7};
    case HVD_FLOAT32:
        return (struct format){8, 23};
    case HVD_FLOAT64:
        return (struct format){11, 52};
    case HVD_FLOAT8_E4M3:
        return (struct format){4, 3};
    case HVD_FLOAT8_E5M2:
        return (struct format){5, 2};
    default:
        return (struct format){0, 0};
    }
}

int values_is_float(enum hvd_dtype dtype)
{
    return format_of(dtype).exponent != 0;
}

int values_no_float8;

int values_has(enum hvd_dtype dtype, enum hvd_op op)
{
    if (op == HVD_ADASUM || (values_no_float8 && dtype > HVD_BFLOAT16))
        return 0;
    if (op == HVD_BAND || op == HVD_BOR)
        return !values_is_float(dtype);
    return op != HVD_AVERAGE || dtype != HVD_BOOL;
}

uint64_t values_random(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u +
                 b * 0x94d049bb133111ebu + 1;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double decode(struct format f, uint64_t bits)
{
    int bias = (1 << (f.exponent - 1)) - 1;
    uint64_t m = bits & ((UINT64_C(1) << f.mantissa) - 1);
    int e = (int)(bits >> f.mantissa & ((1u << f.exponent) - 1));
    double v;

    if (e == 0)
        v = ldexp((double)m, 1 - bias - f.mantissa);
    else
        v = ldexp((double)(m | UINT64_C(1) << f.mantissa),
                  e - bias - f.mantissa);
    return bits >> (f.exponent + f.mantissa) & 1 ? -v : v;
}

/* Returns a number from -4 to 4 with any mantissa, now and then 0 or a
 * denormal. */
static uint64_t random_float(struct format f, uint64_t x)
{
    int bias = (1 << (f.exponent - 1)) - 1;
    uint64_t m = x & ((UINT64_C(1) << f.mantissa) - 1);
    uint64_t sign = x >> 63, e = (uint64_t)bias + 1 - (x >> 56 & 3);

    if ((x >> 52 & 15) == 0)
        e = 0;
    return sign << (f.exponent + f.mantissa) | e << f.mantissa | m;
}

static uint64_t element(const struct values *v, int rank, size_t i)
{
    uint64_t x = values_random(v->seed, (uint64_t)rank, i);

    if (values_is_float(v->dtype))
        return random_float(format_of(v->dtype), x);
    return v->dtype == HVD_BOOL ? x % 3 == 0 : x;
}

void values_fill(const struct values *v, int rank, void *buf, size_t count)
{
    size_t bytes = hvd_dtype_size(v->dtype);
    unsigned char *to = buf;

    for (size_t i = 0; i < count; i++) {
        uint64_t x = element(v, rank, i);

        memcpy(to + i * bytes, &x, bytes);
    }
}

/* ---- Integers ----------------------------------------------------------- */

static int is_signed(enum hvd_dtype dtype)
{
    return dtype == HVD_INT8 || dtype == HVD_INT16 || dtype == HVD_INT32 ||
           dtype == HVD_INT64;
}

/* Returns x as an integer of the dtype. */
static int64_t cut(enum hvd_dtype dtype, uint64_t x)
{
    int unused = 64 - 8 * (int)hvd_dtype_size(dtype);

    if (is_signed(dtype))
        return (int64_t)(x << unused) >> unused;
    return (int64_t)(x << unused >> unused);
}

static int64_t scaled(enum hvd_dtype dtype, int64_t x, double by, int divisor)
{
    int bits = 8 * (int)hvd_dtype_size(dtype);
    double v = (double)x * by / divisor;
    double most = is_signed(dtype) ? ldexp(1, bits - 1) : ldexp(1, bits);

    if (v >= most)
        return is_signed(dtype) ? INT64_MAX >> (64 - bits)
                                : (int64_t)(UINT64_MAX >> (64 - bits));
    if (v <= (is_signed(dtype) ? -most : 0))
        return is_signed(dtype) ? INT64_MIN >> (64 - bits) : 0;
    return (int64_t)v;
}

static int64_t fold(const struct values *v, int64_t a, int64_t b)
{
    switch (v->op) {
    case HVD_MIN:
        return a < b ? a : b;
    case HVD_MAX:
        return a > b ? a : b;
    case HVD_PRODUCT:
        return cut(v->dtype, (uint64_t)a * (uint64_t)b);
    case HVD_BAND:
        return a & b;
    case HVD_BOR:
        return a | b;
    default:
        return cut(v->dtype, (uint64_t)a + (uint64_t)b);
    }
}

static int64_t whole_result(const struct values *v, size_t i)
{
    int64_t sum = 0;

    for (int k = 0; k < v->n; k++) {
        int64_t x = cut(v->dtype, element(v, v->ranks[k], i));

        if (v->pre != 1)
            x = scaled(v->dtype, x, v->pre, 1);
        sum = k ? fold(v, sum, x) : x;
    }
    if (v->op == HVD_AVERAGE && v->post != 1)
        return scaled(v->dtype, sum, v->post, v->divisor);
    if (v->op == HVD_AVERAGE)
        return sum / v->divisor;
    return v->post != 1 ? scaled(v->dtype, sum, v->post, 1) : sum;
}

static uint64_t bool_result(const struct values *v, size_t i)
{
    int all = 1, any = 0;

    for (int k = 0; k < v->n; k++) {
        int x = element(v, v->ranks[k], i) != 0;

        all &= x;
        any |= x;
    }
    return (uint64_t)(v->op == HVD_MIN || v->op == HVD_PRODUCT ||
                              v->op == HVD_BAND
                          ? all
                          : any);
}

static int check_whole(const struct values *v, uint64_t got, size_t i)
{
    uint64_t want =
        v->dtype == HVD_BOOL ? bool_result(v, i) : (uint64_t)whole_result(v, i);

    want = (uint64_t)cut(v->dtype, want);
    if (want == (uint64_t)cut(v->dtype, got))
        return 1;
    fprintf(stderr, "element %zu is %#llx, not %#llx\n", i,
            (unsigned long long)got, (unsigned long long)want);
    return 0;
}

/* ---- Floats ------------------------------------------------------------- */

/* Stores the relative error of a rounding to the narrowest format on the way,
 * and the least absolute one. */
static void rounding(const struct values *v, double *relative, double *least)
{
    struct format f = format_of(v->dtype);

    if (v->wire == HVD_WIRE_FLOAT16)
        f = format_of(HVD_FLOAT16);
    if (v->wire == HVD_WIRE_BFLOAT16)
        f = format_of(HVD_BFLOAT16);
    *relative = ldexp(1, -f.mantissa);
    *least = ldexp(1, 2 - (1 << (f.exponent - 1)) - f.mantissa);
}

/* Returns the result for element i; stores the sum of the absolute values of
 * its operands in *amount. */
static double float_result(const struct values *v, size_t i, double *amount)
{
    double sum = 0, factor = v->post;

    *amount = 0;
    for (int k = 0; k < v->n; k++) {
        double x = decode(format_of(v->dtype), element(v, v->ranks[k], i));

        x *= v->pre;
        if (k == 0)
            sum = x;
        else if (v->op == HVD_MIN)
            sum = fmin(sum, x);
        else if (v->op == HVD_MAX)
            sum = fmax(sum, x);
        else
            sum = v->op == HVD_PRODUCT ? sum * x : sum + x;
        *amount = v->op == HVD_SUM || v->op == HVD_AVERAGE ? *amount + fabs(x)
                                                           : fabs(sum);
    }
    if (v->op == HVD_AVERAGE)
        factor /= v->divisor;
    *amount *= fabs(factor);
    return sum * factor;
}

static int check_float(const struct values *v, uint64_t bits, size_t i)
{
    double amount, relative, least, got, want, off;
    struct format f = format_of(v->dtype);

    rounding(v, &relative, &least);
    want = float_result(v, i, &amount);
    got = decode(f, bits);
    /* one rounding for each operand and for each scale; a denormal that is
     * rounded may be multiplied afterwards */
    off = (v->n + 3) *
          (relative * amount + least * (1 + fabs(v->post)) * 4 *
                                   (v->op == HVD_PRODUCT ? pow(4, v->n) : 1));
    if ((v->op == HVD_MIN || v->op == HVD_MAX) && v->pre == 1 && v->post == 1 &&
        !v->wire)
        off = 0;
    if (fabs(got - want) <= off)
        return 1;
    fprintf(stderr, "element %zu is %.17g, not %.17g within %.3g\n", i, got,
            want, off);
    return 0;
}

size_t values_check(const struct values *v, const void *buf, size_t first,
                    size_t count)
{
    size_t bytes = hvd_dtype_size(v->dtype);
    const unsigned char *from = buf;

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = 0;

        memcpy(&bits, from + i * bytes, bytes);
        if (values_is_float(v->dtype) ? !check_float(v, bits, first + i)
                                      : !check_whole(v, bits, first + i))
            return i;
    }
    return count;
}
