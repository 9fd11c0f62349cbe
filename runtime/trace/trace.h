/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timeline and statistics in the life of the library: what hvd_init begins
 * of them, as the environment asks, and hvd_shutdown ends; and
 * hvd_timeline_start, hvd_timeline_stop.
 */
#ifndef HVD_TRACE_TRACE_H
#define HVD_TRACE_TRACE_H

#include "lib/base/log.h"
#include "runtime/trace/timeline.h"

struct hvd__agent;

/* The last step of hvd_init: HVD_TIMELINE, HVD_STATS.  0 or negative with
 * err set. */
int hvd__trace_open(const struct hvd__timeline_owner *owner,
                    struct hb_error *err);

/* When nothing is carried out any more, or at exit: tells the agent what was
 * counted, if hvdrun wants it, and ends the timeline.  Idempotent. */
void hvd__trace_close(struct hvd__agent *agent, const struct hb_log *log);

#endif
