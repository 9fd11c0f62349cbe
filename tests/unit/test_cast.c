/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts: every tier of this CPU, bit for bit, against the scalar reference of
 * the reductions, which shares no code with them; and packing and delivering
 * parts that travel in a narrower type.
 */
#include "runtime/plane/kernels/cast.h"
#include "runtime/plane/op.h"
#include "tests/unit/half_reference.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NTIERS = HVD__SIMD_AVX512 + 1, HALVES = 1 << 16, GUARD = 64 };

static const enum hvd_dtype wide[] = {HVD_FLOAT32, HVD_FLOAT64};
static const enum hvd_dtype narrow[] = {HVD_FLOAT16, HVD_BFLOAT16};

static const size_t elem_size[] = {[HVD_FLOAT16] = 2,
                                   [HVD_BFLOAT16] = 2,
                                   [HVD_FLOAT32] = 4,
                                   [HVD_FLOAT64] = 8};

static unsigned reference_narrow(enum hvd_dtype to, double v)
{
    return to == HVD_FLOAT16 ? encode_small(v, 10, 5) : encode_small(v, 7, 8);
}

static double reference_wide(enum hvd_dtype from, unsigned bits)
{
    return from == HVD_FLOAT16 ? decode_small(bits, 10, 5)
                               : decode_small(bits, 7, 8);
}

static double scaled(enum hvd_dtype t, double v, double factor)
{
    if (factor == 1.0)
        return v;
    return t == HVD_FLOAT32 ? (double)((float)v * (float)factor) : v * factor;
}

static double get_wide(enum hvd_dtype t, const void *p, size_t i)
{
    return t == HVD_FLOAT32 ? (double)((const float *)p)[i]
                            : ((const double *)p)[i];
}

static void put_wide(enum hvd_dtype t, void *p, size_t i, double v)
{
    if (t == HVD_FLOAT32)
        ((float *)p)[i] = (float)v;
    else
        ((double *)p)[i] = v;
}

/* Compares bits; any NaN must be the canonical one. */
static int same_wide(enum hvd_dtype t, const void *p, size_t i, double want)
{
    const unsigned char *at = (const unsigned char *)p + i * elem_size[t];
    uint64_t quiet =
        t == HVD_FLOAT32 ? UINT64_C(0x7fc00000) : UINT64_C(0x7ff8000000000000);
    double bytes;

    put_wide(t, &bytes, 0, want);
    return memcmp(isnan(want) ? (void *)&quiet : (void *)&bytes, at,
                  elem_size[t]) == 0;
}

/* ---- Narrowing -------------------------------------------------------- */

static void check_narrow(enum hvd_dtype to, enum hvd_dtype from,
                         const void *src, size_t count, double factor)
{
    static uint16_t got[4 * HALVES], want[4 * HALVES];

    ck_assert_uint_le(count, 4 * HALVES);
    for (size_t i = 0; i < count; i++)
        want[i] = (uint16_t)reference_narrow(
            to, scaled(from, get_wide(from, src, i), factor));
    for (int t = 0; t < NTIERS; t++) {
        hvd__cast_fn *cast = hvd__cast_get_tier(to, from, (enum hvd__simd)t);

        if (!cast)
            continue;
        cast(got, src, count, factor);
        for (size_t i = 0; i < count; i++)
            if (got[i] != want[i])
                ck_abort_msg("tier %d: %s of %a times %a is %04x, not %04x", t,
                             hvd_dtype_name(to), get_wide(from, src, i), factor,
                             got[i], want[i]);
    }
}

/* All values of the narrow type, all midpoints between two, and their
 * neighbours. */
START_TEST(narrows_at_every_edge)
{
    enum hvd_dtype to = narrow[_i / 2], from = wide[_i % 2];
    static double storage[4 * HALVES];
    size_t n = 0;

    for (unsigned h = 0; h < HALVES; h++) {
        double v = reference_wide(to, h), next = reference_wide(to, h + 1);
        double mid = isfinite(next) ? v / 2 + next / 2 : v;
        int f32 = from == HVD_FLOAT32;

        if ((h & 0x7fff) == (to == HVD_FLOAT16 ? 0x7bff : 0x7f7f))
            mid = v + (v - reference_wide(to, h - 1)) / 2;
        put_wide(from, storage, n++, v);
        put_wide(from, storage, n++, mid);
        put_wide(from, storage, n++,
                 f32 ? (double)nextafterf((float)mid, 0.0f)
                     : nextafter(mid, 0.0));
        put_wide(from, storage, n++,
                 f32 ? (double)nextafterf((float)mid, 2 * (float)mid)
                     : nextafter(mid, 2 * mid));
    }
    check_narrow(to, from, storage, n, 1.0);
    check_narrow(to, from, storage, n, -0.75);
}
END_TEST

