/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WORKER_STATS and CONTROL_STATS: what a rank's hvd_stats() told when it
 * left a world, for `hvdrun --stats`.  A rank sends it once for each
 * hvd_init, before LEAVE; its agent adds them up and tells hvdrun at the
 * end.
 *
 *     u16 rows, each: u8 kind, u8 class, u64 count, bytes, time_ns, wait_ns
 *     9 u64: operations, fused, learned, guessed, cuts, negotiations, errors,
 *            device_timed, device_ns
 *     u16 blamed, each: u32 rank, u64 waited_ns
 *
 * Rows without a count are left out.  Pure, and without an allocation but
 * the buffer's.
 */
#ifndef HVD_PROTOCOL_WORKER_STATS_H
#define HVD_PROTOCOL_WORKER_STATS_H

#include "lib/base/buf.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WORKER_STATS_BARRIER = 3, /* a kind; they are in the order of hvd.h */
    WORKER_STATS_KINDS = 6,
    WORKER_STATS_CLASSES = 8,
    WORKER_STATS_BLAMED = 32,   /* ranks; those that were waited for longest */
    WORKER_STATS_MAX = 4 << 10, /* bytes of a payload */
};

struct worker_stats_row {
    uint64_t count, bytes, time_ns, wait_ns;
};

struct worker_stats {
    struct worker_stats_row rows[WORKER_STATS_KINDS][WORKER_STATS_CLASSES];
    uint64_t operations, fused, learned, guessed, cuts, negotiations, errors;
    uint64_t device_timed, device_ns;
    uint32_t blamed_count;
    struct {
        uint32_t rank;
        uint64_t waited_ns;
    } blamed[WORKER_STATS_BLAMED];
};

/* The rank was waited for so much longer; forgets whom the least was waited
 * for when there is no room. */
void worker_stats_blame(struct worker_stats *m, uint32_t rank,
                        uint64_t waited_ns);

void worker_stats_add(struct worker_stats *sum, const struct worker_stats *m);

/* The payload alone.  0 or -HVD_ENOMEM. */
int worker_stats_write(struct hb_buf *out, const struct worker_stats *m);
/* 0, or -HVD_EPROTO, and then *m is untouched. */
int worker_stats_read(const void *p, size_t len, struct worker_stats *m);

/* A whole WORKER_STATS frame. */
int worker_encode_stats(struct hb_buf *out, const struct worker_stats *m);

/* "allreduce"; "64 KiB": the size that the class's are below; "" for the
 * last. */
const char *worker_stats_kind(int kind);
const char *worker_stats_class(int class);

#endif
