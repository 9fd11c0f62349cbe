/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WORKER_STATS and CONTROL_STATS: a rank's hvd_stats() when it left a world,
 * for `hvdrun --stats`.  A rank sends it once for each hvd_init, before LEAVE;
 * its agent adds them up and sends the sum to hvdrun at the end.
 *
 *     u16 rows, each: u8 kind, u8 class, u64 count, bytes, time_ns, wait_ns
 *     9 u64: operations, fused, learned, guessed, cuts, negotiations, errors,
 *            device_timed, device_ns
 *     u16 blamed, each: u32 rank, u64 waited_ns
 *
 * Rows with count 0 are left out.  Pure; allocates only in the buffer.
 */
#ifndef HVD_PROTOCOL_WORKER_STATS_H
#define HVD_PROTOCOL_WORKER_STATS_H

#include "lib/base/buf.h"
#include "lib/protocol/collectives.h"

#include <stddef.h>
#include <stdint.h>

#define WORKER_STATS_KIND(symbol, ...) WORKER_STATS_##symbol
enum worker_stats_kind { COLLECTIVES(WORKER_STATS_KIND), WORKER_STATS_KINDS };

enum {
    WORKER_STATS_CLASSES = 8,
    /* most ranks listed: those waited for longest */
    WORKER_STATS_BLAMED = 32,
    WORKER_STATS_MAX = 4 << 10, /* bytes of the payload */
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

/* Adds time for which `rank` was waited for; if there is no room, replaces the
 * rank with the least time, or drops this one if that has less. */
void worker_stats_blame(struct worker_stats *m, uint32_t rank,
                        uint64_t waited_ns);

void worker_stats_add(struct worker_stats *sum, const struct worker_stats *m);

/* Appends the payload alone.  0 or -HVD_ENOMEM. */
int worker_stats_write(struct hb_buf *out, const struct worker_stats *m);
/* Reads a payload.  0, or -HVD_EPROTO with *m untouched. */
int worker_stats_read(const void *p, size_t len, struct worker_stats *m);

/* Appends a whole WORKER_STATS frame. */
int worker_encode_stats(struct hb_buf *out, const struct worker_stats *m);

/* Returns the size below which a class lies, such as "64 KiB"; "" for the last
 * class. */
const char *worker_stats_class(int class);

#endif
