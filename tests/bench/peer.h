/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peers of hvd-bench have in common: the loop of
 * cmd/hvd-bench/measure.c for floats, with the same statistics and the same
 * JSON.  Blocks of at least a millisecond after a barrier, warm-up of two
 * blocks, the time of a block is that of its slowest rank.  Buffers begin on
 * a page and are touched before; results are checked before, after, and by
 * a moving window after each block.
 *
 * A peer fills in `struct peer` and calls peer_run for each size.
 */
#ifndef HVD_TESTS_BENCH_PEER_H
#define HVD_TESTS_BENCH_PEER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum peer_kind {
    PEER_ALLREDUCE,
    PEER_BROADCAST, /* in place, from rank 0 */
    PEER_ALLGATHER,
    PEER_ALLTOALL,
    PEER_REDUCESCATTER,
    PEER_BARRIER,
    PEER_RESNET50, /* an allreduce per gradient, in the same buffers */
    PEER_KINDS
};

struct peer {
    int rank, size;
    enum peer_kind kind;
    void *context; /* of the functions below */
    void (*call)(struct peer *p);
    void (*barrier)(struct peer *p);
    void (*maximum)(struct peer *p, double *v, int count); /* over ranks */
    /* set by peer_run */
    size_t send_count, recv_count; /* floats */
    float *send, *recv;            /* the same for PEER_BROADCAST */
    unsigned seed;
};

/* PEER_KINDS for a word that is none. */
enum peer_kind peer_kind_of(const char *name);

/* To the n-th CPU that this process may use, counted round. */
void peer_pin(int n);

/* Measures for so many seconds; rank 0 prints an object. */
void peer_run(struct peer *p, double seconds, size_t bytes);

/* One line and exit 1. */
void peer_die(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
