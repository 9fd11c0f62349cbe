/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test data whose reduction every rank knows without communication.
 *
 * Element i of rank r is a pseudo-random small integer that depends on r and
 * on one of 256 classes of i.  Every dtype holds these integers, and their
 * reduction over all ranks, exactly (integers may wrap), so results are
 * compared bit by bit.  For Adasum all ranks have the same vector, which is
 * then the result.
 */
#ifndef HVD_BENCH_DATA_H
#define HVD_BENCH_DATA_H

#include "runtime/hvd.h"

#include <stddef.h>
#include <stdint.h>

struct bench_data {
    enum hvd_dtype dtype;
    enum hvd_op op;
    int size;      /* ranks */
    uint64_t seed; /* the same on every rank, different for each buffer */
};

/* A wrong element. */
struct bench_wrong {
    size_t at;          /* index in the buffer */
    uint64_t got, want; /* bits */
};

/* Fills buf with what `rank` contributes. */
void bench_data_fill(const struct bench_data *d, int rank, void *buf,
                     size_t count);

/* Checks that buf holds the elements from `first` on of what `rank`
 * contributes, or of the reduction if rank is BENCH_REDUCED: 1, or 0 with
 * *wrong set. */
enum { BENCH_REDUCED = -1 };
int bench_data_equal(const struct bench_data *d, int rank, size_t first,
                     const void *buf, size_t count, struct bench_wrong *wrong);

#endif
