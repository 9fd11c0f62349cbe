/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The property test's parts: a script of random operations made of a seed
 * (prop_script.c), what each rank puts in and what has to come out
 * (prop_values.c), and the ranks that carry it out (prop_job.c, prop.c).
 *
 * Everything is a function of the seed and a rank, so that each rank knows
 * what all others do.
 */
#ifndef TESTS_SYSTEM_PROP_H
#define TESTS_SYSTEM_PROP_H

#include "runtime/hvd.h"

#include <stddef.h>
#include <stdint.h>

enum { RANKS_MAX = 16, SETS_MAX = 5, MEMBERS_MAX = 4, BATCH_MAX = 6 };

enum kind {
    ALLREDUCE,
    BROADCAST,
    ALLGATHER,
    ALLTOALL,
    REDUCESCATTER,
    BARRIER,
    KINDS
};

/* How the operations of a batch are issued. */
enum mode {
    BLOCKING,
    ASYNC,   /* in order, without names */
    NAMED,   /* each rank in an order of its own */
    THREADS, /* the same from a thread for each */
    MODES
};

/* Some ranks, in ascending order, and their process set. */
struct team {
    int id, n;
    int rank[RANKS_MAX];
};

struct step {
    uint64_t id; /* of this one alone */
    enum kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op;
    int members;               /* of a group; 0: none */
    size_t count[MEMBERS_MAX]; /* of elements, or at most so many; of rows */
    size_t row;
    int team;  /* which one */
    int root;  /* place in the team */
    int rough; /* any reals: compared within what rounding can do */
    struct hvd_options opts;
    int in_place, own_memory;
};

struct batch {
    enum mode mode;
    int steps;
    struct step step[BATCH_MAX];
};

/* A random number made of three; the same everywhere. */
static inline uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u +
                 c * 0x94d049bb133111ebu;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- Script ----------------------------------------------------------- */

/* The ranks of team t; 0 is the world of n. */
void script_team(uint64_t seed, int t, int n, struct team *team);
/* The i-th batch; for_joining: of what can be done while others have joined,
 * in the world. */
void script_batch(uint64_t seed, uint64_t i, const struct team *teams,
                  int for_joining, struct batch *b);

/* ---- Values ----------------------------------------------------------- */

/* A reduction as it concerns one rank: who takes part, by what an average
 * divides. */
struct reduction {
    const struct step *step;
    int member;
    const struct team *team; /* those that contribute */
    const struct team *all;  /* and those that have joined: zeros of Adasum */
    int divisor;
};

void fill_input(const struct step *s, int member, int rank, void *buf,
                size_t count);
/* Its place, or -1. */
int place_in(const struct team *team, int rank);

/* Whether buf holds the elements [first, first + count) of the result; -1,
 * or the first that is wrong. */
int64_t check_result(const struct reduction *r, const void *buf, size_t first,
                     size_t count);

/* Bytes that are to be moved only: of a rank and a place in what it sends. */
void fill_bytes(const struct step *s, int member, int rank, void *buf,
                size_t bytes);
int64_t check_bytes(const struct step *s, int member, int rank, const void *buf,
                    size_t first, size_t bytes);

/* Elements that a rank gives to an allgather; that it sends to another. */
size_t gather_count(const struct step *s, int member, int rank);
size_t send_count(const struct step *s, int from, int to);

#endif
