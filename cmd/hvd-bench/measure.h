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
 * With --raw every block has one of NCCL's own calls beside it, before it or
 * after it in turns, so that both see the same machine.
 */
#ifndef HVD_BENCH_MEASURE_H
#define HVD_BENCH_MEASURE_H

#include "cmd/hvd-bench/work.h"

struct bench_result {
    size_t bytes, count; /* as nccl-tests counts them */
    double median_us, min_us, max_us;
    double algbw, busbw; /* GB/s; 0 for barrier */
    int64_t iters;       /* timed */
    double raw_us;       /* --raw: median of NCCL's own calls, else 0 */
    double over_us;      /* median of the differences of neighbouring blocks */
    double of_raw;       /* bandwidth over NCCL's own */
};

/* Collective in the set; gpu NULL: in host memory.  Returns 0, or a negative
 * status with a line that says what failed, a wrong result included
 * (HVD_EPROTO). */
int bench_measure(const struct bench_options *o, const struct bench_set *set,
                  const struct bench_gpu *gpu, size_t bytes,
                  struct bench_result *result, struct hb_error *err);

/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
double bench_bus_factor(enum bench_what what, int ranks);

#endif
