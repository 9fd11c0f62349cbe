/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory plane: all ranks of one host, through the segment that
 * their agent made (lib/protocol/segment.h).
 */
#ifndef HVD_PLANE_SHM_H
#define HVD_PLANE_SHM_H

#include "lib/base/error.h"
#include "lib/protocol/segment.h"
#include "runtime/plane/plane.h"

#include <stddef.h>
#include <stdint.h>

enum { HVD__SHM_LOCAL_MAX = 512, HVD__SHM_EXCHANGE_MAX = 128 << 10 };

struct hvd__shm_config {
    struct segment_head *head; /* mapped; the caller unmaps it, after free */
    int segment_ranks;         /* ranks that share the segment; 0: local_size */
    /* Selects the process set's part of the segment.  The ranks
     * must agree that all have made their plane there before any uses it, and
     * that all have freed it before the next one is made. */
    int slot;
    int local_rank, local_size;  /* the group's members on this host */
    const uint32_t *world_ranks; /* of each local member; copied */
    const int *group_ranks;      /* group rank of each, as in op->root;
                                    copied; NULL: 0 .. local_size - 1 */
    const int *local_index;      /* index of each among the segment's ranks;
                                    copied; NULL: 0 .. local_size - 1 */
    const uint32_t *domains; /* cache domain of each: equal numbers for ranks
                                that share a cache; copied; the same on all
                                ranks; NULL: one domain */
    const char *host;        /* for messages; copied */
    int cpus;                /* cores that the local ranks share */
    uint64_t arena_bytes;    /* arena of each of the segment's ranks; 0: none */
    /* Two ranks exchange blocks of so many bytes, or of its peer's fewer: a
     * multiple of 64 up to HVD__SHM_EXCHANGE_MAX.  0: they move data as more
     * ranks do. */
    uint32_t exchange_bytes;
    /* Polled during long waits: 0, or negative with err set when the job is
     * over.  May be NULL. */
    int (*agent_lost)(void *arg, struct hb_error *err);
    void *agent_arg;
    /* Returns the name of a rank's host, for errors that concern ranks on
     * other hosts (segment_miss).  NULL: all ranks are on this host. */
    const char *(*host_of)(void *arg, uint32_t rank);
};

/* Returns the bytes of a segment for that many ranks, head included, arenas
 * not.  Most pages are never touched and so take no memory. */
uint64_t hvd__shm_segment_bytes(int segment_ranks);

/* Returns the offset of a rank's arena.  The arenas, one per rank, each of
 * arena_bytes (a multiple of 4096), follow the rest of the segment. */
static inline uint64_t hvd__shm_arena_at(int segment_ranks, int local_index,
                                         uint64_t arena_bytes)
{
    return hvd__shm_segment_bytes(segment_ranks) +
           (uint64_t)local_index * arena_bytes;
}

/* Reads HVD_EXCHANGE_BYTES, for config.exchange_bytes; by default a part of
 * this core's own cache.  Returns 0, or -HVD_EINVAL with err set. */
int hvd__shm_exchange_size(uint32_t *bytes, struct hb_error *err);

/* Claims a part of the segment for a process set, in one of its members there.
 * Returns 1, or 0 if it is claimed already.  Parts are claimed by process sets
 * whose members do not know what other sets there are. */
int hvd__shm_claim(struct segment_head *head, int segment_ranks, int slot);
/* Gives a claimed part back, after all members have freed their planes. */
void hvd__shm_unclaim(struct segment_head *head, int segment_ranks, int slot);

/* Returns NULL if memory runs out; ops->free releases the plane. */
struct hvd__plane *hvd__shm_new(const struct hvd__shm_config *config);

/* ---- For the plane that has this one inside each host ---------------- */

/* Starts op, which is a part of `what`, like ops->start, except that
 *
 * - ranks compare signature, first_signature and entries of `what`; progress
 *   sets agreed_entries of op, not of `what`.  If these differ, ranks may pass
 *   ops of different kinds and sizes;
 * - op->root and op->trace.late_rank are ranks of the larger group
 *   (group_ranks); sendcounts and recvcounts are indexed by local rank;
 * - in a broadcast the root's count holds; other ranks may give another one
 *   if they set recvcap. */
int hvd__shm_start_as(struct hvd__plane *plane, struct hvd__op *op,
                      const struct hvd__op *what);

/* Returns the elements that local rank `lane` gets of a lane scatter. */
struct hvd__span {
    size_t first, count;
};
struct hvd__span hvd__lane_span(size_t count, size_t elem_bytes, int lanes,
                                int lane);

#endif
