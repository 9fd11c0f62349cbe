/* SPDX-License-Identifier: Apache-2.0 */
/* Where hvd-bench runs: its CPU, its process set, the plane in use. */
#ifndef HVD_BENCH_WORLD_H
#define HVD_BENCH_WORLD_H

#include "cmd/hvd-bench/options.h"
#include "cmd/hvd-bench/work.h"

/* "CALL: the library's last message". */
int bench_library_error(struct hb_error *err, const char *call, int rc);

/* To the n-th CPU that this process may use, from 0, counted round. */
int bench_pin(int n, struct hb_error *err);

/* What --plane asks for in the environment; before hvd_init. */
int bench_ask_plane(const struct bench_options *o, struct hb_error *err);

/* Collective in the world: makes the process sets and finds the caller's;
 * its size is 0 when it is in none. */
int bench_join_set(const struct bench_options *o, struct bench_set *set,
                   struct hb_error *err);

/* For --device cuda: the driver with this rank's device, and NCCL for --raw;
 * otherwise all NULL.  Collective in the set.  On failure, too, there may be
 * something to close. */
int bench_gpu_open(const struct bench_options *o, const struct bench_set *set,
                   struct bench_gpu *gpu, struct hb_error *err);
void bench_gpu_close(struct bench_gpu *gpu);

/* Collective in the set: the plane that the library uses for it, the same
 * on all of its ranks, which must be the one asked for. */
int bench_find_plane(const struct bench_options *o, const struct bench_set *set,
                     enum bench_plane *plane, struct hb_error *err);

#endif
