/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on one host for tests: forks them over a segment and runs in each a
 * body, which makes planes there; without agent and engine.  The parent plays
 * the agent in one respect: it tells the others through the segment when a rank
 * is killed.
 */
#ifndef TESTS_UNIT_SHM_GROUP_H
#define TESTS_UNIT_SHM_GROUP_H

#include "runtime/plane/shm/arena.h"
#include "runtime/plane/shm/shm.h"
#include "tests/unit/forked.h"

#include <stdatomic.h>
#include <stdint.h>

enum { SHM_GROUP_MAX = HVD__SHM_LOCAL_MAX };

struct shm_group {
    int n;
    /* Runs in rank `me`; returns 0 if all is well. */
    int (*body)(struct shm_group *g, int me);
    void *arg;
    uint64_t arena_bytes;      /* of each rank */
    uint32_t exchange_bytes;   /* of all ranks, as in hvd__shm_config */
    const uint32_t *domains;   /* by rank; NULL: all in one domain */
    struct segment_head *head; /* world rank of rank i: 100 + i */
    _Atomic int *flags;        /* SHM_GROUP_MAX shared numbers */
    int wait_status[SHM_GROUP_MAX];
};

/* Returns the number of ranks that did not end with 0. */
int shm_group_run(struct shm_group *g);
/* The same with threads of this process, for ThreadSanitizer; no rank may
 * die. */
int shm_group_run_threads(struct shm_group *g);

/* In a rank: makes the plane of all ranks, or of members[] in a slot. */
struct hvd__plane *shm_group_plane(const struct shm_group *g, int me);
struct hvd__plane *shm_group_set(const struct shm_group *g, int slot,
                                 const int *members, int count, int me);
void shm_group_arena(const struct shm_group *g, int me, struct hvd__arena *a);

/* Waits until all ranks call it; does not use the plane. */
void shm_group_meet(struct shm_group *g);

#endif
