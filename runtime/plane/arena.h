/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena: the part of a segment that hvd_alloc hands out on this rank, or
 * ordinary memory where ranks share none.
 *
 * Blocks are whole pages of the system, kept in an array sorted by address; a
 * new one goes into the first gap that holds it.  The memory of a freed block
 * goes back to the system, and is zero when it is handed out again.
 *
 * Thread-safe, except init and fini.
 */
#ifndef HVD_PLANE_ARENA_H
#define HVD_PLANE_ARENA_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct hvd__arena_block {
    unsigned char *at;
    size_t bytes;
};

struct hvd__arena {
    unsigned char *base; /* NULL: none; blocks are mapped one by one */
    size_t bytes;
    size_t page;                     /* of the system; a multiple of 4096 */
    pthread_mutex_t lock;            /* protects what follows */
    struct hvd__arena_block *blocks; /* by address, if there is a base */
    size_t count, cap;
};

/* clang-format off */
#define HVD__ARENA_INIT { .page = 4096, .lock = PTHREAD_MUTEX_INITIALIZER }
/* clang-format on */

/* Of memory that is zero, aligned to 4096 and stays the caller's; base may
 * be NULL.  `a` is as HVD__ARENA_INIT or after fini. */
void hvd__arena_init(struct hvd__arena *a, void *base, size_t bytes);
/* Forgets all blocks; unmaps those that were mapped one by one. */
void hvd__arena_fini(struct hvd__arena *a);

/* Zeroed memory aligned to 4096: 0, -HVD_EINVAL (bytes is 0), or -HVD_ENOMEM
 * (no gap is large enough, or the system has none). */
int hvd__arena_alloc(struct hvd__arena *a, size_t bytes, void **p);
/* 0, or -HVD_EINVAL for what is no block.  p may be NULL. */
int hvd__arena_free(struct hvd__arena *a, void *p);

/* How much arena each of a host's ranks gets: HVD_ALLOC_BYTES, by default
 * the host's memory divided by the ranks, or nothing under a limit of the
 * address space (ulimit -v).  A multiple of 4096; 0: none.  0, or -HVD_EINVAL
 * with err set. */
struct hb_error;
int hvd__arena_size(int local_size, uint64_t *bytes, struct hb_error *err);

#endif
