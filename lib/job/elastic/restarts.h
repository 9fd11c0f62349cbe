/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether and when a rank that has failed is started again.
 *
 * Each rank has a number of restarts (--restart-failed).  The first comes after
 * about a second, each further one after twice the time, up to five minutes.
 * The times are varied by half, so that ranks that fail together do not come
 * back together.  Pure: no clock, and randomness from the caller.
 */
#ifndef HVD_JOB_RESTARTS_H
#define HVD_JOB_RESTARTS_H

#include <stdint.h>

enum { RESTARTS_MAX = 1000 }; /* of a rank */

struct restarts_rank {
    int used; /* restarts so far, with one that is due */
    uint64_t due_ns;
    int at; /* 1 + index in `due`; 0: none is due */
};

struct restarts {
    int size, most;              /* restarts of each rank */
    struct restarts_rank *ranks; /* [size] */
    int *due;                    /* [due_count] ranks: a heap by their due_ns */
    int due_count;
};

void restarts_init(struct restarts *r, int size, int most);
void restarts_fini(struct restarts *r);

/* Plans a restart of a rank that has just failed, at *due_ns, in place of one
 * that is due.  `random`: any number.  Returns 1, or 0 if the rank has no
 * restart left. */
int restarts_plan(struct restarts *r, int rank, uint64_t now_ns,
                  uint32_t random, uint64_t *due_ns);
/* Resets the restarts of a rank number that a new rank gets. */
void restarts_renew(struct restarts *r, int rank);
/* Takes the rank that is due first, if that is due by now_ns: returns it, or
 * -1. */
int restarts_take(struct restarts *r, uint64_t now_ns);
/* Takes a rank that is due at any time, or -1: the job ends. */
int restarts_cancel(struct restarts *r);
/* Returns when the first rank is due, or 0. */
uint64_t restarts_next(const struct restarts *r);

#endif
