/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one lane of a kernel does; see kernels.h.  Device code, and C: a CPU
 * runs a launch by calling hvd__kernel_lane for every tile and lane, in any
 * order.
 *
 * The arithmetic is that of runtime/plane: reduce.h for one input, cast.h for
 * casts; the same bits.  Must be compiled without fused multiply-add
 * (-fmad=false) and, as is the default, with IEEE division and denormals.
 *
 * The kernels are bound by memory, so what counts is the number of bytes in
 * flight: a lane loads all of its share of a tile, 16 bytes at a time, before
 * it uses any.  If source and destination are aligned differently, it uses
 * smaller pieces, more of them at a time.  All functions are inlined with a
 * constant id, so that a kernel has one conversion and no switch.
 */
#ifndef HVD_NCCL_KERNELS_BODY_H
#define HVD_NCCL_KERNELS_BODY_H

#include "runtime/plugins/nccl/kernels.h"

#include <assert.h>
#include <string.h>

#ifdef __CUDACC__
#define HVD__DEVICE_FN static __device__ __forceinline__
#define HVD__UNROLL _Pragma("unroll")
#define HVD__ALIAS
#define HVD__ZEROS
#define HVD__ALIGNED(p, bytes) ((void)0)
#else
#define HVD__DEVICE_FN static inline __attribute__((always_inline, unused))
#define HVD__UNROLL
#define HVD__ALIAS , may_alias
#define HVD__ZEROS = {{{0}}} /* not needed, but compilers warn */
/* A device faults where some CPUs do not. */
#define HVD__ALIGNED(p, bytes) assert((uintptr_t)(p) % (unsigned)(bytes) == 0)
#endif

enum { HVD__BATCH_MOST = 16 }; /* most vectors that a lane has in flight */

/* Up to 16 bytes in registers, little-endian. */
struct hvd__words {
    uint32_t w[4];
};

/* Units that one instruction loads or stores. */
typedef struct __attribute__((aligned(16) HVD__ALIAS)) {
    uint32_t w[4];
} hvd__mem16;
typedef struct __attribute__((aligned(8) HVD__ALIAS)) {
    uint32_t w[2];
} hvd__mem8;
typedef struct __attribute__((aligned(4) HVD__ALIAS)) {
    uint32_t w;
} hvd__mem4;
typedef struct __attribute__((aligned(2) HVD__ALIAS)) {
    uint16_t w;
} hvd__mem2;

HVD__DEVICE_FN void hvd__load(struct hvd__words *to, const char *p, int bytes)
{
    HVD__ALIGNED(p, bytes);
    if (bytes == 16) {
        hvd__mem16 m = *(const hvd__mem16 *)(const void *)p;

        to->w[0] = m.w[0];
        to->w[1] = m.w[1];
        to->w[2] = m.w[2];
        to->w[3] = m.w[3];
    } else if (bytes == 8) {
        hvd__mem8 m = *(const hvd__mem8 *)(const void *)p;

        to->w[0] = m.w[0];
        to->w[1] = m.w[1];
    } else if (bytes == 4) {
        to->w[0] = ((const hvd__mem4 *)(const void *)p)->w;
    } else if (bytes == 2) {
        to->w[0] = ((const hvd__mem2 *)(const void *)p)->w;
    } else {
        to->w[0] = (unsigned char)*p;
    }
}

HVD__DEVICE_FN void hvd__store(char *p, const struct hvd__words *from,
                               int bytes)
{
    HVD__ALIGNED(p, bytes);
    if (bytes == 16) {
        hvd__mem16 m;

        m.w[0] = from->w[0];
        m.w[1] = from->w[1];
        m.w[2] = from->w[2];
        m.w[3] = from->w[3];
        *(hvd__mem16 *)(void *)p = m;
    } else if (bytes == 8) {
        hvd__mem8 m;

        m.w[0] = from->w[0];
        m.w[1] = from->w[1];
        *(hvd__mem8 *)(void *)p = m;
    } else if (bytes == 4) {
        ((hvd__mem4 *)(void *)p)->w = from->w[0];
    } else if (bytes == 2) {
        ((hvd__mem2 *)(void *)p)->w = (uint16_t)from->w[0];
    } else {
        *p = (char)(unsigned char)from->w[0];
    }
}

