/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena: the part of a segment that hvd_alloc hands out on this rank, or
 * ordinary memory where ranks share none.
 *
 * Blocks are whole pages of the system.  Those in the segment are kept in an
 * array sorted by address; a new one goes into the first gap that holds it.
 * The memory of a freed block goes back to the system, and is zero when it is
 * handed out again.  When the world is made anew (hvd_sync), blocks stay valid
 * as ordinary memory: hvd__arena_detach.
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

struct hvd__arena_list {
    struct hvd__arena_block *blocks;
    size_t count, cap;
};

struct hvd__arena {
    unsigned char *base; /* NULL: none; blocks are mapped one by one */
    size_t bytes;
    size_t page;                   /* of the system; a multiple of 4096 */
    pthread_mutex_t lock;          /* protects what follows */
    struct hvd__arena_list inside; /* from base on, by address */
    struct hvd__arena_list apart;  /* mapped one by one */
};

/* clang-format off */
#define HVD__ARENA_INIT { .page = 4096, .lock = PTHREAD_MUTEX_INITIALIZER }
/* clang-format on */

/* Manages `base`: zeroed memory, aligned to 4096, owned by the caller; NULL:
 * none.  `a` must hold HVD__ARENA_INIT or have been through fini or detach;
 * detached blocks stay. */
void hvd__arena_init(struct hvd__arena *a, void *base, size_t bytes);
/* Forgets all blocks; unmaps those that were mapped one by one. */
void hvd__arena_fini(struct hvd__arena *a);
/* Replaces the memory of all blocks in `base` by ordinary memory with the same
 * contents at the same addresses.  The caller then unmaps the rest of `base`:
 * a->apart tells what to leave.  Returns 0, or -HVD_ENOMEM: some blocks may be
 * replaced already. */
int hvd__arena_detach(struct hvd__arena *a);

/* Allocates zeroed memory aligned to 4096.  Returns 0, -HVD_EINVAL (bytes is
 * 0), or -HVD_ENOMEM (no gap is large enough, or the system has none). */
int hvd__arena_alloc(struct hvd__arena *a, size_t bytes, void **p);
/* Frees a block.  Returns 0, or -HVD_EINVAL if p is no block. p may be NULL. */
int hvd__arena_free(struct hvd__arena *a, void *p);

/* Computes the arena size of each local rank: HVD_ALLOC_BYTES, by default the
 * host's memory divided by the ranks, or 0 under an address-space limit
 * (ulimit -v).  A multiple of 4096.  Returns 0, or -HVD_EINVAL with err set. */
struct hb_error;
int hvd__arena_size(int local_size, uint64_t *bytes, struct hb_error *err);

#endif
