/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AVX2 + F16C reduction tier.  Compiled with those instruction sets;
 * nothing here may run before reduce.c has asked the CPU for them.
 */
#include "runtime/plane/kernels/reduce_tier.h"

#include <immintrin.h>
#include <stdint.h>

#define TIER hvd__tier_avx2
#define VEC_BYTES 32
#define PARTIAL 0

typedef float vec_f32 __attribute__((vector_size(32)));
typedef uint32_t vec_u32 __attribute__((vector_size(32)));
typedef uint16_t vec_u16h __attribute__((vector_size(16)));

static inline vec_f32 f16_to_f32(vec_u16h h)
{
    return (vec_f32)_mm256_cvtph_ps((__m128i)h);
}

static inline vec_u16h f32_to_f16(vec_f32 f)
{
    return (vec_u16h)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT);
}

static inline vec_u32 u16_to_u32(vec_u16h h)
{
    return (vec_u32)_mm256_cvtepu16_epi32((__m128i)h);
}

static inline vec_u16h u32_to_u16(vec_u32 u)
{
    __m128i lo = _mm256_castsi256_si128((__m256i)u);
    __m128i hi = _mm256_extracti128_si256((__m256i)u, 1);

    return (vec_u16h)_mm_packus_epi32(lo, hi); /* lanes are below 65536 */
}

static inline void stream_store(void *p, const void *from)
{
    _mm256_stream_si256(p, _mm256_loadu_si256(from));
}

#include "runtime/plane/kernels/reduce_vec.h"
