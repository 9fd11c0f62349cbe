/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An iteration without libhvd, for --raw: the same collective on the same
 * buffers by NCCL's own calls, as a program would make them.  NCCL is opened
 * at run time: libnccl.so.2, or what HVD_NCCL_LIBRARY names.
 */
#ifndef HVD_BENCH_RAW_H
#define HVD_BENCH_RAW_H

#include "cmd/hvd-bench/work.h"

/* Checks whether NCCL supports what the options ask for: 0, or -HVD_EINVAL. */
int bench_raw_check(const struct bench_options *o, struct hb_error *err);

/* Makes a communicator of the set's ranks; collective in the set.  Its id is
 * sent by hvd_broadcast.  NULL with err set on failure. */
struct bench_raw *bench_raw_open(const struct bench_set *set,
                                 struct hb_error *err);
void bench_raw_close(struct bench_raw *r);

/* Runs every tensor of w once on the stream; returns once that is launched.
 * 0, or -HVD_ESYSTEM. */
int bench_raw_iterate(struct bench_raw *r, const struct bench_work *w,
                      void *stream, struct hb_error *err);

#endif
