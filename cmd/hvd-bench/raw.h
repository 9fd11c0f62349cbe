/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an iteration is without libhvd, for --raw: the same collective on the
 * same buffers by calls of NCCL itself, as a program would make them.  NCCL
 * is opened at run time: libnccl.so.2, or what HVD_NCCL_LIBRARY names.
 */
#ifndef HVD_BENCH_RAW_H
#define HVD_BENCH_RAW_H

#include "cmd/hvd-bench/work.h"

/* Whether NCCL has what the options ask for: 0, or -HVD_EINVAL. */
int bench_raw_check(const struct bench_options *o, struct hb_error *err);

/* Collective in the set: a communicator of its ranks, whose id travels by
 * hvd_broadcast.  NULL, with one line. */
struct bench_raw *bench_raw_open(const struct bench_set *set,
                                 struct hb_error *err);
void bench_raw_close(struct bench_raw *r);

/* Every tensor of w once, on the stream; returns when that was launched.
 * 0, or -HVD_ESYSTEM. */
int bench_raw_iterate(struct bench_raw *r, const struct bench_work *w,
                      void *stream, struct hb_error *err);

#endif
