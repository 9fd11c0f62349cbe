/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement: a collective at one size.
 *
 * Iterations are timed in blocks of at least a millisecond, so that the
 * clock does not dominate; a barrier precedes each block.  The time of a
 * block is that of its slowest rank; median, minimum and maximum are over
 * blocks, per operation.  tests/bench/mpi_allreduce.c measures its peers
 * with the same loop.
 */
#ifndef HVD_BENCH_MEASURE_H
#define HVD_BENCH_MEASURE_H

#include "cmd/hvd-bench/options.h"

struct bench_result {
    size_t bytes, count; /* as nccl-tests counts them */
    double median_us, min_us, max_us;
    double algbw, busbw; /* GB/s; 0 for barrier */
    int64_t iters;       /* timed */
};

/* Collective.  Returns 0, or a negative status with a line that says what
 * failed, a wrong result included (HVD_EPROTO). */
int bench_measure(const struct bench_options *o, size_t bytes,
                  struct bench_result *result, struct hb_error *err);

#endif
