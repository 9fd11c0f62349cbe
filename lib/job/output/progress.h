/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress line on a terminal while hosts are waited for:
 *
 *     ssh 37/40, waiting for n12 n13 n40
 *
 * Pure: facts in, text out.
 */
#ifndef HVD_JOB_PROGRESS_H
#define HVD_JOB_PROGRESS_H

#include "lib/base/buf.h"

struct progress {
    const char *what; /* "ssh" */
    int done, total;
    const char *const *names; /* hosts that are waited for; at least one */
    size_t count;
    const char *stage; /* stage of that host if count is 1; may be "" */
    size_t width;      /* columns that the line may take */
};

/* Appends the line, without a newline; names that do not fit are counted. */
void progress_format(struct hb_buf *out, const struct progress *p);

#endif
