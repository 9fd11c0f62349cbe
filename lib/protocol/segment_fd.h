/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that local ranks share: one sealed memfd per epoch. */
#ifndef HVD_PROTOCOL_SEGMENT_FD_H
#define HVD_PROTOCOL_SEGMENT_FD_H

#include "lib/base/error.h"
#include "lib/protocol/segment.h"

enum { SEGMENT_FD_SHIFT_MAX = 44 }; /* at most 2^44 bytes */

/*
 * Makes the segment of an epoch: `bytes` long, of fixed size, its head filled.
 * 0 with the descriptor (close-on-exec; the caller closes it) and the mapped
 * head (segment_head_bytes long; release with segment_fd_unmap), or negative
 * with err set.
 */
int segment_fd_make(uint32_t epoch, uint32_t local_size, uint64_t bytes,
                    int *fd, struct segment_head **head, struct hb_error *err);
/* Unmaps the head.  The caller gives the size, because workers can write to the
 * head. */
void segment_fd_unmap(struct segment_head *head, uint32_t local_size);

#endif
