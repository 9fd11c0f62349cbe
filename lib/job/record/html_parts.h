/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the page that record_html makes.  Pure.  No part is larger than its
 * limit: what does not fit is left out, and a line says how much.
 */
#ifndef HVD_JOB_HTML_PARTS_H
#define HVD_JOB_HTML_PARTS_H

#include "lib/job/record/record_data.h"

enum {
    HTML_RANKS_MAX = 256,  /* on the time line */
    HTML_BARS_MAX = 2000,  /* processes there */
    HTML_HOSTS_MAX = 256,  /* there, and in the table */
    HTML_ROWS_MAX = 300,   /* of any other table */
    HTML_EVENTS_MAX = 300, /* the last ones */
};

/* The style sheet, for light and dark screens. */
extern const char html_style[];
/* The script of the page of a job that runs. */
extern const char html_script[];

/* Appends a time as people read it: "12.3 ms", "1.24 s", "2 min 5 s". */
void html_span(struct hb_buf *out, double ns);
/* Appends a size as people read it: "64 KiB". */
void html_bytes(struct hb_buf *out, double bytes);
/* Appends a line that says how many of `what` are left out; nothing for none.
 */
void html_left_out(struct hb_buf *out, int count, const char *what);

enum html_run { RUN_ALIVE, RUN_OK, RUN_FAIL, RUN_LOST, RUN_END, RUN_UNKNOWN };

/* Returns the kind of bar that a process gets. */
enum html_run html_run(const struct record *r, const struct record_run *run);
/* Returns the CSS class of a kind of bar. */
const char *html_run_class(enum html_run look);

/* Returns how a process has ended, or that it runs, in a few words. */
const char *html_how(const struct record *r, const struct record_run *run);

/* Appends hosts and ranks on one time line, as SVG. */
void html_timeline(struct hb_buf *out, const struct record *r);
/* Appends the time waited for each rank, and the table of collectives; nothing
 * if no counts are known. */
void html_statistics(struct hb_buf *out, const struct record *r);

#endif