/* Gets element i of a vector; hvd__put puts it into a vector of zeros. */
HVD__DEVICE_FN uint64_t hvd__get(const struct hvd__words *v, int i, int bytes)
{
    int at = i * bytes;

    if (bytes == 8)
        return (uint64_t)v->w[at / 4 + 1] << 32 | v->w[at / 4];
    return bytes == 4 ? v->w[at / 4]
                      : v->w[at / 4] >> 8 * (at % 4) &
                            ((UINT32_C(1) << 8 * (bytes % 4)) - 1);
}

HVD__DEVICE_FN void hvd__put(struct hvd__words *v, int i, int bytes,
                             uint64_t bits)
{
    int at = i * bytes;

    v->w[at / 4] |= (uint32_t)bits << 8 * (at % 4);
    if (bytes == 8)
        v->w[at / 4 + 1] |= (uint32_t)(bits >> 32);
}

HVD__DEVICE_FN float hvd__f32(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float v;

    memcpy(&v, &low, sizeof(v));
    return v;
}

HVD__DEVICE_FN uint32_t hvd__f32_bits(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return v != v ? UINT32_C(0x7fc00000) : bits;
}

HVD__DEVICE_FN double hvd__f64(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

HVD__DEVICE_FN uint64_t hvd__f64_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return v != v ? UINT64_C(0x7ff8000000000000) : bits;
}

/* Convert between fp32 and fp16, to nearest even: an instruction on the
 * device; the C version is explained in reduce_portable.c. */
#ifdef __CUDACC__
HVD__DEVICE_FN float hvd__f16_to_f32(uint64_t h)
{
    float v;

    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((uint16_t)h));
    return v;
}

HVD__DEVICE_FN uint32_t hvd__f32_to_f16(float v)
{
    uint16_t h;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return v != v ? 0x7e00u : h;
}
#else
HVD__DEVICE_FN float hvd__f16_to_f32(uint64_t h)
{
    uint32_t sign = ((uint32_t)h & 0x8000) << 16;
    uint32_t magnitude = ((uint32_t)h & 0x7fff) << 13;
    uint32_t exponent = magnitude & 0x0f800000;
    uint32_t bits = exponent == 0x0f800000 ? magnitude | 0x7f800000
                                           : magnitude + ((127 - 15) << 23);
    float v = hvd__f32(exponent ? bits : magnitude | 0x38800000);

    if (!exponent)
        v -= hvd__f32(0x38800000);
    memcpy(&bits, &v, sizeof(bits));
    return hvd__f32(bits | sign);
}

