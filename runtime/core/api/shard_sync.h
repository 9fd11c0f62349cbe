/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps shards in the memory of other ranks, and gets those of lost ranks back,
 * by operations of the world: hvd_commit's and hvd_sync's part for
 * HVD_STATE_SHARDED.
 *
 * All ranks call these functions alike, for states with equal blocks.  They
 * return a negative status, with the text for the program, if an operation
 * fails, and -HVD_ENOMEM on one rank alone.
 */
#ifndef HVD_CORE_SHARD_SYNC_H
#define HVD_CORE_SHARD_SYNC_H

#include "runtime/core/api/state.h"

/* Returns 0, or -HVD_EINVAL with --np-multiple, which may leave live ranks, and
 * with them their shards, out of the world. */
int hvd__shards_allowed(void);

/* Copies the shards of all ranks to their keepers, and confirms that.  change:
 * this rank's host says that the world is to change.  Returns whether all hosts
 * say so; or negative, and then the copies before are still whole, on this rank
 * or on all. */
int hvd__shards_commit(struct hvd_state *s, int change);

/* Carries out the steps of hvd__shards_commit one by one, for tests that die
 * between them: begin returns as it does, copy and confirm 0 or negative. */
int hvd__shards_commit_begin(struct hvd_state *s, int change,
                             struct hvd__shard_layout **layout);
int hvd__shards_copy(struct hvd_state *s, struct hvd__shard_layout *layout,
                     int target);
int hvd__shards_confirm(struct hvd_state *s, int target);

/*
 * Fills the sharded memory of all ranks with the shards of the newest commit of
 * which all are left, dealt out by the sizes of the memory, and makes copies as
 * hvd__shards_commit.  If no rank has any, the memory's contents become the
 * shards.
 *
 *   version  that of the commit; the memory that is not sharded is of it
 *
 * If it fails, the state can still be brought back to one commit as a whole.
 * Returns 0, -HVD_ENOENT (a shard is lost), -HVD_EMISMATCH (the memory has
 * another size than the shards), or as above.
 */
int hvd__shards_sync(struct hvd_state *s, uint64_t version);

/* Fills the memory as hvd__shards_sync, and leaves the copies to
 * hvd__shards_copy and hvd__shards_confirm of `layout` and `target`.  layout
 * NULL: there are copies of all.  Returns as hvd__shards_sync. */
int hvd__shards_sync_begin(struct hvd_state *s, uint64_t version,
                           struct hvd__shard_layout **layout, int *target);

#endif
