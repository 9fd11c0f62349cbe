/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deals the shards of a commit out to the ranks of another world, from the
 * slots of their owners and keepers.  The slots stay as they are, so that it
 * can begin again if another rank is lost meanwhile.
 *
 * All ranks call these functions alike; they return 0, or negative with the
 * text for the program.
 */
#ifndef HVD_CORE_SHARD_DEAL_H
#define HVD_CORE_SHARD_DEAL_H

#include "runtime/core/api/state.h"

struct hvd__shard_deal {
    /* Set by the caller: the world's cards [n], this rank there, the number of
     * the commit, and this rank's slot of it, or NULL. */
    const struct hvd__shard_card *cards;
    int n, me;
    uint64_t seq;
    struct hvd__shard_slot *slot;
    struct hvd__shard_layout *layout; /* of the world as it is */
    /* Found: the layout of the commit; for each of its shards the rank that
     * has it, and the rank that was its owner, or -1. */
    struct hvd__shard_layout *old;
    int *holder, *at;
};

/* Finds out what the commit was like, and who has its shards: -HVD_ENOENT if
 * one is lost. */
int hvd__shard_deal_find(struct hvd__shard_deal *d, size_t blocks);

/* Fills the state's sharded memory: -HVD_EMISMATCH if a block has another size
 * in all than in the commit. */
int hvd__shard_deal_out(struct hvd__shard_deal *d, struct hvd_state *s);

void hvd__shard_deal_fini(struct hvd__shard_deal *d);

#endif
