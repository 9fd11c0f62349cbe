/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meaning of small binary formats, for tests: derived from their fields
 * with ldexp and rint instead of bits.
 */
#ifndef TEST_HALF_REFERENCE_H
#define TEST_HALF_REFERENCE_H

#include <math.h>

/* Returns a small format's value, from its fields. */
static double decode_small(unsigned bits, int mant_bits, int exp_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1;
    int exp = (int)(bits >> mant_bits) & ((1 << exp_bits) - 1);
    int mant = (int)bits & ((1 << mant_bits) - 1);
    double sign = bits >> (mant_bits + exp_bits) ? -1.0 : 1.0;

    if (exp == (1 << exp_bits) - 1)
        return mant ? (double)NAN : sign * (double)INFINITY;
    if (exp == 0)
        return sign * ldexp(mant, 1 - bias - mant_bits);
    return sign * ldexp((1 << mant_bits) + mant, exp - bias - mant_bits);
}

/* Rounds to the format's nearest value, ties to even, by counting ulps. */
static unsigned encode_small(double x, int mant_bits, int exp_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1, exp;
    unsigned sign = signbit(x) ? 1u << (mant_bits + exp_bits) : 0;
    unsigned inf = ((1u << exp_bits) - 1) << mant_bits;
    double ulps;

    if (isnan(x))
        return inf | 1u << (mant_bits - 1);
    if (isinf(x))
        return sign | inf;
    frexp(x, &exp);
    exp = x == 0 || exp - 1 < 1 - bias ? 1 - bias : exp - 1;
    ulps = rint(ldexp(fabs(x), mant_bits - exp));
    if (ulps >= ldexp(1, mant_bits + 1)) {
        ulps /= 2;
        exp++;
    }
    if (exp > bias)
        return sign | inf;
    if (ulps < ldexp(1, mant_bits)) /* denormal: exponent field 0 */
        return sign | (unsigned)ulps;
    return sign | (((unsigned)(exp + bias - 1) << mant_bits) + (unsigned)ulps);
}

#endif
