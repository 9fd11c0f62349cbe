/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts timeline and statistics in hvd_init, as the environment asks, and ends
 * them in hvd_shutdown; and hvd_timeline_start, hvd_timeline_stop, hvd_stats.
 */
#ifndef HVD_CORE_TRACE_H
#define HVD_CORE_TRACE_H

#include "lib/base/log.h"
#include "runtime/trace/timeline.h"

struct hvd__agent;

/* Starts what HVD_TIMELINE and HVD_STATS ask for; the last step of hvd_init.
 * Returns 0 or negative with err set. */
int hvd__trace_open(const struct hvd__timeline_owner *owner,
                    struct hb_error *err);

/* Keeps what this process has counted for the next world; called when nothing
 * is carried out any more, before the segment goes.  Idempotent. */
void hvd__trace_unwatch(void);

/* Sends the counters to the agent, if hvdrun wants them, and ends the timeline.
 * Called when nothing is carried out any more, or at exit; idempotent. */
void hvd__trace_close(struct hvd__agent *agent, const struct hb_log *log);

#endif
