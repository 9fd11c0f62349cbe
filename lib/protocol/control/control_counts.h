/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COUNTS: what the ranks of a host have counted so far, which the agent reads
 * from their status (status.h) when hvdrun sends COUNTS_ASK, which has no
 * payload.  hvdrun asks while somebody watches the job, and not again before
 * the answer has come.
 *
 *     each rank that can tell: u32 rank, u64 calls, bytes, waited_ns
 *
 * Pure; allocates only in the buffer.
 */
#ifndef HVD_PROTOCOL_CONTROL_COUNTS_H
#define HVD_PROTOCOL_CONTROL_COUNTS_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/status.h"

struct control_counts {
    int rank;
    struct status_counts counts;
};

/* Appends COUNTS for these ranks.  0 or -HVD_ENOMEM. */
int control_encode_counts(struct hb_buf *out, const struct control_counts *m,
                          int count);
int control_encode_counts_ask(struct hb_buf *out);
/* Decodes entry `at` of a payload.  Returns 1, 0 if there is no such entry, or
 * -HVD_EPROTO with err set. */
int control_decode_counts(const void *p, size_t len, int at,
                          struct control_counts *m, struct hb_error *err);

#endif
