/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of which every rank knows the result without communication.
 *
 * Element i of rank r is a random small integer that depends on r and on
 * one of 256 classes of i.  The integers are such that every dtype holds
 * them and their reduction over all ranks exactly (integers may wrap), so
 * results are compared bit by bit.
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
    uint64_t seed; /* the same on every rank, another for each buffer */
};

/* Fills buf with what `rank` contributes. */
void bench_data_fill(const struct bench_data *d, int rank, void *buf,
                     size_t count);

/* Compares buf with what `rank` contributes, or with the reduction when
 * rank is BENCH_REDUCED.  Returns the index of the first wrong element, or
 * count; *got and *want are then its bits. */
enum { BENCH_REDUCED = -1 };
size_t bench_data_compare(const struct bench_data *d, int rank, const void *buf,
                          size_t count, uint64_t *got, uint64_t *want);

#endif
