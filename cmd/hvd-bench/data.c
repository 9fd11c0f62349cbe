/* SPDX-License-Identifier: Apache-2.0 */
/* Data of which every rank knows the result without communication. */
#include "cmd/hvd-bench/data.h"

#include <string.h>

enum { NCLASSES = 256 };

/* Finalizes as splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static unsigned class_of(uint64_t seed, size_t i)
{
    return (unsigned)((i * UINT64_C(0x9e3779b97f4a7c15) + seed) >> 56);
}

/* Returns the value of a class. bfloat16 holds integers up to 256, so a sum
 * must not exceed that; the sum of an average's inputs is also divisible by
 * the number of ranks. */
static int64_t value_of(const struct bench_data *d, int rank, unsigned class)
{
    uint64_t shared = mix(d->seed + class);
    uint64_t own = mix(shared + (uint64_t)rank);
    uint64_t most = d->size < 256 ? 256u / (unsigned)d->size : 1;

    if (d->dtype == HVD_BOOL)
        return (int64_t)(own & 1);
    switch (d->op) {
    case HVD_SUM:
        return rank < 256 ? (int64_t)(own % (most + 1)) : 0;
    case HVD_AVERAGE:
        return d->size <= 16
                   ? (int64_t)(own % (most / (unsigned)d->size + 1)) * d->size
                   : (int64_t)(shared % 2);
    case HVD_ADASUM: /* not 0, and the same everywhere */
        return (int64_t)(shared % 128) + 1;
    case HVD_PRODUCT:
        return shared % (uint64_t)d->size == (uint64_t)rank
                   ? (int64_t)(own % 128)
                   : 1;
    default:
        return (int64_t)(own % 128);
    }
}

static int64_t fold(enum hvd_dtype dtype, enum hvd_op op, int64_t a, int64_t b)
{
    if (dtype == HVD_BOOL)
        return op == HVD_SUM || op == HVD_MAX || op == HVD_BOR ? a | b : a & b;
    switch (op) {
    case HVD_MIN:
        return a < b ? a : b;
    case HVD_MAX:
        return a > b ? a : b;
    case HVD_PRODUCT:
        return a * b;
    case HVD_BAND:
        return a & b;
    case HVD_BOR:
        return a | b;
    default:
        return a + b;
    }
}

static int64_t wrap(enum hvd_dtype dtype, int64_t v)
{
    switch (dtype) {
    case HVD_UINT8:
        return (uint8_t)v;
    case HVD_INT8:
        return (int8_t)v;
    case HVD_UINT16:
        return (uint16_t)v;
    case HVD_INT16:
        return (int16_t)v;
    default:
        return v;
    }
}

static int64_t reduced(const struct bench_data *d, unsigned class)
{
    int64_t v = value_of(d, 0, class);

    for (int r = 1; r < d->size && d->op != HVD_ADASUM; r++)
        v = fold(d->dtype, d->op, v, value_of(d, r, class));
    v = wrap(d->dtype, v);
    return d->op == HVD_AVERAGE ? v / d->size : v;
}

/* Returns the bits of an integer that the dtype holds exactly. */
static uint64_t encode(enum hvd_dtype dtype, int64_t v)
{
    double f64 = (double)v;
    float f32 = (float)v;
    uint32_t bits32;
    uint64_t bits = (uint64_t)v;

    memcpy(&bits32, &f32, sizeof(bits32));
    switch (dtype) {
    case HVD_FLOAT64:
        memcpy(&bits, &f64, sizeof(bits));
        return bits;
    case HVD_FLOAT32:
        return bits32;
    case HVD_BFLOAT16:
        return bits32 >> 16;
    case HVD_FLOAT16: /* not negative, below 65536: only the bias differs */
        return v == 0 ? 0 : (bits32 - ((127u - 15u) << 23)) >> 13;
    default:
        return bits;
    }
}

static void make_table(const struct bench_data *d, int rank,
                       uint64_t table[NCLASSES])
{
    size_t bits = 8 * hvd_dtype_size(d->dtype);

    for (unsigned c = 0; c < NCLASSES; c++) {
        table[c] =
            encode(d->dtype, rank == BENCH_REDUCED ? reduced(d, c)
                                                   : value_of(d, rank, c));
        if (bits < 64)
            table[c] &= (UINT64_C(1) << bits) - 1;
    }
}

void bench_data_fill(const struct bench_data *d, int rank, void *buf,
                     size_t count)
{
    size_t elem = hvd_dtype_size(d->dtype);
    uint64_t table[NCLASSES];

    make_table(d, rank, table);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)buf + i * elem, &table[class_of(d->seed, i)], elem);
}

int bench_data_equal(const struct bench_data *d, int rank, size_t first,
                     const void *buf, size_t count, struct bench_wrong *wrong)
{
    size_t elem = hvd_dtype_size(d->dtype);
    uint64_t table[NCLASSES], got = 0;

    make_table(d, rank, table);
    for (size_t i = 0; i < count; i++) {
        uint64_t want = table[class_of(d->seed, first + i)];

        memcpy(&got, (const char *)buf + i * elem, elem);
        if (got != want) {
            *wrong = (struct bench_wrong){i, got, want};
            return 0;
        }
    }
    return 1;
}
