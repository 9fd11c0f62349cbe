/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the property test: a script of random operations made from a
 * seed (prop_script.c), what each rank puts in and what must come out
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
    THREADS, /* as NAMED, each from a thread of its own */
    MODES
};

/* Some ranks, in ascending order, and their process set. */
struct team {
    int id, n;
    int rank[RANKS_MAX];
};

struct step {
    uint64_t id; /* unique */
    enum kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op;
    int members;               /* of a group; 0: none */
    size_t count[MEMBERS_MAX]; /* of elements, the most of them, or rows */
    size_t row;
    int team;  /* which one */
    int root;  /* place in the team */
    int rough; /* any reals, compared with a tolerance */
    struct hvd_options opts;
    int in_place, own_memory;
};

struct batch {
    enum mode mode;
    int steps;
    struct step step[BATCH_MAX];
};

/* Returns a random number made of three numbers, alike on all ranks. */
static inline uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u +
                 c * 0x94d049bb133111ebu;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- Script ----------------------------------------------------------- */

/* Makes team t of a world of n ranks; team 0 is the world. */
void script_team(uint64_t seed, int t, int n, struct team *team);
/* Makes the i-th batch.  for_joining: only of operations in the world, which
 * are possible after some ranks have joined. */
void script_batch(uint64_t seed, uint64_t i, const struct team *teams,
                  int for_joining, struct batch *b);

/* ---- Values ----------------------------------------------------------- */

/* A reduction: who takes part, and the divisor of an average. */
struct reduction {
    const struct step *step;
    int member;
    const struct team *team; /* those that contribute */
    const struct team *all;  /* with those that have joined, which give
                              * Adasum zeros */
    int divisor;
};

void fill_input(const struct step *s, int member, int rank, void *buf,
                size_t count);
/* Returns the place of a rank in the team, or -1. */
int place_in(const struct team *team, int rank);

/* Compares buf with the elements [first, first + count) of the result.  Returns
 * -1 if all are right, or the first index that is wrong. */
int64_t check_result(const struct reduction *r, const void *buf, size_t first,
                     size_t count);

/* Fill and check bytes that are only moved: a function of the rank and of the
 * place in what it sends. */
void fill_bytes(const struct step *s, int member, int rank, void *buf,
                size_t bytes);
int64_t check_bytes(const struct step *s, int member, int rank, const void *buf,
                    size_t first, size_t bytes);

/* gather_count returns the elements that a rank gives to an allgather;
 * send_count those that `from` sends to `to` in an alltoall. */
size_t gather_count(const struct step *s, int member, int rank);
size_t send_count(const struct step *s, int from, int to);

#endif
