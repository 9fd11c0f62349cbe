/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's part in the operations of a property test: its buffers, with
 * guards around what is written, and the calls (prop_job.c).
 */
#ifndef TESTS_SYSTEM_PROP_JOB_H
#define TESTS_SYSTEM_PROP_JOB_H

#include "tests/system/prog/prop.h"

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

/* One step as this rank carries it out. */
struct job {
    const struct step *step;
    int place; /* in the step's team; -1: not in it */
    unsigned char *memory;
    unsigned char *send[MEMBERS_MAX], *recv[MEMBERS_MAX];
    size_t send_count[MEMBERS_MAX], recv_count[MEMBERS_MAX];
    size_t recv_cap[MEMBERS_MAX]; /* sometimes more than needed */
    size_t counts[MEMBERS_MAX * RANKS_MAX], splits[RANKS_MAX];
    hvd_request *req;
    char name[16];
};

struct run {
    uint64_t seed, batch;
    struct team team[SETS_MAX];
    struct team live; /* the ranks of the world that have not joined */
    int me, joining;
    long done;
};

/* wrong ends the process after a line that tells what is wrong, and where; must
 * does so unless rc is 0. */
void wrong(const struct run *run, const struct job *job, const char *what,
           int64_t at) __attribute__((noreturn));
void must(const struct run *run, const struct job *job, const char *what,
          int rc);

/* givers returns the ranks that contribute to a step. */
const struct team *givers(const struct run *run, const struct step *s);
int root_of(const struct run *run, const struct step *s);
int members_of(const struct step *s);
int is_in_place(const struct step *s);
/* Returns the row of a reducescatter at which the share of a place begins. */
size_t share_first(size_t rows, size_t n, size_t place);

void prepare(const struct run *run, const struct step *s, struct job *job);
void give_back(const struct run *run, struct job *job);
void issue(const struct run *run, struct job *job, enum mode mode);
void await(const struct run *run, struct job *job);

#endif
