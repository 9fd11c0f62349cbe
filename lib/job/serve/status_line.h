/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line of `hvdrun --status`:
 *
 *     4 ranks on 2 hosts, 1:05, 120 operations/s, 31 MiB/s, the others wait for
 *     rank 3 (42 %)
 *
 * Its numbers are those of the last ten seconds.  Pure: facts in, text out.
 */
#ifndef HVD_JOB_STATUS_LINE_H
#define HVD_JOB_STATUS_LINE_H

#include "lib/base/buf.h"
#include "lib/job/record/record_data.h"

enum { STATUS_LINE_S = 10 };

/* What the ranks had counted at a moment. */
struct status_line_moment {
    int64_t when_ns;
    struct status_counts *counts; /* [ranks] */
};

/* The moments of the lines before, the oldest at count % STATUS_LINE_S. */
struct status_line {
    struct status_line_moment before[STATUS_LINE_S];
    unsigned count;     /* of all moments, also of those left out by now */
    int64_t changed_ns; /* when a rank had last counted more */
};

/* Appends the line about a job that runs, without a newline and with at most
 * `width` characters, and notes its numbers in *line, which begins zeroed.
 * Called once a second.  `generation` is that of an elastic job, or negative.
 */
void status_line_format(struct hb_buf *out, struct status_line *line,
                        const struct record *r, int generation, size_t width);
void status_line_fini(struct status_line *line);

#endif
