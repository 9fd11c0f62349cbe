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
};

/* Bytes of a segment for that many ranks, head included. */
uint64_t hvd__shm_segment_bytes(int local_size);

/* NULL when memory is gone; released by its ops->free. */
struct hvd__plane *hvd__shm_new(const struct hvd__shm_config *config);

#endif
