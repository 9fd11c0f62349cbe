/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's part in the operations of a property test: its buffers, with
 * guards around what is written, and the calls (prop_job.c).
 */
#ifndef TESTS_SYSTEM_PROP_JOB_H
#define TESTS_SYSTEM_PROP_JOB_H

#include "tests/system/prog/prop.h"

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

/* One step in this rank's hands. */
struct job {
    const struct step *step;
    int place; /* in the step's team; -1: not in it */
    unsigned char *memory;
    unsigned char *send[MEMBERS_MAX], *recv[MEMBERS_MAX];
    size_t send_count[MEMBERS_MAX], recv_count[MEMBERS_MAX];
    size_t recv_cap[MEMBERS_MAX]; /* and some room more than needed */
    size_t counts[MEMBERS_MAX * RANKS_MAX], splits[RANKS_MAX];
    hvd_request *req;
    char name[16];
};

struct run {
    uint64_t seed, batch;
    struct team team[SETS_MAX];
    struct team live; /* of the world, those that have not joined */
    int me, joining;
    long done;
};

/* Ends the process with a line that tells what is wrong, and where. */
void wrong(const struct run *run, const struct job *job, const char *what,
           int64_t at) __attribute__((noreturn));
void must(const struct run *run, const struct job *job, const char *what,
          int rc);

/* Who has something to give. */
const struct team *givers(const struct run *run, const struct step *s);
int root_of(const struct run *run, const struct step *s);
int members_of(const struct step *s);
int is_in_place(const struct step *s);
/* A team's share of a reducescatter's rows begins there. */
size_t share_first(size_t rows, size_t n, size_t place);

void prepare(const struct run *run, const struct step *s, struct job *job);
void give_back(const struct run *run, struct job *job);
void issue(const struct run *run, struct job *job, enum mode mode);
void await(const struct run *run, struct job *job);

#endif
