/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hvd-bench. */
#ifndef HVD_BENCH_OPTIONS_H
#define HVD_BENCH_OPTIONS_H

#include "lib/base/error.h"
#include "runtime/hvd.h"

#include <stddef.h>
#include <stdint.h>

enum { BENCH_SIZES_MAX = 128, BENCH_ASYNC_MAX = 1024 };

enum bench_what {
    BENCH_ALLREDUCE,
    BENCH_BROADCAST,
    BENCH_ALLGATHER,
    BENCH_BARRIER,
    BENCH_IDLE
};

/* What moves the data: shared memory on one host, TCP when every host has
 * one rank, both otherwise. */
enum bench_plane {
    BENCH_PLANE_AUTO,
    BENCH_PLANE_SELF,
    BENCH_PLANE_SHM,
    BENCH_PLANE_TCP,
    BENCH_PLANE_HIER
};

struct bench_options {
    enum bench_what what;
    size_t sizes[BENCH_SIZES_MAX]; /* bytes */
    size_t nsizes;
    enum hvd_dtype dtype;
    enum hvd_op op;
    enum bench_plane plane; /* that must be the one in use */
    int64_t iters;          /* 0: as many as fit into measure_ms */
    int64_t warmup;         /* -1: twice a block */
    int64_t measure_ms;
    int64_t idle_ms;
    int async; /* operations in flight; 0: blocking calls */
    int in_place, json, check, pin;
    int help, version;
};

/* Fills o from a NULL-terminated argv.  Returns 0, or -HVD_EINVAL with one
 * line for the user. */
int bench_options_parse(struct bench_options *o, char *const *argv,
                        struct hb_error *err);

const char *bench_what_name(enum bench_what what);
const char *bench_plane_name(enum bench_plane plane);
extern const char bench_help[];

#endif
