/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the memory that local ranks share (lib/protocol/segment.h). */
#ifndef HVD_CORE_SEGMENT_H
#define HVD_CORE_SEGMENT_H

#include "lib/base/error.h"
#include "lib/protocol/segment.h"

/* Maps the segment of an epoch, `bytes` long, and checks its head.  Returns 0
 * and *head, which the caller unmaps, or negative with err set.  The caller
 * keeps fd. */
int hvd__segment_map(int fd, uint32_t epoch, uint32_t local_size,
                     uint64_t bytes, struct segment_head **head,
                     struct hb_error *err);

#endif
