/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's numbers for Prometheus, in its text format 0.0.4.  Pure.
 */
#ifndef HVD_JOB_METRICS_H
#define HVD_JOB_METRICS_H

#include "lib/base/buf.h"
#include "lib/job/record/record_data.h"

enum { METRICS_RANKS_MAX = 8192 }; /* with numbers of their own: the first */

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends the metrics of a job that runs or has ended; `generation` is that of
 * an elastic job, or negative.  Running out of memory ends the program. */
void metrics_text(struct hb_buf *out, const struct record *r, int generation);

#endif
