/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of one test: the members of a group, forked from it, which end
 * with it or by SIGALRM.  They use `must`, since Check knows only its own.
 */
#ifndef TESTS_UNIT_FORKED_H
#define TESTS_UNIT_FORKED_H

#include "runtime/plane/plane.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* A test that cannot go on. */
void need(int ok, const char *what);

/* Zeroed memory that members share; ends with munmap. */
void *forked_shared(size_t bytes);

/* member(arg, i), for i < n, gives exit codes; n ids to pids. */
void forked_start(int n, int limit_s, int (*member)(void *arg, int i),
                  void *arg, pid_t *pids);
/* Waits for all; how many did not end with 0. */
int forked_wait(int n, const pid_t *pids, int *wait_status);

/* In a member: carries an operation out; what progress returned at last. */
int plane_do(struct hvd__plane *plane, struct hvd__op *op);

#define must(cond)                                                             \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
            return 1;                                                          \
        }                                                                      \
    } while (0)

#endif
