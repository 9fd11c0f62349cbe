/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction kernels: N inputs to one output in one pass.
 *
 * dst[i] = out(op over k = 0..nsrc-1, ascending, of in(srcs[k][i]))
 * with in(x) = x * pre and out(y) = y * post / divisor, each applied only
 * when it is not 1.
 *
 * Floats accumulate in fp32 (fp16, bf16 and fp32; the factors are rounded
 * to fp32 first) or in fp64; fp16 and bf16 results are rounded once, to
 * nearest even, and overflow to infinity.  A NaN in any input gives NaN,
 * with min and max too, and every NaN result is the same quiet NaN, sign 0
 * and payload 0.  Of equal operands of min and max the first one stays.
 *
 * Integers wrap as C's unsigned arithmetic does.  A factor goes through
 * double, truncates toward zero and saturates (NaN gives 0); `in` gives an
 * integer again.  A divisor without post is an exact integer division that
 * truncates toward zero; with post, double(y) * post / divisor truncates
 * once.
 *
 * bool: sum, max and bor are or; min, product and band are and; results
 * are 0 or 1; factors and divisor are ignored.
 *
 * Every tier gives the same bits as the portable one.  The order of
 * operands is fixed, so ranks that reduce the same inputs get the same
 * bits.
 *
 * dst may be equal to any of srcs, and must not overlap any otherwise;
 * srcs may repeat.  nsrc is at least 1.  Any alignment to the element
 * size; any count.  Thread-safe.
 */
#ifndef HVD_PLANE_REDUCE_H
#define HVD_PLANE_REDUCE_H

#include "runtime/hvd.h"

#include <stddef.h>

struct hvd__reduce_args {
    double pre, post; /* 1.0: none */
    int divisor;      /* >= 1; 1: none; the rank count for HVD_AVERAGE */
    int stream;       /* store past the cache: dst is not read soon */
};

typedef void hvd__reduce_fn(void *dst, const void *const *srcs, int nsrc,
                            size_t count, const struct hvd__reduce_args *args);

enum hvd__simd { HVD__SIMD_PORTABLE, HVD__SIMD_AVX2, HVD__SIMD_AVX512 };

/* Returns the kernel for a dtype and op (AVERAGE is SUM with a divisor).  Its
 * tier is the CPU's best, or that of HVD_SIMD=portable|avx2|avx512 if the CPU
 * has it (read once; other values are ignored).  NULL if undefined: band and
 * bor of floats, average of bool, invalid values. */
hvd__reduce_fn *hvd__reduce_get(enum hvd_dtype dtype, enum hvd_op op);
/* Returns hvd__reduce_get's function of a given tier, for tests; also NULL if
 * the CPU lacks it. */
hvd__reduce_fn *hvd__reduce_get_tier(enum hvd_dtype dtype, enum hvd_op op,
                                     enum hvd__simd tier);

/* Copies like memcpy; with `stream`, large copies bypass the cache. */
void hvd__copy(void *dst, const void *src, size_t bytes, int stream);

/* Copies like memcpy, to memory that another core has read since this core
 * wrote it.  Ordinary stores first fetch each line; a string move claims whole
 * lines, which is several times as fast. */
void hvd__copy_shared(void *dst, const void *src, size_t bytes);

#endif
