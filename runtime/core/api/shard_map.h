/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the copies of shards lie (HVD_STATE_SHARDED), which of them are left
 * after a loss, and how they are dealt out to another world.
 *
 * Each rank copies its shard into one of two slots of its own, and into the
 * same slot of its keeper, another rank.  A slot is whole once all of that has
 * arrived at this rank, and confirmed once this rank knows that the slots of
 * all ranks are whole.  So if any rank has confirmed a number, all ranks have a
 * whole slot of it, and if none has, all still have the one before, in their
 * other slot.
 *
 * Pure: no I/O, no memory of its own, and equal results on all ranks for equal
 * arguments.
 */
#ifndef HVD_CORE_SHARD_MAP_H
#define HVD_CORE_SHARD_MAP_H

#include <stddef.h>
#include <stdint.h>

enum {
    HVD__SHARD_SLOTS = 2,
    HVD__SHARD_RANKS_MAX = 1 << 20, /* of a world that a peer tells of */
};

/*
 * Chooses the keeper of each of n ranks: another rank, on another host if there
 * is one.
 *
 *   host     the lowest rank of each rank's host
 *   leaves   not 0 for ranks that are to leave: they keep nothing, unless all
 *            leave
 *   keeper   out: keeper[r] == r if r is alone
 *   scratch  [2 * n]
 *
 * If no host has more than half of the ranks, each rank keeps one shard.  If
 * all hosts have as many ranks as the others, hosts keep each other's shards in
 * pairs, and the last three, if their number is odd, in a circle: so two lost
 * hosts are seldom keepers of each other.  On one host, so do the ranks.
 */
void hvd__shard_keepers(const int *host, const unsigned char *leaves, int n,
                        int *keeper, int *scratch);

/* What a rank tells the others of its slots. */
struct hvd__shard_card {
    uint64_t seq[HVD__SHARD_SLOTS]; /* the number of a whole slot; 0: none */
    uint64_t confirmed;             /* the number that it knows; 0: none */
    uint64_t last;                  /* the last number that it has used */
    /* Its number, and that of all ranks, in the world of the slot. */
    uint32_t rank[HVD__SHARD_SLOTS], size[HVD__SHARD_SLOTS];
    uint32_t is_current;  /* the confirmed slot is of the world as it is */
    uint32_t is_replaced; /* see struct hvd__shards */
};

/* Returns the number that all ranks return to: the highest that is confirmed;
 * 0: there is none. */
uint64_t hvd__shard_newest(const struct hvd__shard_card *cards, int n);
/* Returns which slot of a card has a number; -1: none. */
int hvd__shard_slot_of(const struct hvd__shard_card *card, uint64_t seq);
/* Returns the first rank that has a whole slot of this number, or -1. */
int hvd__shard_source(const struct hvd__shard_card *cards, int n, uint64_t seq);
/*
 * Finds who has each of the old_n shards of a number.
 *
 *   keeper  [old_n], of that number
 *   holder  out [old_n]: the rank, of n, that has the shard: its owner, else
 *           its keeper; -1: nobody
 *   at      out [old_n]: the rank, of n, that was each old one; -1: lost
 */
void hvd__shard_holders(const struct hvd__shard_card *cards, int n,
                        uint64_t seq, const int *keeper, int old_n, int *holder,
                        int *at);

/* Bytes of an old shard that are to become bytes of a new one. */
struct hvd__shard_piece {
    int from, to;            /* old shard, new shard */
    uint64_t from_at, to_at; /* offsets in these */
    uint64_t bytes;
};

/*
 * Deals the bytes of old_n shards out to new_n new ones, in order.
 *
 *   before, after  sizes; that of shard i is at [i * stride]; their sums are
 *                  equal
 *   pieces         out [old_n + new_n], ascending
 *
 * Returns how many pieces there are.
 */
size_t hvd__shard_deal(const uint64_t *before, int old_n, const uint64_t *after,
                       int new_n, size_t stride,
                       struct hvd__shard_piece *pieces);

/* Adds up n sizes, each `stride` after the other.  Returns 1, or 0 if the sum
 * is too large for a size. */
int hvd__shard_total(const uint64_t *bytes, size_t n, size_t stride,
                     uint64_t *total);

#endif