START_TEST(narrows_any_bits)
{
    enum hvd_dtype to = narrow[_i / 2], from = wide[_i % 2];
    static double storage[HALVES];
    static const double factors[] = {1.0, 3.0, 1e30, 1e-30, 0.0, -0.5};

    for (size_t i = 0; i < HALVES; i++) {
        uint64_t bits = unit_random();

        memcpy((char *)storage + i * elem_size[from], &bits, elem_size[from]);
    }
    for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++)
        check_narrow(to, from, storage, HALVES, factors[f]);
}
END_TEST

/* float64 is rounded to fp16 once.  1 + 2^-11 is a tie; a value above it by
 * less than fp32 resolves is not, but rounding to fp32 first would make it
 * one. */
START_TEST(rounds_once)
{
    double v[] = {1 + 0x1p-11 + 0x1p-40,     1 + 0x1p-11,
                  1 + 3 * 0x1p-11 - 0x1p-40, 0x1p-25 + 0x1p-60,
                  65520 - 0x1p-30,           65520};

    check_narrow(HVD_FLOAT16, HVD_FLOAT64, v, 6, 1.0);
    v[0] = 1 + 0x1p-8 + 0x1p-40;
    v[1] = 0x1p-134 + 0x1p-170;
    check_narrow(HVD_BFLOAT16, HVD_FLOAT64, v, 6, 1.0);
}
END_TEST

/* ---- Widening --------------------------------------------------------- */

START_TEST(widens_every_value)
{
    enum hvd_dtype from = narrow[_i / 2], to = wide[_i % 2];
    static const double factors[] = {1.0, -3.0, 0.1, 0.0};
    static uint16_t src[HALVES];
    static double got[HALVES];

    for (size_t i = 0; i < HALVES; i++)
        src[i] = (uint16_t)i;
    for (int t = 0; t < NTIERS; t++) {
        hvd__cast_fn *cast = hvd__cast_get_tier(to, from, (enum hvd__simd)t);

        for (size_t f = 0; cast && f < 4; f++) {
            cast(got, src, HALVES, factors[f]);
            for (unsigned i = 0; i < HALVES; i++)
                if (!same_wide(to, got, i,
                               scaled(to, reference_wide(from, i), factors[f])))
                    ck_abort_msg("tier %d: %s %04x times %g", t,
                                 hvd_dtype_name(from), i, factors[f]);
        }
    }
}
END_TEST

/* ---- Lengths, alignment, pairs ---------------------------------------- */

static void check_length(enum hvd_dtype to, enum hvd_dtype from, int tier,
                         size_t count)
{
    hvd__cast_fn *cast = hvd__cast_get_tier(to, from, (enum hvd__simd)tier);
    hvd__cast_fn *plain = hvd__cast_get_tier(to, from, HVD__SIMD_PORTABLE);
    _Alignas(64) unsigned char src[8 * 80 + 8], dst[8 * 80 + 8 + 2 * GUARD];
    size_t out = elem_size[to], in = elem_size[from];
    unsigned char one[8];

    if (!cast)
        return;
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)unit_random();
    memset(dst, 0xa5, sizeof(dst));
    /* Aligned to single elements only. */
    cast(dst + GUARD + out, src + in, count, 1.5);
    for (size_t i = 0; i < count; i++) {
        plain(one, src + in + i * in, 1, 1.5);
        ck_assert_mem_eq(dst + GUARD + out + i * out, one, out);
    }
    for (size_t i = 0; i < GUARD + out; i++)
        ck_assert_uint_eq(dst[i], 0xa5);
    for (size_t i = GUARD + out + count * out; i < sizeof(dst); i++)
        ck_assert_uint_eq(dst[i], 0xa5);
}

START_TEST(any_length)
{
    for (size_t count = 0; count <= 70; count++)
        for (int t = 0; t < NTIERS; t++) {
            check_length(narrow[_i / 2], wide[_i % 2], t, count);
            check_length(wide[_i % 2], narrow[_i / 2], t, count);
        }
}
END_TEST

