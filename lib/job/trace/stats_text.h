/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of `hvdrun --stats`: the sum of all ranks' statistics.  Pure.
 */
#ifndef HVD_JOB_STATS_TEXT_H
#define HVD_JOB_STATS_TEXT_H

#include "lib/base/buf.h"
#include "lib/hosts/slot_plan.h"
#include "lib/protocol/worker_stats.h"

struct stats_sum {
    int ranks; /* number of ranks that sent statistics */
    struct worker_stats all;
    uint64_t *waited_ns; /* [plan->size]: time spent waiting for each rank */
};

/* Adds m to s; blamed ranks that are not in the plan are left out. */
void stats_sum_add(struct stats_sum *s, const struct plan *plan,
                   const struct worker_stats *m);
void stats_sum_fini(struct stats_sum *s);

/* Appends the table, as whole lines. */
void stats_text(struct hb_buf *out, const struct stats_sum *s,
                const struct plan *plan);

#endif
