/* SPDX-License-Identifier: Apache-2.0 */
/* Where hvd-bench runs: its CPU, its process set, the plane in use. */
#ifndef HVD_BENCH_WORLD_H
#define HVD_BENCH_WORLD_H

#include "cmd/hvd-bench/bench_options.h"
#include "cmd/hvd-bench/work.h"

/* Sets err to "CALL: the library's last message"; returns rc. */
int bench_library_error(struct hb_error *err, const char *call, int rc);

/* Pins this process to the n-th CPU (modulo their number) that it may use. */
int bench_pin(int n, struct hb_error *err);

/* Sets in the environment what --plane asks for; call before hvd_init. */
int bench_ask_plane(const struct bench_options *o, struct hb_error *err);

/* Makes the process sets and finds the caller's, of size 0 if it is in none;
 * collective in the world. */
int bench_join_set(const struct bench_options *o, struct bench_set *set,
                   struct hb_error *err);

/* Opens the driver with this rank's device for --device cuda, and NCCL for
 * --raw; otherwise sets all to NULL.  Collective in the set.  Call
 * bench_gpu_close even after a failure. */
int bench_gpu_open(const struct bench_options *o, const struct bench_set *set,
                   struct bench_gpu *gpu, struct hb_error *err);
void bench_gpu_close(struct bench_gpu *gpu);

/* Finds the plane that the library uses for the set, the same on all its
 * ranks, and checks that it is the one asked for.  Collective in the set. */
int bench_find_plane(const struct bench_options *o, const struct bench_set *set,
                     enum bench_plane *plane, struct hb_error *err);

#endif
