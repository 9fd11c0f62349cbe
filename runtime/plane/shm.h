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
    int local_rank, local_size;
    const uint32_t *world_ranks; /* of each local rank; copied */
    const char *host;            /* for messages; copied */
    int cpus;                    /* cores that the local ranks share */
    /* Asked now and then while waiting long: 0, or a negative status with
     * err set when the job is over.  May be NULL. */
    int (*agent_lost)(void *arg, struct hb_error *err);
    void *agent_arg;
    /* The name of a rank's host, for ranks on other hosts that were missed
     * (segment_miss); NULL: all are on this one. */
    const char *(*host_of)(void *arg, uint32_t rank);
};

/* Bytes of a segment for that many ranks, head included. */
uint64_t hvd__shm_segment_bytes(int local_size);

/* NULL when memory is gone; released by its ops->free. */
struct hvd__plane *hvd__shm_new(const struct hvd__shm_config *config);

/* ---- For the plane that has this one inside each host ---------------- */

/* As ops->start, but what the ranks compare is the signature and descriptor
 * of `what`, of which op is a part. */
int hvd__shm_start_as(struct hvd__plane *plane, struct hvd__op *op,
                      const struct hvd__op *what);

/* The descriptor that a local rank gave for the latest operation, which has
 * completed or failed with HVD_EMISMATCH; and its signature. */
const struct hvd__descriptor *hvd__shm_descriptor(struct hvd__plane *plane,
                                                  int local_rank,
                                                  uint64_t *signature);

/* The elements that a local rank gets of a reduce-scatter. */
struct hvd__span {
    size_t first, count;
};
struct hvd__span hvd__lane_span(size_t count, size_t elem_bytes, int lanes,
                                int lane);

#endif
