/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable reduction tier: 16-byte vectors, which any compiler lowers
 * to what the machine has (SSE2 on x86-64), and half precision in integer
 * arithmetic.  The reference for the other tiers.
 */
#include "runtime/plane/kernels/reduce_tier.h"

#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define TIER hvd__tier_portable
#define VEC_BYTES 16
#define PARTIAL 1

typedef float vec_f32 __attribute__((vector_size(16)));
typedef uint32_t vec_u32 __attribute__((vector_size(16)));
typedef uint16_t vec_u16h __attribute__((vector_size(8)));

static inline vec_u32 u16_to_u32(vec_u16h h)
{
    return __builtin_convertvector(h, vec_u32);
}

static inline vec_u16h u32_to_u16(vec_u32 u)
{
    return __builtin_convertvector(u, vec_u16h);
}

static inline vec_u32 pick(vec_u32 mask, vec_u32 yes, vec_u32 no)
{
    return (mask & yes) | (~mask & no);
}

/* Widens f16.  No operand is ever an fp32 denormal, so the result does not
 * depend on whether the process flushes denormals to zero. */
static __attribute__((noinline)) vec_f32 f16_to_f32(vec_u16h h)
{
    vec_u32 u = u16_to_u32(h);
    vec_u32 magnitude = (u & 0x7fff) << 13;
    vec_u32 exponent = magnitude & 0x0f800000;
    vec_u32 normal = magnitude + ((127 - 15) << 23);
    vec_u32 special = magnitude | 0x7f800000;
    /* A denormal: 2^-14 * 1.mantissa - 2^-14. */
    vec_u32 tiny = (vec_u32)((vec_f32)(magnitude | 0x38800000) -
                             (vec_f32)((vec_u32){} + 0x38800000));
    vec_u32 r = pick((vec_u32)(exponent == 0x0f800000), special, normal);

    r = pick((vec_u32)(exponent == 0), tiny, r);
    return (vec_f32)(r | (u & 0x8000) << 16);
}

static __attribute__((noinline)) vec_u16h f32_to_f16(vec_f32 f)
{
    vec_u32 u = (vec_u32)f;
    vec_u32 magnitude = u & 0x7fffffff;
    /* Round to nearest even: add half an ulp less one, plus one if the kept
     * part is odd. */
    vec_u32 normal =
        (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* The ulp of 0.5 is a half-precision denormal's, so the addition rounds. */
    vec_u32 tiny = (vec_u32)((vec_f32)magnitude + 0.5f) - 0x3f000000;
    vec_u32 special = pick((vec_u32)(magnitude > 0x7f800000),
                           (vec_u32){} + 0x7e00, (vec_u32){} + 0x7c00);
    vec_u32 r = pick((vec_u32)(magnitude >= 0x47800000), special, normal);

    r = pick((vec_u32)(magnitude < 0x38800000), tiny, r);
    return u32_to_u16(r | (u >> 16 & 0x8000));
}

static inline void stream_store(void *p, const void *from)
{
#ifdef __SSE2__
    _mm_stream_si128(p, _mm_loadu_si128(from));
#else
    __builtin_memcpy(p, from, 16);
#endif
}

#include "runtime/plane/kernels/reduce_vec.h"
