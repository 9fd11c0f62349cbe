/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random inputs of collectives in device memory, and what results they must
 * give, by the formulas of hvd.h.  Every rank can tell what any rank gives.
 *
 * Integers and bool must be exact.  Floats, of which NCCL rounds the partial
 * results in an order of its own, must be within what those roundings can
 * amount to.
 */
#ifndef TESTS_PROG_NCCL_VALUES_H
#define TESTS_PROG_NCCL_VALUES_H

#include "runtime/hvd.h"

#include <stddef.h>
#include <stdint.h>

enum { VALUES_DTYPES = HVD_FLOAT8_E5M2 + 1, VALUES_RANKS = 16 };

/* What is reduced. */
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

/* 1: reductions of float8 are left out. */
extern int values_no_float8;

int values_is_float(enum hvd_dtype dtype);
/* Whether there is such a reduction in device memory. */
int values_has(enum hvd_dtype dtype, enum hvd_op op);

/* The elements [0, count) of a rank: any bits, as large as sums allow. */
void values_fill(const struct values *v, int rank, void *buf, size_t count);
/* Whether buf[0 .. count) holds the results from element `first` on; count,
 * or the first that is wrong, of which a line goes to stderr. */
size_t values_check(const struct values *v, const void *buf, size_t first,
                    size_t count);

/* Random numbers: of a seed and a place. */
uint64_t values_random(uint64_t seed, uint64_t a, uint64_t b);

#endif
