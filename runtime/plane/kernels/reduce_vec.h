/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: one SIMD tier.  The tier's .c file defines
 *
 *     TIER         the name of the struct hvd__tier to define
 *     VEC_BYTES    the width of its vectors
 *     PARTIAL      1 for the portable tier, which alone serves counts
 *                  below one vector and scaled integers, for all tiers
 *     vec_u16h, vec_f32    vectors of VEC_BYTES / 4 lanes
 *     f16_to_f32(h), f32_to_f16(f)    between them; to nearest even
 *     vec_u32, u16_to_u32(h), u32_to_u16(u)    the same for integers
 *     stream_store(p, from)    VEC_BYTES to an aligned p, past the cache
 *
 * and includes this file, which defines the rest.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "partial vectors are assembled little end first");

#define INLINE static inline __attribute__((always_inline))
#define OUTLINE static __attribute__((noinline, unused))
#define PASTE_(a, b) a##_##b
#define NAME(a, b) PASTE_(a, b)
/* Flags of a loop body, always constants. */
enum {
    SCALED = 1, /* there are factors or a divisor */
    PART = 2    /* fewer elements than a vector has lanes */
};
#define KIND_INT 1
#define KIND_FLOAT 2
#define KIND_BOOL 3

#if PARTIAL
/* Loads 1..15 bytes into a zeroed vector through general registers: a narrow
 * store followed by a wide load would stall. */
typedef uint64_t vec_words __attribute__((vector_size(16)));

INLINE void load_partial(void *to, size_t size, const char *p, size_t bytes)
{
    uint64_t first = 0, second = 0;
    uint32_t lo32, hi32;
    uint16_t lo16, hi16;
    vec_words v;

    if (bytes >= 8) {
        memcpy(&first, p, 8);
        if (bytes > 8) {
            memcpy(&second, p + bytes - 8, 8);
            second >>= 8 * (16 - bytes);
        }
    } else if (bytes >= 4) {
        memcpy(&lo32, p, 4);
        memcpy(&hi32, p + bytes - 4, 4);
        first = lo32 | (uint64_t)hi32 << 8 * (bytes - 4);
    } else if (bytes >= 2) {
        memcpy(&lo16, p, 2);
        memcpy(&hi16, p + bytes - 2, 2);
        first = lo16 | (uint64_t)hi16 << 8 * (bytes - 2);
    } else {
        first = (unsigned char)*p;
    }
    v = (vec_words){first, second};
    memcpy(to, &v, size);
}

INLINE void store_partial(char *p, const void *from, size_t size, size_t bytes)
{
    vec_words v = {0, 0};
    uint64_t first, last;

    memcpy(&v, from, size);
    first = v[0];
    if (bytes > 8) {
        last = first >> 8 * (bytes - 8) | v[1] << 8 * (16 - bytes);
        memcpy(p, &first, 8);
        memcpy(p + bytes - 8, &last, 8);
    } else if (bytes == 8) {
        memcpy(p, &first, 8);
    } else if (bytes >= 4) {
        last = first >> 8 * (bytes - 4);
        memcpy(p, &first, 4);
        memcpy(p + bytes - 4, &last, 4);
    } else if (bytes >= 2) {
        last = first >> 8 * (bytes - 2);
        memcpy(p, &first, 2);
        memcpy(p + bytes - 2, &last, 2);
    } else {
        memcpy(p, &first, 1);
    }
}
#else
#define load_partial(to, size, p, bytes) ((void)0)
#define store_partial(p, from, size, bytes) ((void)0)
#endif

/* The table of kernels, defined below; the entries refer to it. */
#if PARTIAL
#define KERNELS hvd__kernels_portable
#define KERNELS_STATIC
#else
#define KERNELS kernels
#define KERNELS_STATIC static
static const struct hvd__kernel kernels[HVD__NDTYPES][HVD__NOPS];
#endif

