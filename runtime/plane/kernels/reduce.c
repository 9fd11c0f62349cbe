/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction kernels: the choice of a SIMD tier, and how one reduction is
 * cut into passes.
 *
 * The tiers are separate objects, each compiled for its instruction set
 * from one template (reduce_vec.h, reduce_dtype.h), and chosen here when
 * first used.
 */
#include "runtime/plane/kernels/reduce.h"

#include "lib/base/env.h"
#include "runtime/plane/kernels/reduce_tier.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <emmintrin.h>
#endif

/* A block's accumulators stay in the L1 cache beside the inputs.  There is
 * room for two blocks, as a short rest is added to the last block. */
enum { BLOCK_BYTES = 4096, BLOCK_ROOM = 2 * BLOCK_BYTES };
/* Streaming less than this costs more than the cache space it saves. */
enum { STREAM_MIN_BYTES = 4096 };
/* Below this, starting a string move costs more than it saves. */
enum { STRING_MIN_BYTES = 1024 };

static const char *const tier_names[] = {
    [HVD__SIMD_PORTABLE] = "portable",
    [HVD__SIMD_AVX2] = "avx2",
    [HVD__SIMD_AVX512] = "avx512",
};
enum { NTIERS = sizeof(tier_names) / sizeof(tier_names[0]) };

#ifdef __x86_64__
static const struct hvd__tier *const tiers[NTIERS] = {
    [HVD__SIMD_PORTABLE] = &hvd__tier_portable,
    [HVD__SIMD_AVX2] = &hvd__tier_avx2,
    [HVD__SIMD_AVX512] = &hvd__tier_avx512,
};

/* Asks the CPU: clang 14's __builtin_cpu_supports does not know F16C. */
static int cpu_has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int cpu_has(int tier)
{
    switch (tier) {
    case HVD__SIMD_PORTABLE:
        return 1;
    case HVD__SIMD_AVX2:
        return __builtin_cpu_supports("avx2") && cpu_has_f16c();
    case HVD__SIMD_AVX512:
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    default:
        return 0;
    }
}

static void stream_fence(void)
{
    _mm_sfence();
}
#else
static const struct hvd__tier *const tiers[NTIERS] = {
    [HVD__SIMD_PORTABLE] = &hvd__tier_portable,
};

static int cpu_has(int tier)
{
    return tier == HVD__SIMD_PORTABLE;
}

static void stream_fence(void)
{
}
#endif

static int choose_tier(void)
{
    const char *asked = hb_knob("SIMD");
    int best = NTIERS - 1;

    for (int t = 0; asked && t < NTIERS; t++)
        if (strcmp(asked, tier_names[t]) == 0 && cpu_has(t))
            return t;
    while (!cpu_has(best))
        best--;
    return best;
}

/* Returns the tier, chosen by the first call; threads that race to make it
 * choose the same one. */
static enum hvd__simd current_tier(void)
{
    static _Atomic int chosen = -1;
    int tier = atomic_load(&chosen);

    if (tier < 0) {
        tier = choose_tier();
        atomic_store(&chosen, tier);
    }
    return (enum hvd__simd)tier;
}

const struct hvd__tier *hvd__tier_get(enum hvd__simd tier)
{
    if ((unsigned)tier >= NTIERS || !cpu_has((int)tier))
        return NULL;
    return tiers[tier];
}

const struct hvd__tier *hvd__tier_current(void)
{
    return tiers[current_tier()];
}

/* Finds the kernel for dtype and op in a tier.  Returns NULL if `tier` is NULL
 * or has no such kernel.  This function runs for each operation, so it must not
 * execute CPUID: a virtual machine emulates that instruction, which is slow. */
static hvd__reduce_fn *kernel_of(const struct hvd__tier *tier,
                                 enum hvd_dtype dtype, enum hvd_op op)
{
    if (!tier || (unsigned)dtype >= HVD__NDTYPES || (unsigned)op >= HVD__NOPS)
        return NULL;
    if (op == HVD_AVERAGE)
        return dtype == HVD_BOOL ? NULL : tier->kernels[dtype][HVD_SUM].entry;
    return tier->kernels[dtype][op].entry;
}

