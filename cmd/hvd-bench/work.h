/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an iteration of a measurement does: the tensors with their buffers,
 * the calls, and the check of their results.
 *
 * A result is checked whole, or by windows: a small part of the receive buffer
 * is spoiled before some iterations and compared after them; the part moves
 * from turn to turn.  That keeps checks cheap compared with what is measured.
 */
#ifndef HVD_BENCH_WORK_H
#define HVD_BENCH_WORK_H

#include "cmd/hvd-bench/bench_memory.h"
#include "cmd/hvd-bench/bench_options.h"
#include "cmd/hvd-bench/data.h"

/* The ranks that measure together. */
struct bench_set {
    int number; /* number of the process set; 0: the world */
    int rank;   /* the caller's rank in it */
    int size;
    int root; /* its first member's rank in the world */
};

/* What --device cuda has opened. */
struct bench_gpu {
    struct bench_cuda *cuda;
    struct bench_raw *raw; /* NULL without --raw */
};

struct bench_tensor {
    char name[24];
    size_t send_count, recv_count; /* elements */
    void *send, *recv;             /* send: in place, recv or within it */
    hvd_request *req;
    struct bench_data data;
};

/* The arguments of a grouped call; empty otherwise. */
struct bench_group {
    const void **sends;
    void **recvs;
    size_t *send_counts, *recv_caps, *ones;
};

struct bench_work {
    const struct bench_options *o;
    struct bench_set set;
    struct bench_gpu gpu;           /* all NULL: host memory */
    struct hvd_options plain, opts; /* plain: only the set; opts: also wire
                                       and stream */
    struct bench_memory memory;
    struct bench_tensor *tensors;
    int ntensors;
    struct bench_group group;
    size_t bytes, count; /* of one tensor; BENCH_RESNET50: of all */
    size_t total_bytes;  /* of all tensors */
};

/* Allocates and fills buffers of the given size; gpu NULL: in host memory.
 * Call bench_work_close even after a failure. */
int bench_work_open(struct bench_work *w, const struct bench_options *o,
                    const struct bench_set *set, const struct bench_gpu *gpu,
                    size_t bytes, struct hb_error *err);
void bench_work_close(struct bench_work *w);

/* Runs every tensor once; with --stream, returns once that is launched.
 * Returns a status of the library. */
int bench_work_iterate(struct bench_work *w);

/* Sets err to which collective failed on which rank; returns rc. */
int bench_work_failed(const struct bench_work *w, int rc, struct hb_error *err);

/* Compares all results: 0, or -HVD_EPROTO. */
int bench_work_verify(struct bench_work *w, struct hb_error *err);

/* Returns whether another iteration gives the same result: not if a reduction
 * replaces its input. */
int bench_work_repeats(const struct bench_work *w);

/* Zeroes all buffers: a reduction that replaces its input keeps zeros, while
 * other numbers would grow without bound. */
int bench_work_zero(struct bench_work *w, struct hb_error *err);

/* Spoils, or checks, the window of a turn (0, 1, ...), if iterations repeat.
 * Windows that are input, too, are not spoiled. */
int bench_work_spoil(struct bench_work *w, int64_t turn, struct hb_error *err);
int bench_work_check(struct bench_work *w, int64_t turn, struct hb_error *err);

#endif