/* Widens bf16, the upper half of fp32; f32_to_bf16 narrows.  NaN is canonical
 * before it is narrowed, so rounding cannot carry it into infinity. */
INLINE vec_f32 bf16_to_f32(vec_u16h h)
{
    return (vec_f32)(u16_to_u32(h) << 16);
}

INLINE vec_u16h f32_to_bf16(vec_f32 f)
{
    vec_u32 u = (vec_u32)f;

    u += 0x7fff + (u >> 16 & 1);
    return u32_to_u16(u >> 16);
}

#define D u8
#define DTYPE HVD_UINT8
#define ELEM uint8_t
#define LANE uint8_t
#define CMP uint8_t
#define MASK int8_t
#define KIND KIND_INT
#define WIDEN(m) (m)
#define NARROW(v) (v)
#define INT_MIN_OF 0
#define INT_MAX_OF UINT8_MAX
#include "runtime/plane/kernels/reduce_dtype.h"

#define D i8
#define DTYPE HVD_INT8
#define ELEM int8_t
#define LANE uint8_t
#define CMP int8_t
#define MASK int8_t
#define KIND KIND_INT
#define WIDEN(m) ((VEC)(m))
#define NARROW(v) ((MEM)(v))
#define INT_MIN_OF INT8_MIN
#define INT_MAX_OF INT8_MAX
#include "runtime/plane/kernels/reduce_dtype.h"

#define D u16
#define DTYPE HVD_UINT16
#define ELEM uint16_t
#define LANE uint16_t
#define CMP uint16_t
#define MASK int16_t
#define KIND KIND_INT
#define WIDEN(m) (m)
#define NARROW(v) (v)
#define INT_MIN_OF 0
#define INT_MAX_OF UINT16_MAX
#include "runtime/plane/kernels/reduce_dtype.h"

#define D i16
#define DTYPE HVD_INT16
#define ELEM int16_t
#define LANE uint16_t
#define CMP int16_t
#define MASK int16_t
#define KIND KIND_INT
#define WIDEN(m) ((VEC)(m))
#define NARROW(v) ((MEM)(v))
#define INT_MIN_OF INT16_MIN
#define INT_MAX_OF INT16_MAX
#include "runtime/plane/kernels/reduce_dtype.h"

#define D i32
#define DTYPE HVD_INT32
#define ELEM int32_t
#define LANE uint32_t
#define CMP int32_t
#define MASK int32_t
#define KIND KIND_INT
#define WIDEN(m) ((VEC)(m))
#define NARROW(v) ((MEM)(v))
#define INT_MIN_OF INT32_MIN
#define INT_MAX_OF INT32_MAX
#include "runtime/plane/kernels/reduce_dtype.h"

#define D i64
#define DTYPE HVD_INT64
#define ELEM int64_t
#define LANE uint64_t
#define CMP int64_t
#define MASK int64_t
#define KIND KIND_INT
#define WIDEN(m) ((VEC)(m))
#define NARROW(v) ((MEM)(v))
#define INT_MIN_OF INT64_MIN
#define INT_MAX_OF INT64_MAX
#include "runtime/plane/kernels/reduce_dtype.h"

#define D f32
#define DTYPE HVD_FLOAT32
#define ELEM float
#define LANE float
#define CMP float
#define MASK int32_t
#define KIND KIND_FLOAT
#define WIDEN(m) (m)
#define NARROW(v) (v)
#include "runtime/plane/kernels/reduce_dtype.h"

#define D f64
#define DTYPE HVD_FLOAT64
#define ELEM double
#define LANE double
#define CMP double
#define MASK int64_t
#define KIND KIND_FLOAT
#define WIDEN(m) (m)
#define NARROW(v) (v)
#include "runtime/plane/kernels/reduce_dtype.h"

