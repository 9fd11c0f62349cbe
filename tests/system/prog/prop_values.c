/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks put in and what must come out; see prop.h.  Elements are computed
 * one by one in double: from small integers, which every dtype holds exactly,
 * or from any reals, with a tolerance.
 */
#include "tests/system/prog/prop.h"

#include "tests/unit/half_reference.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is_float(enum hvd_dtype t)
{
    return t == HVD_FLOAT16 || t == HVD_BFLOAT16 || t == HVD_FLOAT32 ||
           t == HVD_FLOAT64;
}

/* ---- Elements --------------------------------------------------------- */

static unsigned narrow(enum hvd_dtype t, double v)
{
    return t == HVD_FLOAT16 ? encode_small(v, 10, 5) : encode_small(v, 7, 8);
}

static double widen(enum hvd_dtype t, unsigned bits)
{
    return t == HVD_FLOAT16 ? decode_small(bits, 10, 5)
                            : decode_small(bits, 7, 8);
}

static void put(enum hvd_dtype t, void *at, double v)
{
    int64_t i = is_float(t) ? 0 : (int64_t)v;
    unsigned half;
    float f;

    switch (t) {
    case HVD_FLOAT64:
        memcpy(at, &v, sizeof(v));
        break;
    case HVD_FLOAT32:
        f = (float)v;
        memcpy(at, &f, sizeof(f));
        break;
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
        half = narrow(t, v);
        memcpy(at, &half, 2);
        break;
    default:
        memcpy(at, &i, hvd_dtype_size(t));
        break;
    }
}

static double get(enum hvd_dtype t, const void *at)
{
    unsigned half = 0;
    double v;
    float f;

    switch (t) {
    case HVD_FLOAT64:
        memcpy(&v, at, sizeof(v));
        return v;
    case HVD_FLOAT32:
        memcpy(&f, at, sizeof(f));
        return (double)f;
    default:
        memcpy(&half, at, 2);
        return widen(t, half);
    }
}

/* Returns v rounded to the float dtype. */
static double as_kept(enum hvd_dtype t, double v)
{
    double at = 0;

    put(t, &at, v);
    return get(t, &at);
}

/* Returns the lowest value of an integer dtype. */
static double lowest(enum hvd_dtype t)
{
    return t == HVD_UINT8 || t == HVD_UINT16
               ? 0
               : -ldexp(1, 8 * (int)hvd_dtype_size(t) - 1);
}

static double highest(enum hvd_dtype t)
{
    return lowest(t) + ldexp(1, 8 * (int)hvd_dtype_size(t)) - 1;
}

/* Returns v wrapped around to the range of an integer dtype. */
static double wrap(enum hvd_dtype t, double v)
{
    double range = ldexp(1, 8 * (int)hvd_dtype_size(t));

    return v - range * floor((v - lowest(t)) / range);
}

static double clamp(enum hvd_dtype t, double v)
{
    v = trunc(v);
    return v < lowest(t) ? lowest(t) : v > highest(t) ? highest(t) : v;
}

/* ---- Inputs ----------------------------------------------------------- */

static uint64_t any_bits(const struct step *s, int member, int rank, size_t i)
{
    return mix(s->id + (uint64_t)member, (uint64_t)rank, i);
}

static double input(const struct step *s, int member, int rank, size_t i)
{
    uint64_t bits = any_bits(s, member, rank, i);

    if (s->rough)
        return as_kept(s->dtype, (double)(bits >> 40) / (1 << 23) - 1);
    if (s->dtype == HVD_BOOL)
        return bits % 3 ? (double)(bits >> 32 & 0x83) : 0;
    switch (s->op) {
    case HVD_PRODUCT:
        return 1 + (double)(bits % 4 == 0);
    case HVD_BAND:
    case HVD_BOR:
        return wrap(s->dtype, (double)(bits >> 40));
    default:
        return (double)(bits % 7) - (lowest(s->dtype) == 0 ? 0 : 3);
    }
}

void fill_input(const struct step *s, int member, int rank, void *buf,
                size_t count)
{
    size_t bytes = hvd_dtype_size(s->dtype);

    for (size_t i = 0; i < count; i++)
        put(s->dtype, (unsigned char *)buf + i * bytes,
            input(s, member, rank, i));
}

/* ---- Results ---------------------------------------------------------- */

/* Returns the input i of a rank after the prescale, as the reduction sees
 * it. */
static double scaled_input(const struct reduction *r, int rank, size_t i)
{
    const struct step *s = r->step;
    double x = input(s, r->member, rank, i);

    if (s->dtype == HVD_BOOL)
        return x != 0;
    if (s->opts.prescale == 1)
        return x;
    x *= s->opts.prescale;
    return is_float(s->dtype) ? x : clamp(s->dtype, x);
}

static double fold(enum hvd_op op, double a, double b)
{
    switch (op) {
    case HVD_MIN:
        return b < a ? b : a;
    case HVD_MAX:
        return b > a ? b : a;
    case HVD_PRODUCT:
        return a * b;
    case HVD_BAND:
        return (double)((int64_t)a & (int64_t)b);
    case HVD_BOR:
        return (double)((int64_t)a | (int64_t)b);
    default:
        return a + b;
    }
}

static double finish_int(const struct reduction *r, double y)
{
    enum hvd_dtype t = r->step->dtype;
    double post = r->step->opts.postscale;

    y = wrap(t, y);
    return post == 1 ? trunc(y / r->divisor) : clamp(t, y * post / r->divisor);
}

