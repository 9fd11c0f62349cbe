/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line of `hvdrun --status`:
 *
 *     4 ranks on 2 hosts, 1:05, 120 operations/s, 31 MiB/s, the others wait for
 *     rank 3 (42 %)
 *
 * Pure: facts in, text out.
 */
#ifndef HVD_JOB_STATUS_LINE_H
#define HVD_JOB_STATUS_LINE_H

#include "lib/base/buf.h"
#include "lib/job/record/record_data.h"

/* The last moment for which there are numbers, to compare the next with. */
struct status_line {
    int64_t when_ns;
    struct status_counts *before; /* [ranks]; NULL: there was none */
};

/* Appends the line about a job that runs, without a newline and with at most
 * `width` characters, and notes its numbers in *last, which begins zeroed; the
 * numbers of collectives are those since then.  `generation` is that of an
 * elastic job, or negative. */
void status_line_format(struct hb_buf *out, struct status_line *last,
                        const struct record *r, int generation, size_t width);
void status_line_fini(struct status_line *last);

#endif
