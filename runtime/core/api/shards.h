/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copies of shards that a rank holds: its own and those of the ranks whose
 * keeper it is (shard_map.h), in two slots, of which one is written while the
 * other is whole.  This module does not communicate.
 *
 * A shard is all sharded memory of a rank, block after block without gaps.
 */
#ifndef HVD_CORE_SHARDS_H
#define HVD_CORE_SHARDS_H

#include "runtime/core/api/shard_map.h"

struct hvd_state;

/* What the shards of one world are like; counted references. */
struct hvd__shard_layout {
    int refs;
    int n;         /* ranks */
    size_t blocks; /* of each shard */
    uint32_t epoch;
    int *keeper;     /* [n] */
    uint64_t *bytes; /* [n * blocks], by rank */
};

/* Memory that is only ever filled anew. */
struct hvd__shard_memory {
    unsigned char *p; /* not NULL once there was room for something */
    size_t bytes, cap;
};

struct hvd__shard_slot {
    uint64_t seq; /* 0: not whole */
    struct hvd__shard_layout *layout;
    int me; /* this rank, in the layout */
    struct hvd__shard_memory own;
    struct hvd__shard_memory kept; /* by rank, without gaps */
};

struct hvd__shards {
    size_t blocks;  /* of the state, with HVD_STATE_SHARDED; 0: no shards */
    int is_resized; /* memory is not as in the layout of `confirmed` */
    /* is_taken: hvd_sync was called, so that the memory holds start values of
     * shards.  is_replaced: the memory was replaced since, and this rank knows
     * of no copies. */
    int is_taken, is_replaced;
    struct hvd__shard_slot slot[HVD__SHARD_SLOTS];
    int confirmed; /* a slot, or -1 */
    uint64_t last; /* the last number used; see struct hvd__shard_card */
    /* The last layout of which this rank knows that all had copies, or NULL. */
    struct hvd__shard_layout *known;
};

void hvd__shards_init(struct hvd__shards *shards);
void hvd__shards_fini(struct hvd__shards *shards);

/* Makes a layout of n > 0 ranks, zeroed, with one reference; NULL: no
 * memory. */
struct hvd__shard_layout *hvd__shard_layout_new(int n, size_t blocks);
struct hvd__shard_layout *hvd__shard_layout_ref(struct hvd__shard_layout *l);
void hvd__shard_layout_unref(struct hvd__shard_layout *l); /* or NULL */
/* Checks a layout of which a peer has told: its sums and its keepers are
 * possible.  Returns 1 or 0. */
int hvd__shard_layout_is_sane(const struct hvd__shard_layout *l);

/* Returns the bytes of a rank's shard, and where one of its blocks begins. */
uint64_t hvd__shard_bytes(const struct hvd__shard_layout *l, int rank);
uint64_t hvd__shard_at(const struct hvd__shard_layout *l, int rank,
                       size_t block);
/* Returns the bytes of what a rank keeps of others, before those of `rank`; or
 * of all, if `rank` is l->n. */
uint64_t hvd__shard_kept_at(const struct hvd__shard_layout *l, int keeper,
                            int rank);
/* Returns a block of an old shard that a slot has, its own or a kept one. */
const unsigned char *hvd__shard_find(const struct hvd__shard_slot *slot,
                                     int rank, size_t block);

/* Prepares a slot, which is not whole from now on, for rank `me` of a layout.
 * Returns 0 or -HVD_ENOMEM. */
int hvd__shard_slot_open(struct hvd__shard_slot *slot,
                         struct hvd__shard_layout *l, int me);
/* Copies the state's sharded memory, which has the layout's sizes, into an open
 * slot. */
void hvd__shards_pack(const struct hvd_state *s, struct hvd__shard_slot *slot);
/* Copies the confirmed slot's own shard back; blocks of another size than the
 * state's are left out. */
void hvd__shards_unpack(const struct hvd_state *s);

#endif
