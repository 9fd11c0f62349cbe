/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts of arrays between float32 or float64 and float16 or bfloat16: for
 * operations whose wire dtype is narrower than the caller's.
 *
 * Narrowing multiplies by the factor and rounds once, to nearest even, from
 * the wider type; what is too large becomes infinity, denormals are kept.
 * Widening is exact, and then multiplies.  Beside float32 the factor is
 * rounded to fp32 first; 1 changes nothing.  Every NaN becomes the same
 * quiet NaN, sign 0 and payload 0, as reductions make it (reduce.h).
 *
 * Every SIMD tier gives the same bits as the portable one.  dst and src do
 * not overlap.  Any count, any alignment to the element size.  Thread-safe.
 */
#ifndef HVD_PLANE_CAST_H
#define HVD_PLANE_CAST_H

#include "runtime/hvd.h"
#include "runtime/plane/kernels/reduce.h"

#include <stddef.h>

typedef void hvd__cast_fn(void *dst, const void *src, size_t count,
                          double factor);

/* Returns the cast between two dtypes at the tier that reductions use; NULL
 * unless one is wide and the other narrow. */
hvd__cast_fn *hvd__cast_get(enum hvd_dtype to, enum hvd_dtype from);
/* Returns hvd__cast_get's function of a given tier, for tests; also NULL if the
 * CPU lacks it. */
hvd__cast_fn *hvd__cast_get_tier(enum hvd_dtype to, enum hvd_dtype from,
                                 enum hvd__simd tier);

#endif