START_TEST(other_pairs_are_none)
{
    for (int a = -1; a <= HVD_BFLOAT16 + 1; a++)
        for (int b = -1; b <= HVD_BFLOAT16 + 1; b++) {
            int w = a == HVD_FLOAT32 || a == HVD_FLOAT64;
            int n = a == HVD_FLOAT16 || a == HVD_BFLOAT16;
            int bw = b == HVD_FLOAT32 || b == HVD_FLOAT64;
            int bn = b == HVD_FLOAT16 || b == HVD_BFLOAT16;
            hvd__cast_fn *cast =
                hvd__cast_get((enum hvd_dtype)a, (enum hvd_dtype)b);

            ck_assert_int_eq(cast != NULL, (w && bn) || (n && bw));
        }
    ck_assert_ptr_null(
        hvd__cast_get_tier(HVD_FLOAT16, HVD_FLOAT32, (enum hvd__simd)NTIERS));
}
END_TEST

/* ---- Parts ------------------------------------------------------------ */

/* Three parts, one of them empty, packed and delivered in ranges. */
START_TEST(parts_travel_narrower)
{
    float a[5] = {1, 2, 3, 4, 5}, b[4] = {0.1f, 70000, -6, 1e-9f};
    float out_a[5] = {0}, out_b[4] = {0};
    const struct hvd__part parts[] = {{a, out_a, 0, 5, NULL},
                                      {NULL, NULL, 5, 0, NULL},
                                      {b, out_b, 5, 4, NULL}};
    struct hvd__op op = {.dtype = HVD_FLOAT16,
                         .part_dtype = HVD_FLOAT32,
                         .elem_bytes = 2,
                         .prescale = 0.5,
                         .parts = parts,
                         .nparts = 3,
                         .count = 9};
    const float want[9] = {0.5, 1, 1.5, 2, 2.5, 0, INFINITY, -3, 0};
    uint16_t wire[9];

    hvd__op_pack(&op, wire, 0, 3);
    hvd__op_pack(&op, wire + 3, 3, 4);
    hvd__op_pack(&op, wire + 7, 7, 2);
    for (size_t i = 0; i < 9; i++) {
        double x = (i < 5 ? (double)a[i] : (double)b[i - 5]) * 0.5;

        ck_assert_uint_eq(wire[i], reference_narrow(HVD_FLOAT16, x));
    }
    wire[6] = 0x7c00; /* 35000 fits; not this test's subject */
    hvd__op_unpack(&op, wire, 4, 5, 0);
    hvd__op_unpack(&op, wire, 0, 4, 1);
    ck_assert(out_a[0] == (float)reference_wide(HVD_FLOAT16, wire[0]));
    for (size_t i = 1; i < 4; i++)
        ck_assert(out_a[i] == want[i]);
    ck_assert(out_a[4] == 0.5f && out_b[0] == 1);
}
END_TEST

START_TEST(parts_as_they_are)
{
    int32_t a[3] = {1, 2, 3}, b[2] = {4, 5}, wire[5] = {0};
    const struct hvd__part parts[] = {{a, a, 0, 3, NULL}, {b, b, 3, 2, NULL}};
    struct hvd__op op = {.dtype = HVD_INT32,
                         .part_dtype = HVD_INT32,
                         .elem_bytes = 4,
                         .prescale = 3, /* applied by the plane */
                         .parts = parts,
                         .nparts = 2,
                         .count = 5};

    hvd__op_pack(&op, wire, 1, 4);
    ck_assert(wire[0] == 2 && wire[1] == 3 && wire[2] == 4 && wire[3] == 5);
    hvd__op_unpack(&op, wire, 0, 4, 0);
    ck_assert(a[0] == 2 && a[1] == 3 && a[2] == 4 && b[0] == 5 && b[1] == 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cast");
    TCase *tc = tcase_create("cast");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, narrows_at_every_edge, 0, 4);
    tcase_add_loop_test(tc, narrows_any_bits, 0, 4);
    tcase_add_test(tc, rounds_once);
    tcase_add_loop_test(tc, widens_every_value, 0, 4);
    tcase_add_loop_test(tc, any_length, 0, 4);
    tcase_add_test(tc, other_pairs_are_none);
    tcase_add_test(tc, parts_travel_narrower);
    tcase_add_test(tc, parts_as_they_are);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
