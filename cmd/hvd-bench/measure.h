/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement: a collective at one size.
 *
 * Iterations are timed in blocks of at least a millisecond, so that the
 * clock does not dominate; a barrier precedes each block, and a check of
 * results follows.  The time of a block is that of its slowest rank;
 * median, minimum and maximum are over blocks, per operation or burst.
 * The peers in tests/bench measure with the same loop.
 */
#ifndef HVD_BENCH_MEASURE_H
#define HVD_BENCH_MEASURE_H

#include "cmd/hvd-bench/work.h"

struct bench_result {
    size_t bytes, count; /* as nccl-tests counts them */
    double median_us, min_us, max_us;
    double algbw, busbw; /* GB/s; 0 for barrier */
    int64_t iters;       /* timed */
};

/* Collective in the set.  Returns 0, or a negative status with a line that
 * says what failed, a wrong result included (HVD_EPROTO). */
int bench_measure(const struct bench_options *o, const struct bench_set *set,
                  size_t bytes, struct bench_result *result,
                  struct hb_error *err);

/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
double bench_bus_factor(enum bench_what what, int ranks);

#endif