#define D f16
#define DTYPE HVD_FLOAT16
#define ELEM uint16_t
#define LANE float
#define CMP float
#define MASK int32_t
#define KIND KIND_FLOAT
#define WIDEN(m) ((VEC)f16_to_f32((vec_u16h)(m)))
#define NARROW(v) ((MEM)f32_to_f16((vec_f32)(v)))
#include "runtime/plane/kernels/reduce_dtype.h"

#define D bf16
#define DTYPE HVD_BFLOAT16
#define ELEM uint16_t
#define LANE float
#define CMP float
#define MASK int32_t
#define KIND KIND_FLOAT
#define WIDEN(m) ((VEC)bf16_to_f32((vec_u16h)(m)))
#define NARROW(v) ((MEM)f32_to_bf16((vec_f32)(v)))
#include "runtime/plane/kernels/reduce_dtype.h"

#define D b8
#define DTYPE HVD_BOOL
#define ELEM uint8_t
#define LANE uint8_t
#define CMP uint8_t
#define MASK int8_t
#define KIND KIND_BOOL
#define WIDEN(m) ((VEC)((m) != 0))
#define NARROW(v) ((v)&1)
#include "runtime/plane/kernels/reduce_dtype.h"

#define KERNEL(d, OP, scaled_pass)                  \
    [HVD_##OP] = {.entry = d##_##OP##_entry,        \
                  .plain = d##_##OP##_plain,        \
                  .scaled = scaled_pass,            \
                  .lanes = PARTIAL ? 1 : d##_lanes, \
                  .elem_bytes = d##_elem_bytes,     \
                  .lane_bytes = d##_lane_bytes}
#define FLOAT_KERNEL(d, OP) KERNEL(d, OP, d##_##OP##_scaled)
#define BOOL_KERNEL(d, OP) KERNEL(d, OP, d##_##OP##_plain)
#if PARTIAL
#define INT_KERNEL(d, OP) KERNEL(d, OP, d##_##OP##_scaled)
#else
#define INT_KERNEL(d, OP) KERNEL(d, OP, NULL)
#endif
#define ROW4(what, d) what(d, SUM), what(d, MIN), what(d, MAX), what(d, PRODUCT)
#define ROW6(what, d) ROW4(what, d), what(d, BAND), what(d, BOR)

KERNELS_STATIC const struct hvd__kernel KERNELS[HVD__NDTYPES][HVD__NOPS] = {
    [HVD_UINT8] = {ROW6(INT_KERNEL, u8)},
    [HVD_INT8] = {ROW6(INT_KERNEL, i8)},
    [HVD_UINT16] = {ROW6(INT_KERNEL, u16)},
    [HVD_INT16] = {ROW6(INT_KERNEL, i16)},
    [HVD_INT32] = {ROW6(INT_KERNEL, i32)},
    [HVD_INT64] = {ROW6(INT_KERNEL, i64)},
    [HVD_FLOAT16] = {ROW4(FLOAT_KERNEL, f16)},
    [HVD_FLOAT32] = {ROW4(FLOAT_KERNEL, f32)},
    [HVD_FLOAT64] = {ROW4(FLOAT_KERNEL, f64)},
    [HVD_BOOL] = {ROW6(BOOL_KERNEL, b8)},
    [HVD_BFLOAT16] = {ROW4(FLOAT_KERNEL, bf16)},
};

/* Streams whole cache lines in order, so that each leaves as one burst. */
static void copy_stream(void *dst, const void *src, size_t bytes)
{
    size_t head = -(uintptr_t)dst % 64;
    const char *s = src;
    char *d = dst;

    if (head > bytes)
        head = bytes;
    memcpy(d, s, head);
    for (d += head, s += head, bytes -= head; bytes >= 64;
         d += 64, s += 64, bytes -= 64)
        for (size_t i = 0; i < 64; i += VEC_BYTES)
            stream_store(d + i, s + i);
    memcpy(d, s, bytes);
}

#include "runtime/plane/kernels/cast_vec.h"

const struct hvd__tier TIER = {KERNELS, copy_stream, casts};
