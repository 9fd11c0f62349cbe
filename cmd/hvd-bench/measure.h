/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement: a collective at one size.
 *
 * Iterations are timed in blocks of at least a millisecond, so that the
 * clock does not dominate; a barrier precedes each block, and a check of
 * results follows.  The time of a block is that of its slowest rank;
 * median, minimum and maximum are over blocks, per operation or burst.
 * The peers in tests/bench measure with the same loop.
 *
 * With --raw every block is paired with a block of NCCL's own calls,
 * alternately before and after it, so that both see the same conditions.
 */
#ifndef HVD_BENCH_MEASURE_H
#define HVD_BENCH_MEASURE_H

#include "cmd/hvd-bench/work.h"

struct bench_result {
    size_t bytes, count; /* as nccl-tests counts them */
    double median_us, min_us, max_us;
    double algbw, busbw; /* GB/s; 0 for barrier */
    int64_t iters;       /* timed iterations */
    double raw_us;       /* --raw: median of NCCL's own calls, else 0 */
    double over_us;      /* median of the differences of neighbouring blocks */
    double of_raw;       /* bandwidth relative to NCCL's own calls */
};

/* Measures one size; collective in the set. gpu NULL: host memory.  Returns 0,
 * or negative with err set; -HVD_EPROTO for a wrong result. */
int bench_measure(const struct bench_options *o, const struct bench_set *set,
                  const struct bench_gpu *gpu, size_t bytes,
                  struct bench_result *result, struct hb_error *err);

/* Returns bus bandwidth / algorithm bandwidth, as nccl-tests defines them. */
double bench_bus_factor(enum bench_what what, int ranks);

#endif
