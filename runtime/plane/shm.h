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

enum { HVD__SHM_LOCAL_MAX = 64 };

struct hvd__shm_config {
    struct segment_head *head; /* mapped; the caller unmaps it, after free */
    int segment_ranks;         /* ranks that share the segment; 0: local_size */
    /* The process set's number: its part of the segment.  The ranks must
     * agree that all have a plane there before any uses it, and that all
     * have freed it before the next one is made. */
    int slot;
    int local_rank, local_size;  /* of the group, on this host */
    const uint32_t *world_ranks; /* of each local member; copied */
    const int *group_ranks;      /* of each, as op->root has it; copied; NULL:
                                    0 .. local_size - 1 */
    const int *local_index;  /* of each, its place among the segment's ranks;
                                copied; NULL: 0 .. local_size - 1 */
    const uint32_t *domains; /* of each, which caches are near: ranks of one
                                have the same number, any; copied; the same
                                on all ranks; NULL: all of one */
    const char *host;        /* for messages; copied */
    int cpus;                /* cores that the local ranks share */
    uint64_t arena_bytes;    /* of each of the segment's ranks; 0: none */
    /* Asked now and then while waiting long: 0, or a negative status with
     * err set when the job is over.  May be NULL. */
    int (*agent_lost)(void *arg, struct hb_error *err);
    void *agent_arg;
    /* The name of a rank's host, for ranks on other hosts that were missed
     * (segment_miss); NULL: all are on this one. */
    const char *(*host_of)(void *arg, uint32_t rank);
};

/* Bytes of a segment for that many ranks, head included, without arenas.
 * Most of them are never touched and take no memory. */
uint64_t hvd__shm_segment_bytes(int segment_ranks);

/* The arenas follow that, one per rank, each of arena_bytes: a multiple of
 * 4096.  Where a rank's begins: */
static inline uint64_t hvd__shm_arena_at(int segment_ranks, int local_index,
                                         uint64_t arena_bytes)
{
    return hvd__shm_segment_bytes(segment_ranks) +
           (uint64_t)local_index * arena_bytes;
}

/* NULL when memory is gone; released by its ops->free. */
struct hvd__plane *hvd__shm_new(const struct hvd__shm_config *config);

/* ---- For the plane that has this one inside each host ---------------- */

/* As ops->start, but what the ranks compare is signature, first_signature and
 * entries of `what`, of which op is a part; progress then sets
 * op->agreed_entries, not what's.  Ranks may pass ops of different kinds and
 * sizes when what they compare differs.  op->root is a rank of the larger
 * group (group_ranks), and so is op->late_rank; sendcounts and recvcounts are
 * by the local members' order, 0 .. local_size - 1.  In a broadcast, the
 * count is the root's and other ranks may give another. */
int hvd__shm_start_as(struct hvd__plane *plane, struct hvd__op *op,
                      const struct hvd__op *what);

/* The elements that a local rank gets of a reduce-scatter. */
struct hvd__span {
    size_t first, count;
};
struct hvd__span hvd__lane_span(size_t count, size_t elem_bytes, int lanes,
                                int lane);

#endif
