/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peers of hvd-bench share: the loop of cmd/hvd-bench/measure.c for
 * floats, with the same statistics and JSON.  After a barrier and a warm-up of
 * two blocks, each block takes at least a millisecond, and its time is that of
 * its slowest rank.  Buffers begin on a page and are touched first.  Results
 * are checked before, after, and in a moving window after each block.
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
    void *context; /* argument of the functions below */
    void (*call)(struct peer *p);
    void (*barrier)(struct peer *p);
    void (*maximum)(struct peer *p, double *v, int count); /* stores the
                                                            * maximum over
                                                            * all ranks */
    /* set by peer_run */
    size_t send_count, recv_count; /* floats */
    float *send, *recv;            /* the same for PEER_BROADCAST */
    unsigned seed;
};

/* Returns the kind of that name, or PEER_KINDS if there is none. */
enum peer_kind peer_kind_of(const char *name);

/* Pins this process to the n-th CPU that it may use, modulo their number. */
void peer_pin(int n);

/* Measures for `seconds`; rank 0 prints a JSON object. */
void peer_run(struct peer *p, double seconds, size_t bytes);

/* Prints one line and exits with 1. */
void peer_die(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