/* Applies postscale and divisor to y, and rounds it as on the wire. */
static double finish_float(const struct reduction *r, double y)
{
    const struct step *s = r->step;
    double post = s->opts.postscale;
    int wire = s->dtype == HVD_FLOAT32 || s->dtype == HVD_FLOAT64
                   ? s->opts.wire
                   : HVD_WIRE_FULL;

    if (s->dtype == HVD_FLOAT64 && wire == HVD_WIRE_FULL)
        return y * post / r->divisor;
    y = (double)((float)(y * post) / (float)r->divisor);
    if (wire == HVD_WIRE_FLOAT16)
        return as_kept(HVD_FLOAT16, y);
    return wire == HVD_WIRE_BFLOAT16 ? as_kept(HVD_BFLOAT16, y) : y;
}

static double result(const struct reduction *r, size_t i)
{
    const struct step *s = r->step;
    double y = 0;

    for (int k = 0; k < r->team->n; k++) {
        double x = scaled_input(r, r->team->rank[k], i);

        y = k ? fold(s->op, y, x) : x;
    }
    if (s->dtype == HVD_BOOL)
        return y != 0;
    return is_float(s->dtype) ? finish_float(r, y) : finish_int(r, y);
}

static double precision(enum hvd_dtype t)
{
    return t == HVD_FLOAT64    ? 1e-14
           : t == HVD_FLOAT32  ? 2e-6
           : t == HVD_BFLOAT16 ? 4e-2
                               : 5e-3;
}

/* Returns how much rounding can change element i, in any order of the ranks. */
static double tolerance(const struct reduction *r, size_t i)
{
    double sum = 0;

    for (int k = 0; k < r->team->n; k++)
        sum += fabs(scaled_input(r, r->team->rank[k], i));
    return precision(r->step->dtype) * (1 + sum) *
           fabs(r->step->opts.postscale);
}

/* ---- Adasum ----------------------------------------------------------- */

static double dot(const double *x, const double *y, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

static void combine(double *x, const double *y, size_t count)
{
    double xx = dot(x, x, count), yy = dot(y, y, count);
    double xy = dot(x, y, count);
    double f = xx < sqrt(DBL_MIN) ? 1 : 1 - xy / (2 * xx);
    double g = yy < sqrt(DBL_MIN) ? 1 : 1 - xy / (2 * yy);

    for (size_t i = 0; i < count; i++)
        x[i] = f * x[i] + g * y[i];
}

/* Reduces the n vectors in `all` by Adasum, in levels of pairs, to the
 * first. */
static void adasum(double *all, int n, size_t count)
{
    for (int left = n; left > 1; left = left / 2 + left % 2) {
        for (int i = 0; i < left / 2; i++) {
            double *x = all + (size_t)(2 * i) * count;

            combine(x, x + count, count);
            memmove(all + (size_t)i * count, x, count * sizeof(*x));
        }
        if (left % 2)
            memmove(all + (size_t)(left / 2) * count,
                    all + (size_t)(left - 1) * count, count * sizeof(*all));
    }
}

int place_in(const struct team *team, int rank)
{
    for (int k = 0; k < team->n; k++)
        if (team->rank[k] == rank)
            return k;
    return -1;
}

static int64_t check_adasum(const struct reduction *r, const void *buf,
                            size_t count)
{
    size_t bytes = hvd_dtype_size(r->step->dtype), n = (size_t)r->all->n;
    double *all = malloc((n * count + 1) * sizeof(*all));
    int64_t wrong = -1;

    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < count; i++)
            all[k * count + i] = place_in(r->team, r->all->rank[k]) < 0
                                     ? 0
                                     : scaled_input(r, r->all->rank[k], i);
    adasum(all, r->all->n, count);
    for (size_t i = 0; i < count && wrong < 0; i++) {
        double got = get(r->step->dtype, (const char *)buf + i * bytes);
        double want = all[i] * r->step->opts.postscale;

        if (!(fabs(got - want) <= 4 * tolerance(r, i)))
            wrong = (int64_t)i;
    }
    free(all);
    return wrong;
}

/* ---- Checks ----------------------------------------------------------- */

int64_t check_result(const struct reduction *r, const void *buf, size_t first,
                     size_t count)
{
    enum hvd_dtype t = r->step->dtype;
    size_t bytes = hvd_dtype_size(t);

    if (r->step->op == HVD_ADASUM)
        return check_adasum(r, buf, count);
    for (size_t i = 0; i < count; i++) {
        const void *at = (const char *)buf + i * bytes;
        double want = result(r, first + i);
        unsigned char as_bytes[8];

        put(t, as_bytes, want);
        if (r->step->rough
                ? !(fabs(get(t, at) - want) <= tolerance(r, first + i))
                : memcmp(at, as_bytes, bytes) != 0)
            return (int64_t)(first + i);
    }
    return -1;
}

static unsigned char byte_of(const struct step *s, int member, int rank,
                             size_t i)
{
    return (unsigned char)(any_bits(s, member, rank, i / 8) >> 8 * (i % 8));
}

void fill_bytes(const struct step *s, int member, int rank, void *buf,
                size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)buf)[i] = byte_of(s, member, rank, i);
}

int64_t check_bytes(const struct step *s, int member, int rank, const void *buf,
                    size_t first, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)buf)[i] !=
            byte_of(s, member, rank, first + i))
            return (int64_t)(first + i);
    return -1;
}

size_t gather_count(const struct step *s, int member, int rank)
{
    uint64_t bits = mix(s->id, 11 + (uint64_t)member, (uint64_t)rank);

    return bits % 4 ? (bits >> 8) % (s->count[member] + 1) : s->count[member];
}

size_t send_count(const struct step *s, int from, int to)
{
    uint64_t bits = mix(s->id, (uint64_t)from, 1000 + (uint64_t)to);

    return bits % 4 ? (bits >> 8) % (s->count[0] + 1) : 0;
}
