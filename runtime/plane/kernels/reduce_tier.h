/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a SIMD tier (reduce_portable.c, reduce_avx2.c, reduce_avx512.c)
 * gives to reduce.c: one kernel per dtype and op, and a copy.
 *
 * A pass folds up to HVD__PASS_SRCS inputs in registers.  More inputs
 * take several passes over a block whose partial results stay in the
 * first-level cache, at accumulator width, so that nothing is rounded in
 * between.
 */
#ifndef HVD_PLANE_REDUCE_TIER_H
#define HVD_PLANE_REDUCE_TIER_H

#include "runtime/plane/kernels/cast.h"
#include "runtime/plane/kernels/reduce.h"

#include <stddef.h>

enum { HVD__NDTYPES = HVD_BFLOAT16 + 1, HVD__NOPS = HVD_BOR + 1 };
enum { HVD__PASS_SRCS = 8 };

struct hvd__pass {
    void *dst;               /* unused when carry_out is set */
    const void *const *srcs; /* read from element `from` on */
    int nsrc;                /* 1..HVD__PASS_SRCS */
    size_t from, count;      /* elements */
    const void *carry_in;    /* partial results of earlier passes, or NULL */
    void *carry_out;         /* where to leave them, or NULL: finish */
    double pre, post;
    int divisor;
};

typedef void hvd__pass_fn(const struct hvd__pass *pass);

struct hvd__kernel {
    hvd__reduce_fn *entry;         /* NULL: dtype and op have no reduction */
    hvd__pass_fn *plain;           /* factors and divisor are 1 */
    hvd__pass_fn *scaled;          /* NULL: use the portable tier's */
    size_t lanes;                  /* elements of a vector: the least count of a
                                      pass; portable tier: 1 */
    size_t elem_bytes, lane_bytes; /* in memory, in accumulators */
};

struct hvd__tier {
    const struct hvd__kernel (*kernels)[HVD__NOPS];
    /* Copies with non-temporal stores, which need a fence to be ordered. */
    void (*copy_stream)(void *dst, const void *src, size_t bytes);
    hvd__cast_fn *const (*casts)[HVD__NDTYPES]; /* [to][from]; see cast.h */
};

extern const struct hvd__kernel hvd__kernels_portable[HVD__NDTYPES][HVD__NOPS];
extern const struct hvd__tier hvd__tier_portable;
extern const struct hvd__tier hvd__tier_avx2;
extern const struct hvd__tier hvd__tier_avx512;

/* The kernels behind one entry function. */
struct hvd__choice {
    const struct hvd__tier *tier;
    const struct hvd__kernel *kernel;   /* the tier's */
    const struct hvd__kernel *portable; /* fallback */
    int is_float;
};

/* Returns the tier that reductions use, or a given tier (NULL if the CPU lacks
 * it). */
const struct hvd__tier *hvd__tier_current(void);
const struct hvd__tier *hvd__tier_get(enum hvd__simd tier);

/* Reduces with factors, a divisor, streaming, or more inputs than a pass takes:
 * the slow path of hvd__reduce_run. */
void hvd__reduce_other(const struct hvd__choice *choice,
                       const struct hvd__kernel *kernel, struct hvd__pass *pass,
                       int stream);

/* Runs one reduction; every kernel's entry calls it. */
static inline void hvd__reduce_run(const struct hvd__choice *choice, void *dst,
                                   const void *const *srcs, int nsrc,
                                   size_t count,
                                   const struct hvd__reduce_args *args)
{
    const struct hvd__kernel *kernel =
        count < choice->kernel->lanes ? choice->portable : choice->kernel;
    struct hvd__pass pass = {.dst = dst,
                             .srcs = srcs,
                             .nsrc = nsrc,
                             .count = count,
                             .pre = args->pre,
                             .post = args->post,
                             .divisor = args->divisor};

    if (count == 0)
        return;
    if (args->pre == 1.0 && args->post == 1.0 && args->divisor == 1 &&
        !args->stream && nsrc <= HVD__PASS_SRCS)
        kernel->plain(&pass);
    else
        hvd__reduce_other(choice, kernel, &pass, args->stream);
}

#endif
