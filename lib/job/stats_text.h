/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of `hvdrun --stats`: what all ranks counted, together.  Pure.
 */
#ifndef HVD_JOB_STATS_TEXT_H
#define HVD_JOB_STATS_TEXT_H

#include "lib/base/buf.h"
#include "lib/hosts/plan.h"
#include "lib/protocol/worker_stats.h"

struct stats_sum {
    int ranks; /* that told */
    struct worker_stats all;
    uint64_t *waited_ns; /* [plan->size]: what was waited for each */
};

/* blamed ranks that are not of the plan are left out. */
void stats_sum_add(struct stats_sum *s, const struct plan *plan,
                   const struct worker_stats *m);
void stats_sum_fini(struct stats_sum *s);

/* Lines, each with its end. */
void stats_text(struct hb_buf *out, const struct stats_sum *s,
                const struct plan *plan);

#endif
