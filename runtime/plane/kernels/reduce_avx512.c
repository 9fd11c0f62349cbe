/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AVX-512 (F, BW, DQ, VL) reduction tier.  Compiled with those
 * instruction sets; nothing here may run before reduce.c has asked the CPU
 * for them.  bf16 is narrowed with integer instructions here too: those of
 * AVX512_BF16 flush denormals, and every tier gives the same bits.
 */
#include "runtime/plane/kernels/reduce_tier.h"

#include <immintrin.h>
#include <stdint.h>

#define TIER hvd__tier_avx512
#define VEC_BYTES 64
#define PARTIAL 0

typedef float vec_f32 __attribute__((vector_size(64)));
typedef uint32_t vec_u32 __attribute__((vector_size(64)));
typedef uint16_t vec_u16h __attribute__((vector_size(32)));

static inline vec_f32 f16_to_f32(vec_u16h h)
{
    return (vec_f32)_mm512_cvtph_ps((__m256i)h);
}

static inline vec_u16h f32_to_f16(vec_f32 f)
{
    return (vec_u16h)_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT);
}

static inline vec_u32 u16_to_u32(vec_u16h h)
{
    return (vec_u32)_mm512_cvtepu16_epi32((__m256i)h);
}

static inline vec_u16h u32_to_u16(vec_u32 u)
{
    return (vec_u16h)_mm512_cvtepi32_epi16((__m512i)u);
}

static inline void stream_store(void *p, const void *from)
{
    _mm512_stream_si512(p, _mm512_loadu_si512(from));
}

#include "runtime/plane/kernels/reduce_vec.h"