HVD__DEVICE_FN uint32_t hvd__f32_to_f16(float v)
{
    uint32_t bits = hvd__f32_bits(v), sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return 0x7e00;
    if (magnitude >= 0x47800000)
        return sign | 0x7c00;
    if (magnitude < 0x38800000)
        return sign | (hvd__f32_bits(hvd__f32(magnitude) + 0.5f) - 0x3f000000);
    return sign |
           (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >>
               13;
}
#endif

HVD__DEVICE_FN float hvd__bf16_to_f32(uint64_t h)
{
    return hvd__f32(h << 16);
}

HVD__DEVICE_FN uint32_t hvd__f32_to_bf16(float v)
{
    uint32_t bits = hvd__f32_bits(v);

    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Narrows fp64 to a 16-bit format, given its mantissa bits and exponent bias;
 * explained in cast_vec.h. */
HVD__DEVICE_FN uint32_t hvd__narrow64(double v, unsigned mantissa,
                                      unsigned bias)
{
    unsigned drop = 52 - mantissa;
    uint64_t rebias = (uint64_t)(1023 - bias) << 52;
    uint64_t least = (uint64_t)(1024 - bias) << 52;
    uint64_t beyond = (uint64_t)(1024 + bias) << 52;
    uint64_t infinity = (uint64_t)(2 * bias + 1) << mantissa;
    uint64_t adder = (uint64_t)(1024 - bias + drop) << 52;
    uint64_t bits = hvd__f64_bits(v);
    uint64_t magnitude = bits & (UINT64_MAX >> 1), result;

    if (v != v)
        return (uint32_t)(infinity | infinity >> 1);
    if (magnitude >= beyond)
        result = infinity;
    else if (magnitude < least)
        result = hvd__f64_bits(hvd__f64(magnitude) + hvd__f64(adder)) - adder;
    else
        result = (magnitude - rebias + ((UINT64_C(1) << (drop - 1)) - 1) +
                  (magnitude >> drop & 1)) >>
                 drop;
    return (uint32_t)(result | (bits >> 48 & 0x8000));
}

HVD__DEVICE_FN float hvd__scale32(float v, const struct hvd__kernel_args *a)
{
    v = v * (float)a->pre * (float)a->post;
    return a->inverse != 0.0 ? v * (float)a->inverse : v / (float)a->divisor;
}

HVD__DEVICE_FN double hvd__scale64(double v, const struct hvd__kernel_args *a)
{
    v = v * a->pre * a->post;
    return a->inverse != 0.0 ? v * a->inverse : v / a->divisor;
}

/* Converts to an integer of `bits` bits: truncates, saturates, NaN to 0. */
HVD__DEVICE_FN int64_t hvd__to_int(double v, int bits, int is_signed)
{
    int64_t most = is_signed ? INT64_MAX >> (64 - bits)
                             : (int64_t)(UINT64_MAX >> (64 - bits));
    int64_t least = is_signed ? -most - 1 : 0;

    if (v >= (double)most)
        return most;
    if (v <= (double)least)
        return least;
    return v == v ? (int64_t)v : 0;
}

HVD__DEVICE_FN uint64_t hvd__scale_int(uint64_t x, int bits, int is_signed,
                                       const struct hvd__kernel_args *a)
{
    int64_t v =
        is_signed ? (int64_t)(x << (64 - bits)) >> (64 - bits) : (int64_t)x;

    if (a->pre != 1.0)
        v = hvd__to_int((double)v * a->pre, bits, is_signed);
    if (a->post != 1.0)
        v = hvd__to_int((double)v * a->post / a->divisor, bits, is_signed);
    else if (a->divisor != 1)
        v = bits <= 32 ? (int32_t)v / a->divisor : v / a->divisor;
    return (uint64_t)v & UINT64_MAX >> (64 - bits);
}

/* Converts the bits of one element. */
HVD__DEVICE_FN uint64_t hvd__convert(int id, uint64_t x,
                                     const struct hvd__kernel_args *a)
{
    switch (id) {
    case HVD__K_scale_u8:
        return hvd__scale_int(x, 8, 0, a);
    case HVD__K_scale_i8:
        return hvd__scale_int(x, 8, 1, a);
    case HVD__K_scale_u16:
        return hvd__scale_int(x, 16, 0, a);
    case HVD__K_scale_i16:
        return hvd__scale_int(x, 16, 1, a);
    case HVD__K_scale_i32:
        return hvd__scale_int(x, 32, 1, a);
    case HVD__K_scale_i64:
        return hvd__scale_int(x, 64, 1, a);
    case HVD__K_scale_f16:
        return hvd__f32_to_f16(hvd__scale32(hvd__f16_to_f32(x), a));
    case HVD__K_scale_bf16:
        return hvd__f32_to_bf16(hvd__scale32(hvd__bf16_to_f32(x), a));
    case HVD__K_scale_f32:
        return hvd__f32_bits(hvd__scale32(hvd__f32(x), a));
    case HVD__K_scale_f64:
        return hvd__f64_bits(hvd__scale64(hvd__f64(x), a));
    case HVD__K_f32_to_f16:
        return hvd__f32_to_f16(hvd__f32(x) * (float)a->pre);
    case HVD__K_f32_to_bf16:
        return hvd__f32_to_bf16(hvd__f32(x) * (float)a->pre);
    case HVD__K_f64_to_f16:
        return hvd__narrow64(hvd__f64(x) * a->pre, 10, 15);
    case HVD__K_f64_to_bf16:
        return hvd__narrow64(hvd__f64(x) * a->pre, 7, 127);
    case HVD__K_f16_to_f32:
        x = hvd__f32_to_f16(hvd__scale32(hvd__f16_to_f32(x), a));
        return hvd__f32_bits(hvd__f16_to_f32(x));
    case HVD__K_bf16_to_f32:
        x = hvd__f32_to_bf16(hvd__scale32(hvd__bf16_to_f32(x), a));
        return hvd__f32_bits(hvd__bf16_to_f32(x));
    case HVD__K_f16_to_f64:
        x = hvd__f32_to_f16(hvd__scale32(hvd__f16_to_f32(x), a));
        return hvd__f64_bits((double)hvd__f16_to_f32(x));
    case HVD__K_bf16_to_f64:
        x = hvd__f32_to_bf16(hvd__scale32(hvd__bf16_to_f32(x), a));
        return hvd__f64_bits((double)hvd__bf16_to_f32(x));
    default:
        return x;
    }
}

/* The elements of a tile. */
struct hvd__tile {
    const char *src;
    char *dst;
    uint32_t count;
};

/* Processes a lane's share of a tile in vectors of `per` elements, `batch` of
 * them in flight.  The elements before the first and after the last aligned
 * vector go one by one. */
HVD__DEVICE_FN void hvd__tile_run(int id, int per, int batch,
                                  const struct hvd__tile *t, uint32_t lane,
                                  const struct hvd__kernel_args *a)
{
    const int in = hvd__kernel_in(id), out = hvd__kernel_out(id);
    const uint32_t wide = (uint32_t)per, half = HVD__KERNEL_LANES / 2;
    const uint32_t past =
        ((uint32_t)(uintptr_t)t->dst & (uint32_t)(per * out - 1)) /
        (uint32_t)out;
    uint32_t head = (wide - past) & (wide - 1);
    uint32_t vectors, edge, at;
    struct hvd__words v[HVD__BATCH_MOST] HVD__ZEROS;

    if (head > t->count)
        head = t->count;
    vectors = (t->count - head) / wide;
    for (uint32_t i = lane; i < vectors;
         i += (uint32_t)batch * HVD__KERNEL_LANES) {
        const char *src = t->src + (size_t)(head + i * wide) * (size_t)in;
        char *dst = t->dst + (size_t)(head + i * wide) * (size_t)out;

        HVD__UNROLL
        for (int k = 0; k < batch; k++)
            if (i + (uint32_t)k * HVD__KERNEL_LANES < vectors)
                hvd__load(&v[k], src + k * HVD__KERNEL_LANES * per * in,
                          per * in);
        HVD__UNROLL
        for (int k = 0; k < batch; k++) {
            struct hvd__words to = {{0, 0, 0, 0}};

            if (i + (uint32_t)k * HVD__KERNEL_LANES >= vectors)
                break;
            HVD__UNROLL
            for (int e = 0; e < per && id != HVD__K_copy; e++)
                hvd__put(&to, e, out,
                         hvd__convert(id, hvd__get(&v[k], e, in), a));
            hvd__store(dst + k * HVD__KERNEL_LANES * per * out,
                       id == HVD__K_copy ? &v[k] : &to, per * out);
        }
    }
    /* Lanes 0 .. 15 take the head, 16 .. 31 the tail. */
    edge = lane < half ? head : t->count - head - vectors * wide;
    at = lane < half ? lane : head + vectors * wide + lane - half;
    if (lane % half < edge) {
        struct hvd__words to = {{0, 0, 0, 0}};

        hvd__load(&v[0], t->src + (size_t)at * (size_t)in, in);
        hvd__put(&to, 0, out, hvd__convert(id, hvd__get(&v[0], 0, in), a));
        hvd__store(t->dst + (size_t)at * (size_t)out, &to, out);
    }
}

/* Returns the vectors in flight of a lane: a whole tile for copies; fewer
 * where the conversion needs registers, and for integers, whose code is long
 * and rarely used. */
HVD__DEVICE_FN int hvd__batch(int id)
{
    if (id == HVD__K_copy)
        return 8;
    return id >= HVD__K_scale_u8 && id <= HVD__K_scale_i64 ? 2 : 4;
}

/* Returns the part that a tile belongs to. */
HVD__DEVICE_FN uint32_t hvd__tile_part(const struct hvd__kernel_args *a,
                                       uint32_t tile)
{
    uint32_t low = 0, high = a->nparts;

    while (high - low > 1) {
        uint32_t mid = (low + high) / 2;

        if (a->tile[mid] <= tile)
            low = mid;
        else
            high = mid;
    }
    return low;
}

HVD__DEVICE_FN void hvd__kernel_run(int id, const struct hvd__kernel_args *a,
                                    uint32_t tile, uint32_t lane)
{
    const int in = hvd__kernel_in(id), out = hvd__kernel_out(id);
    const int per = HVD__VECTOR_BYTES / hvd__kernel_wide(id);
    const uint64_t each = (uint64_t)(HVD__TILE_BYTES / hvd__kernel_wide(id));
    const int batch = hvd__batch(id);
    const uint32_t part = hvd__tile_part(a, tile);
    const uint64_t count = a->first[part + 1] - a->first[part];
    char *ptr = a->ptr[part], *buffer;
    uint64_t from, end, skew;
    uint32_t apart;
    struct hvd__tile t;

    buffer = a->buffer + a->first[part] * (uint64_t)(a->to_parts ? in : out);
    t.src = a->to_parts ? buffer : ptr;
    t.dst = a->to_parts ? ptr : buffer;
    skew = hvd__kernel_skew(id, t.dst);
    end = (tile - a->tile[part] + 1) * each - skew;
    from = tile == a->tile[part] ? 0 : end - each;
    if (end > count)
        end = count;
    t.count = (uint32_t)(end - from);
    t.src += from * (uint64_t)in;
    t.dst += from * (uint64_t)out;
    /* The source's misalignment where the destination is aligned. */
    apart = (uint32_t)(uintptr_t)t.src -
            (uint32_t)(uintptr_t)t.dst / (uint32_t)out * (uint32_t)in;
    if ((apart & (uint32_t)(per * in - 1)) == 0)
        hvd__tile_run(id, per, batch, &t, lane, a);
    else if (id == HVD__K_copy && (apart & 7) == 0)
        hvd__tile_run(id, 8, batch, &t, lane, a);
    else if (id == HVD__K_copy && (apart & 3) == 0)
        hvd__tile_run(id, 4, 2 * batch, &t, lane, a);
    else if (id == HVD__K_copy && (apart & 1) == 0)
        hvd__tile_run(id, 2, 2 * batch, &t, lane, a);
    else
        hvd__tile_run(id, 1, 2 * batch, &t, lane, a);
}

#ifndef __CUDACC__
/* Runs one lane of kernel `id` on the CPU. */
static __attribute__((unused)) void
hvd__kernel_lane(int id, const struct hvd__kernel_args *a, uint32_t tile,
                 uint32_t lane)
{
#define HVD__KERNEL_CASE(name, in, out)                \
    case HVD__K_##name:                                \
        hvd__kernel_run(HVD__K_##name, a, tile, lane); \
        break;
    switch (id) {
        HVD__KERNELS(HVD__KERNEL_CASE)
    default:
        break;
    }
#undef HVD__KERNEL_CASE
}
#endif

#endif
