/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the numbers that ranks send each other, and computes from them how
 * data moves: headers of operations, and the sizes of ragged data.  The numbers
 * come from other processes, so they may have any value.  Pure, and without
 * MPI.
 */
#ifndef HVD_PLUGINS_MPI_PEER_COUNTS_H
#define HVD_PLUGINS_MPI_PEER_COUNTS_H

#include <stddef.h>
#include <stdint.h>

/* ---- Headers ------------------------------------------------------------- */

/* A header's words. */
enum mp_word { MP_SIGNATURE, MP_FIRST, MP_LEAST, MP_FLAGS, MP_WORDS };

/* Flags that are true of all ranks: a merged header has those that every rank
 * has set. */
enum mp_flag {
    MP_SAME = 1u << 0,       /* equal signatures */
    MP_SAME_FIRST = 1u << 1, /* equal first signatures */
    MP_SOLO = 1u << 2,       /* collectives may block */
    MP_IN_PLACE = 1u << 3,   /* sendbuf is recvbuf */
    MP_APART = 1u << 4,      /* sendbuf is not recvbuf */
};

/* Merges a peer's header, with its own signatures, into this rank's. */
void mp_merge_header(uint64_t head[MP_WORDS], const uint64_t in[MP_WORDS]);

/* ---- Sizes --------------------------------------------------------------- */

/* A rank's card in an allgather: the elements that it has, and has room for. */
enum mp_gather_card { MP_HAS, MP_ROOM, MP_GATHER_WORDS };

/* The card of an alltoall, of which all ranks know the maximum. */
enum mp_splits_card {
    MP_LONGEST, /* elements of the longest split */
    MP_NEEDS_PIECES,
    MP_HAS_ROOM,
    MP_SPLITS_WORDS,
};

struct mp_limits {
    int n; /* ranks */
    size_t elem_bytes;
    size_t max_elems;     /* of one MPI call */
    size_t scratch_bytes; /* for a round */
};

/* How the data moves. */
struct mp_plan {
    int windowed; /* through scratch memory, else in place */
    size_t piece; /* elements of each rank in a round */
    size_t rounds;
};

/* Sets offset[0 .. n] to where each rank's elements begin, and *longest to the
 * most of a rank; rank r has elems[r * step].  0, or -HVD_EPROTO if no memory
 * could hold them. */
int mp_find_places(const struct mp_limits *l, const uint64_t *elems, int step,
                   size_t *offset, size_t *longest);

/* Plans an allgather from all ranks' cards, and sets offset[0 .. n].  It is the
 * same on all ranks.  0, or -HVD_EPROTO if the cards are impossible. */
int mp_plan_gather(const struct mp_limits *l, const uint64_t *cards,
                   size_t *offset, struct mp_plan *plan);

/* Plans an alltoall from the card.  0, or -HVD_EPROTO if it is impossible. */
int mp_plan_splits(const struct mp_limits *l, const uint64_t *card,
                   struct mp_plan *plan);

/* Sets counts[0 .. n - 1] to the elements of each rank in round `at`, and
 * counts[n .. 2 * n - 1] to their displacements, one after the other. */
void mp_cut_round(const struct mp_limits *l, const struct mp_plan *plan,
                  size_t at, const uint64_t *elems, int step, int *counts);

#endif
