/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bursts of operations in which one rank does not do what the others do.
 * differ_script.c tells from a seed what each rank issues and what must come of
 * it; differ.c has the ranks that carry it out.
 */
#ifndef TESTS_SYSTEM_DIFFER_H
#define TESTS_SYSTEM_DIFFER_H

#include "tests/system/prog/prop.h"

enum { ENTRIES_MAX = 14, GROUP_MAX = 3, TEAMS = 3, NAME_BYTES = 24 };

/* How the odd rank differs. */
enum oddity {
    ODD_NOT,
    ODD_COUNT,
    ODD_DTYPE,
    ODD_OP,
    ODD_ROOT,
    ODD_KIND,
    ODD_SCALE,
    ODD_SHAPE,
    ODD_ORDER,   /* two of its operations are issued in the other order */
    ODD_MISSING, /* one is issued after all others */
    ODD_EXTRA,   /* an additional one, which the others issue last */
    ODDITIES
};

/* The shape that a rank gives with each tensor. */
enum shape { NO_SHAPE, FLAT, COLUMN, SHAPES }; /* none, [count], [count, 1] */

/* An operation as one rank issues it. */
struct entry {
    uint64_t id; /* seed of its data */
    enum kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op;
    int team, root; /* root: place in the team */
    size_t count;   /* of elements, before each member's and rank's own are
                     * added */
    int members;    /* of a group; 0: none */
    double postscale;
    enum shape shape;
    int name; /* -1: none */
    int late; /* issued when the earlier ones are done */
};

struct list {
    int n;
    struct entry entry[ENTRIES_MAX];
};

struct burst {
    uint64_t seed, number;
    enum oddity oddity;
    int odd_rank;
    int can_block; /* all of one team, without names */
    struct team team[TEAMS];
    struct list list[RANKS_MAX]; /* what each rank issues */
};

/* Makes burst `number` of the seed.  `team` holds the teams, the world
 * first. */
void differ_script(struct burst *b, uint64_t seed, uint64_t number,
                   const struct team *team);

/* Stores the operations of the team's members, by place, that match the at-th
 * of `rank`, which is one of them. */
void differ_match(const struct burst *b, int rank, int at,
                  const struct entry *all[RANKS_MAX]);

/* Returns whether the operations of two places in `all` conflict.  If so,
 * stores the first such pair of places, and what the error has to say of each
 * ("" where that is not known). */
struct dispute {
    int place[2];
    char says[2][64];
};
int differ_dispute(const struct team *team, const struct entry *const *all,
                   struct dispute *d);

/* differ_count returns the elements that a rank sends in a group's member,
 * or in the only tensor; differ_split returns those for place `to` in an
 * alltoall. */
size_t differ_count(const struct entry *e, int member, int rank);
size_t differ_split(const struct entry *e, int rank, int to);
/* Returns element i of what a rank gives. */
double differ_value(const struct entry *e, int member, int rank, size_t i);

#endif
