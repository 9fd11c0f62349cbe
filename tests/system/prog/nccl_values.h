/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random inputs of collectives in device memory, and the results that they must
 * give, by the formulas of hvd.h.  Every rank can compute what any rank gives.
 *
 * Results of integers and bool must be exact.  Those of floats may differ by as
 * much as roundings can cause, because NCCL rounds partial results in an order
 * of its own.
 */
#ifndef TESTS_PROG_NCCL_VALUES_H
#define TESTS_PROG_NCCL_VALUES_H

#include "runtime/hvd.h"

#include <stddef.h>
#include <stdint.h>

enum { VALUES_DTYPES = HVD_FLOAT8_E5M2 + 1, VALUES_RANKS = 16 };

/* A reduction. */
struct values {
    uint64_t seed; /* the same on all ranks */
    enum hvd_dtype dtype;
    enum hvd_op op;
    double pre, post;
    int wire;         /* enum hvd_wire */
    const int *ranks; /* [n], in their order */
    int n;
    int divisor; /* of HVD_AVERAGE */
};

/* 1: leave out reductions of float8. */
extern int values_no_float8;

int values_is_float(enum hvd_dtype dtype);
/* Returns whether device memory has this reduction. */
int values_has(enum hvd_dtype dtype, enum hvd_op op);

/* Fills buf with elements [0, count) of a rank: any bits, as large as sums
 * allow. */
void values_fill(const struct values *v, int rank, void *buf, size_t count);
/* Compares buf[0 .. count) with the results from element `first` on.  Returns
 * count, or the first index that is wrong, after a line on stderr. */
size_t values_check(const struct values *v, const void *buf, size_t first,
                    size_t count);

/* Returns the random number of a seed and a place (a, b). */
uint64_t values_random(uint64_t seed, uint64_t a, uint64_t b);

#endif
