/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that are the identity element; see neutral.h. */
#include "runtime/plane/neutral.h"

#include "runtime/plane/kernels/cast.h"
#include "runtime/plane/kernels/reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { ELEM_BYTES_MAX = 8, BLOCK_BYTES = 4096 };

/* The range of an integer dtype. */
struct limits {
    int64_t min, max;
};

static const struct limits limits[] = {
    [HVD_UINT8] = {0, UINT8_MAX},         [HVD_INT8] = {INT8_MIN, INT8_MAX},
    [HVD_UINT16] = {0, UINT16_MAX},       [HVD_INT16] = {INT16_MIN, INT16_MAX},
    [HVD_INT32] = {INT32_MIN, INT32_MAX}, [HVD_INT64] = {INT64_MIN, INT64_MAX},
};

static int is_float(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 ||
           dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
}

/* ---- Elements --------------------------------------------------------- */

/* Writes v as any integer dtype: the low bytes of two's complement are those of
 * a narrower integer. */
static void put_int(void *elem, int64_t v)
{
    memcpy(elem, &v, sizeof(v));
}

static void put_float(void *elem, enum hvd_dtype dtype, double v)
{
    float f = (float)v;

    if (dtype == HVD_FLOAT64)
        memcpy(elem, &v, sizeof(v));
    else if (dtype == HVD_FLOAT32)
        memcpy(elem, &f, sizeof(f));
    else
        hvd__cast_get(dtype, HVD_FLOAT64)(elem, &v, 1, 1.0);
}

/* Returns whether `in` multiplied by pre becomes `wanted`. */
static int becomes(enum hvd_dtype dtype, double pre, const void *in,
                   const void *wanted)
{
    hvd__reduce_fn *kernel = hvd__reduce_get(dtype, HVD_SUM);
    const struct hvd__reduce_args args = {pre, 1.0, 1, 0};
    unsigned char out[ELEM_BYTES_MAX];
    size_t bytes = hvd_dtype_size(dtype);

    kernel(out, &in, 1, 1, &args);
    return memcmp(out, wanted, bytes) == 0;
}

/* ---- By op ------------------------------------------------------------ */

/* Writes an integer that, multiplied by pre, gives `wanted`; or else
 * `wanted`. */
static void solve_int(void *elem, enum hvd_dtype dtype, int64_t wanted,
                      double pre)
{
    const struct limits *of = &limits[dtype];
    double near = (double)wanted / pre;
    unsigned char target[ELEM_BYTES_MAX];
    int64_t v, away = near < 0 ? -1 : 1;

    put_int(target, wanted);
    /* Beyond this, double does not tell integers apart. */
    if (fabs(near) < 0x1p53) {
        v = (int64_t)near;
        for (int i = 0; i < 3; i++, v += away) {
            put_int(elem, v);
            if (v >= of->min && v <= of->max &&
                becomes(dtype, pre, elem, target))
                return;
        }
    }
    put_int(elem, wanted);
}

/* Writes a float next to 1 / pre that, multiplied by pre, gives 1, or
 * nearly. */
static void solve_one(void *elem, enum hvd_dtype dtype, double pre)
{
    double near = 1.0 / (dtype == HVD_FLOAT64 ? pre : (double)(float)pre);
    unsigned char one[ELEM_BYTES_MAX] = {0}, at[ELEM_BYTES_MAX] = {0};
    uint64_t bits;

    put_float(one, dtype, 1.0);
    put_float(at, dtype, isfinite(near) ? near : 1.0);
    /* As an integer, the bits of a float count up to the next value. */
    for (int i = 0; i < 3; i++) {
        memcpy(&bits, at, sizeof(bits));
        put_int(elem, (int64_t)(bits + (i == 1) - (i == 2)));
        if (becomes(dtype, pre, elem, one))
            return;
    }
    memcpy(elem, at, sizeof(at));
}

static void float_element(void *elem, enum hvd_dtype dtype, enum hvd_op op,
                          double pre)
{
    /* Rounded as the kernels do it. */
    double factor = dtype == HVD_FLOAT64 ? pre : (double)(float)pre;
    double far = op == HVD_MIN ? (double)INFINITY : -(double)INFINITY;

    switch (op) {
    case HVD_MIN:
    case HVD_MAX:
        put_float(elem, dtype, factor == 0 ? 0.0 : factor < 0 ? -far : far);
        break;
    case HVD_PRODUCT:
        solve_one(elem, dtype, pre);
        break;
    default:
        put_float(elem, dtype, signbit(pre) ? 0.0 : -0.0);
        break;
    }
}

static void int_element(void *elem, enum hvd_dtype dtype, enum hvd_op op,
                        double pre)
{
    const struct limits *of = &limits[dtype];

    switch (op) {
    case HVD_MIN:
        put_int(elem, pre < 0 ? of->min : of->max);
        break;
    case HVD_MAX:
        put_int(elem, pre < 0 ? of->max : of->min);
        break;
    case HVD_PRODUCT:
        solve_int(elem, dtype, 1, pre);
        break;
    case HVD_BAND:
        solve_int(elem, dtype, of->min < 0 ? -1 : of->max, pre);
        break;
    default:
        put_int(elem, 0);
        break;
    }
}

/* Returns a float8 identity element; float8 is never scaled. */
static unsigned char float8_element(enum hvd_dtype dtype, enum hvd_op op)
{
    int is_e4m3 = dtype == HVD_FLOAT8_E4M3;

    switch (op) {
    case HVD_MIN:
        return is_e4m3 ? 0x7e : 0x7c; /* 448, infinity */
    case HVD_MAX:
        return is_e4m3 ? 0xfe : 0xfc;
    case HVD_PRODUCT:
        return is_e4m3 ? 0x38 : 0x3c; /* 1 */
    default:
        return 0x80; /* -0 */
    }
}

void hvd__neutral_fill(void *buf, size_t count, enum hvd_dtype dtype,
                       enum hvd_op op, double pre)
{
    size_t elem_bytes = hvd_dtype_size(dtype), bytes = count * elem_bytes;
    size_t first = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
    unsigned char elem[ELEM_BYTES_MAX], *to = buf;

    if (dtype == HVD_BOOL)
        elem[0] = op == HVD_PRODUCT || op == HVD_MIN || op == HVD_BAND;
    else if (dtype == HVD_FLOAT8_E4M3 || dtype == HVD_FLOAT8_E5M2)
        elem[0] = float8_element(dtype, op);
    else if (is_float(dtype))
        float_element(elem, dtype, op, pre);
    else
        int_element(elem, dtype, op, pre);
    for (size_t at = 0; at < first; at += elem_bytes)
        memcpy(to + at, elem, elem_bytes);
    for (size_t at = first, n; at < bytes; at += n) {
        n = bytes - at < first ? bytes - at : first;
        memcpy(to + at, to, n);
    }
}
