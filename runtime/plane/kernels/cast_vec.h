/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the casts of one SIMD tier; see cast.h.  Included by
 * reduce_vec.h, whose conversions between fp32 and the narrow types it uses.
 *
 * fp64 is narrowed directly: going through fp32 would round twice.  The
 * integer arithmetic below does for 64 bits what reduce_portable.c explains
 * for 32.
 */
#define CANONICAL_NAN UINT64_C(0x7ff8000000000000)

typedef double vec_f64 __attribute__((vector_size(VEC_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t vec_u16q __attribute__((vector_size(VEC_BYTES / 4)));

INLINE vec_u64 pick64(vec_u64 mask, vec_u64 yes, vec_u64 no)
{
    return (mask & yes) | (~mask & no);
}

INLINE vec_f32 quiet32(vec_f32 v)
{
    vec_u32 nan = (vec_u32)(v != v);

    return (vec_f32)((nan & 0x7fc00000) | (~nan & (vec_u32)v));
}

INLINE vec_f64 quiet64(vec_f64 v)
{
    return (vec_f64)pick64((vec_u64)(v != v), (vec_u64){} + CANONICAL_NAN,
                           (vec_u64)v);
}

/* Converts to or from a 16-bit format, given its mantissa bits and exponent
 * bias.  NaNs must be canonical before narrowing. */
INLINE vec_u16q narrow64(vec_f64 v, unsigned mantissa, unsigned bias)
{
    unsigned drop = 52 - mantissa;
    uint64_t rebias = (uint64_t)(1023 - bias) << 52;
    uint64_t least = (uint64_t)(1024 - bias) << 52;  /* smallest normal
                                                        number */
    uint64_t beyond = (uint64_t)(1024 + bias) << 52; /* first to overflow */
    uint64_t infinity = (uint64_t)(2 * bias + 1) << mantissa;
    /* The power of two whose ulp is that of the format's denormals. */
    vec_u64 adder = (vec_u64){} + ((uint64_t)(1024 - bias + drop) << 52);
    vec_u64 u = (vec_u64)v, magnitude = u & INT64_MAX;
    vec_u64 normal = (magnitude - rebias + ((UINT64_C(1) << (drop - 1)) - 1) +
                      (magnitude >> drop & 1)) >>
                     drop;
    vec_u64 tiny = (vec_u64)((vec_f64)magnitude + (vec_f64)adder) - adder;
    vec_u64 special =
        pick64((vec_u64)(v != v), (vec_u64){} + (infinity | infinity >> 1),
               (vec_u64){} + infinity);
    vec_u64 r = pick64((vec_u64)(magnitude >= beyond), special, normal);

    r = pick64((vec_u64)(magnitude < least), tiny, r);
    return __builtin_convertvector(r | (u >> 48 & 0x8000), vec_u16q);
}

INLINE vec_f64 widen64(vec_u16q h, unsigned mantissa, unsigned bias)
{
    uint64_t rebias = (uint64_t)(1023 - bias) << 52;
    uint64_t least = (uint64_t)(1024 - bias) << 52;
    uint64_t exponents = (uint64_t)(2 * bias + 1) << 52;
    vec_u64 u = __builtin_convertvector(h, vec_u64);
    vec_u64 magnitude = (u & 0x7fff) << (52 - mantissa);
    vec_u64 exponent = magnitude & exponents;
    vec_u64 special = magnitude | UINT64_C(0x7ff0000000000000);
    /* A denormal: least * 1.mantissa - least. */
    vec_u64 tiny = (vec_u64)((vec_f64)(magnitude | least) -
                             (vec_f64)((vec_u64){} + least));
    vec_u64 r =
        pick64((vec_u64)(exponent == exponents), special, magnitude + rebias);

    r = pick64((vec_u64)(exponent == 0), tiny, r);
    return (vec_f64)(r | (u & 0x8000) << 48);
}

INLINE vec_u16q f64_to_f16(vec_f64 v)
{
    return narrow64(v, 10, 15);
}

INLINE vec_u16q f64_to_bf16(vec_f64 v)
{
    return narrow64(v, 7, 127);
}

INLINE vec_f64 f16_to_f64(vec_u16q h)
{
    return widen64(h, 10, 15);
}

INLINE vec_f64 bf16_to_f64(vec_u16q h)
{
    return widen64(h, 7, 127);
}

/* One cast: vectors IN of elements S become vectors OUT of elements D; the
 * factor applies to type W.  A remainder shorter than a vector is padded with
 * zeros. */
#define CAST(name, S, IN, D, OUT, W, CALC)                                \
    INLINE OUT name##_step(IN v, W factor, int scaled)                    \
    {                                                                     \
        return CALC;                                                      \
    }                                                                     \
    static void name(void *dst, const void *src, size_t count, double by) \
    {                                                                     \
        enum { lanes = sizeof(IN) / sizeof(S) };                          \
        size_t at = 0, rest = count % lanes;                              \
        const S *s = src;                                                 \
        D *d = dst;                                                       \
        OUT out;                                                          \
        IN in;                                                            \
                                                                          \
        for (; at < count - rest; at += lanes) {                          \
            memcpy(&in, s + at, sizeof(in));                              \
            out = name##_step(in, (W)by, by != 1.0);                      \
            memcpy(d + at, &out, sizeof(out));                            \
        }                                                                 \
        if (rest == 0)                                                    \
            return;                                                       \
        memset(&in, 0, sizeof(in));                                       \
        memcpy(&in, s + at, rest * sizeof(S));                            \
        out = name##_step(in, (W)by, by != 1.0);                          \
        memcpy(d + at, &out, rest * sizeof(D));                           \
    }
#define NARROWING(name, W, IN, OUT, quiet, narrow) \
    CAST(name, W, IN, uint16_t, OUT, W, narrow(quiet(scaled ? v *factor : v)))
#define WIDENING(name, W, OUT, IN, quiet, widen) \
    CAST(name, uint16_t, IN, W, OUT, W,          \
         quiet(scaled ? widen(v) * factor : widen(v)))

NARROWING(cast_f32_f16, float, vec_f32, vec_u16h, quiet32, f32_to_f16)
NARROWING(cast_f32_bf16, float, vec_f32, vec_u16h, quiet32, f32_to_bf16)
NARROWING(cast_f64_f16, double, vec_f64, vec_u16q, quiet64, f64_to_f16)
NARROWING(cast_f64_bf16, double, vec_f64, vec_u16q, quiet64, f64_to_bf16)
WIDENING(cast_f16_f32, float, vec_f32, vec_u16h, quiet32, f16_to_f32)
WIDENING(cast_bf16_f32, float, vec_f32, vec_u16h, quiet32, bf16_to_f32)
WIDENING(cast_f16_f64, double, vec_f64, vec_u16q, quiet64, f16_to_f64)
WIDENING(cast_bf16_f64, double, vec_f64, vec_u16q, quiet64, bf16_to_f64)

static hvd__cast_fn *const casts[HVD__NDTYPES][HVD__NDTYPES] = {
    [HVD_FLOAT16] =
        {[HVD_FLOAT32] = cast_f32_f16, [HVD_FLOAT64] = cast_f64_f16},
    [HVD_BFLOAT16] =
        {[HVD_FLOAT32] = cast_f32_bf16, [HVD_FLOAT64] = cast_f64_bf16},
    [HVD_FLOAT32] =
        {[HVD_FLOAT16] = cast_f16_f32, [HVD_BFLOAT16] = cast_bf16_f32},
    [HVD_FLOAT64] =
        {[HVD_FLOAT16] = cast_f16_f64, [HVD_BFLOAT16] = cast_bf16_f64},
};
