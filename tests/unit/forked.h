/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of a test: members of a group, forked from it, which end with it or
 * by SIGALRM.  They use `must`, as Check works in its own processes only.
 */
#ifndef TESTS_UNIT_FORKED_H
#define TESTS_UNIT_FORKED_H

#include "runtime/plane/plane.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* Ends the process unless ok: the test cannot go on. */
void need(int ok, const char *what);

/* Returns zeroed memory shared by the members; free it with munmap. */
void *forked_shared(size_t bytes);

/* Forks n processes; process i exits with member(arg, i).  Fills pids. */
void forked_start(int n, int limit_s, int (*member)(void *arg, int i),
                  void *arg, pid_t *pids);
/* Waits for all; returns how many did not end with 0. */
int forked_wait(int n, const pid_t *pids, int *wait_status);

/* In a member: carries out an operation; returns progress's last result. */
int plane_do(struct hvd__plane *plane, struct hvd__op *op);

#define must(cond)                                                             \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
            return 1;                                                          \
        }                                                                      \
    } while (0)

#endif
