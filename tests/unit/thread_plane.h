/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plane whose ranks are threads of one process.  An operation is carried out
 * between barriers, so progress blocks after returning 0 once.  The plane does
 * direct allreduces, allgathers and alltoalls, compares signatures like other
 * planes, and records the operations.
 */
#ifndef TESTS_UNIT_THREAD_PLANE_H
#define TESTS_UNIT_THREAD_PLANE_H

#include "runtime/plane/plane.h"

#include <pthread.h>

enum { THREAD_RANKS_MAX = 8, THREAD_OPS_MAX = 16 };

struct thread_group {
    pthread_barrier_t barrier;
    int n;
    struct hvd__op *op[THREAD_RANKS_MAX];
};

struct thread_plane {
    struct hvd__plane plane;
    struct thread_group *group;
    int me, progressed;
    int fail_at; /* operation that fails with HVD_EPEER; -1: none */
    int begun;   /* number of operations; the first were: */
    uint64_t signature[THREAD_OPS_MAX], first_signature[THREAD_OPS_MAX];
    uint32_t entries[THREAD_OPS_MAX];
    enum hvd__kind kind[THREAD_OPS_MAX];
};

void thread_group_init(struct thread_group *g, int n);
void thread_group_fini(struct thread_group *g);
void thread_plane_init(struct thread_plane *p, struct thread_group *g, int me);

#endif
