/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line; see progress.h. */
#include "lib/job/output/progress.h"

#include "lib/job/output/xbuf.h"

#include <stdio.h>
#include <string.h>

enum { MORE_BYTES = sizeof(" and 65536 more") };

/* Returns how many names fit; if not all do, leaves room for "and N more". */
static size_t names_that_fit(const struct progress *p, size_t room)
{
    size_t used = 0, fit = 0;

    for (size_t i = 0; i < p->count; i++) {
        used += strlen(p->names[i]) + 1;
        if (used + MORE_BYTES <= room)
            fit = i + 1;
    }
    return used <= room ? p->count : fit;
}

void progress_format(struct hb_buf *out, const struct progress *p)
{
    size_t start = hb_buf_len(out), used, fit;

    hb_must(hb_buf_printf(out, "%s %d/%d, waiting for", p->what, p->done,
                          p->total));
    used = hb_buf_len(out) - start;
    fit = names_that_fit(p, used < p->width ? p->width - used : 0);
    for (size_t i = 0; i < fit; i++)
        hb_must(hb_buf_printf(out, " %s", p->names[i]));
    if (fit == 0)
        hb_must(hb_buf_printf(out, " %zu host%s", p->count,
                              p->count == 1 ? "" : "s"));
    else if (fit < p->count)
        hb_must(hb_buf_printf(out, " and %zu more", p->count - fit));
    used = hb_buf_len(out) - start;
    if (p->count == 1 && p->stage[0] && used + strlen(p->stage) + 3 <= p->width)
        hb_must(hb_buf_printf(out, " (%s)", p->stage));
}