hvd__reduce_fn *hvd__reduce_get_tier(enum hvd_dtype dtype, enum hvd_op op,
                                     enum hvd__simd tier)
{
    return kernel_of(hvd__tier_get(tier), dtype, op);
}

hvd__reduce_fn *hvd__reduce_get(enum hvd_dtype dtype, enum hvd_op op)
{
    return kernel_of(hvd__tier_current(), dtype, op);
}

/* Reduces block by block: several passes when there are more inputs than one
 * pass takes; with `stream`, into a cached buffer that is then streamed to
 * dst. */
static void run_blocks(const struct hvd__kernel *kernel, hvd__pass_fn *fn,
                       const struct hvd__pass *whole,
                       const struct hvd__tier *stream)
{
    _Alignas(64) char carry[BLOCK_ROOM], stage[BLOCK_ROOM];
    size_t block = BLOCK_BYTES / kernel->lane_bytes;
    struct hvd__pass pass = *whole;

    for (size_t n, at = 0; at < whole->count; at += n) {
        char *dst = (char *)whole->dst + at * kernel->elem_bytes;

        n = whole->count - at < 2 * block ? whole->count - at : block;
        pass.from = at;
        pass.count = n;
        pass.dst = stream ? stage : dst;
        for (int k = 0; k < whole->nsrc; k += pass.nsrc) {
            int left = whole->nsrc - k;

            pass.srcs = whole->srcs + k;
            pass.nsrc = left < HVD__PASS_SRCS ? left : HVD__PASS_SRCS;
            pass.carry_in = k ? carry : NULL;
            pass.carry_out = left > HVD__PASS_SRCS ? carry : NULL;
            fn(&pass);
        }
        if (stream)
            stream->copy_stream(dst, stage, n * kernel->elem_bytes);
    }
    if (stream)
        stream_fence();
}

void hvd__reduce_other(const struct hvd__choice *choice,
                       const struct hvd__kernel *kernel, struct hvd__pass *pass,
                       int stream)
{
    int scaled = pass->pre != 1.0 || pass->post != 1.0 || pass->divisor != 1;
    hvd__pass_fn *fn = scaled ? kernel->scaled : kernel->plain;

    if (!fn)
        fn = choice->portable->scaled;
    /* Multiplying by the inverse of a power of two is exact and faster. */
    if (scaled && choice->is_float && pass->post == 1.0 &&
        (pass->divisor & (pass->divisor - 1)) == 0) {
        pass->post = 1.0 / pass->divisor;
        pass->divisor = 1;
    }
    if (stream && pass->count * kernel->elem_bytes >= STREAM_MIN_BYTES)
        run_blocks(kernel, fn, pass, choice->tier);
    else if (pass->nsrc > HVD__PASS_SRCS)
        run_blocks(kernel, fn, pass, NULL);
    else
        fn(pass);
}

/* ---- Copies ----------------------------------------------------------- */

void hvd__copy(void *dst, const void *src, size_t bytes, int stream)
{
    if (!stream || bytes < STREAM_MIN_BYTES) {
        if (bytes)
            memcpy(dst, src, bytes);
        return;
    }
    tiers[current_tier()]->copy_stream(dst, src, bytes);
    stream_fence();
}

#ifdef __x86_64__
/* Returns whether the CPU has fast `rep movsb` (ERMS).  `known` is 2 until the
 * CPU was asked. */
static int has_string_moves(void)
{
    static _Atomic int known = 2;
    int has = atomic_load_explicit(&known, memory_order_relaxed);
    unsigned a, b = 0, c, d;

    if (has == 2) {
        has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 9 & 1);
        atomic_store(&known, has);
    }
    return has;
}

void hvd__copy_shared(void *dst, const void *src, size_t bytes)
{
    if (bytes >= STRING_MIN_BYTES && has_string_moves())
        __asm__ volatile("rep movsb"
                         : "+D"(dst), "+S"(src), "+c"(bytes)
                         :
                         : "memory");
    else
        hvd__copy(dst, src, bytes, 0);
}
#else
void hvd__copy_shared(void *dst, const void *src, size_t bytes)
{
    hvd__copy(dst, src, bytes, 0);
}
#endif
