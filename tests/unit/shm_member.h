/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a shm_group for tests: its plane, its arena, buffers of each sort,
 * and operations whose results it checks.
 */
#ifndef TESTS_UNIT_SHM_MEMBER_H
#define TESTS_UNIT_SHM_MEMBER_H

#include "tests/unit/shm_group.h"

enum {
    SHM_TEST_ARENA_BYTES = 64 << 20,
    SHM_TEST_EXCHANGE_BYTES = 32 << 10,
    SHM_GUARD = 0x5a,
};

/* Where the buffers of an operation lie. */
enum shm_sort {
    SHM_PRIVATE,
    SHM_IN_ARENA,
    SHM_SEND_IN_ARENA,
    SHM_SOME_IN_ARENA,
    SHM_SORTS
};

struct shm_member {
    struct shm_group *g;
    int n, me;
    struct hvd__plane *plane;
    struct hvd__arena arena;
    enum shm_sort sort;
    uint64_t step; /* operations so far */
    struct hb_error err;
    struct hvd__op op;
};

void shm_member_open(struct shm_member *k, struct shm_group *g, int me);
void shm_member_close(struct shm_member *k);

/* Returns a buffer of the present sort, filled with SHM_GUARD, with 64 guard
 * bytes behind its end. */
unsigned char *shm_member_get(struct shm_member *k, size_t bytes, int is_send);
void shm_member_give(struct shm_member *k, void *p, int is_send);

/* Prepares the next operation, alike on all ranks. */
struct hvd__op *shm_member_op(struct shm_member *k, enum hvd__kind kind,
                              enum hvd_dtype dtype);
/* Carries out the prepared operation; returns 0 if it succeeds. */
int shm_member_do(struct shm_member *k);

/* Returns whether nothing was written behind the end. */
int shm_guarded(const unsigned char *buf, size_t bytes);
/* Returns whether `count` elements from `first` of a reduction are right. */
int shm_reduced(enum hvd_dtype dtype, enum hvd_op op, int n,
                const unsigned char *buf, size_t first, size_t count);

/* Writes what rank `from` sends to rank `to`, or compares with that. */
void shm_bytes_fill(unsigned char *buf, size_t bytes, int from, int to);
int shm_bytes_are(const unsigned char *buf, size_t bytes, int from, int to);

/* Run a whole operation; return 0 if the result is right. */
int shm_do_allreduce(struct shm_member *k, enum hvd_dtype dtype,
                     enum hvd_op rop, size_t count, int in_place);
int shm_do_broadcast(struct shm_member *k, size_t bytes, int root);
int shm_do_alltoall(struct shm_member *k, size_t count);
int shm_do_barrier(struct shm_member *k);

/* Has this process killed when it comes to the page of `at`. */
void shm_member_die_at(void *at);

#endif
