/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of the last words of a failed rank explains its failure: Python's
 * last traceback with those that led to it, or C++'s last uncaught exception,
 * even if other lines follow; else the last lines.  Pure.
 */
#ifndef HVD_JOB_TAIL_VIEW_H
#define HVD_JOB_TAIL_VIEW_H

#include <stddef.h>

enum {
    TAIL_LINES_MAX = 10,  /* if nothing better is found */
    TAIL_MESSAGE_MAX = 8, /* lines of an exception's message */
    TAIL_AFTER_MAX = 4,   /* lines that follow the exception */
};

enum tail_kind { TAIL_NOTHING, TAIL_LINES, TAIL_TRACEBACK, TAIL_EXCEPTION };

/* Parts of the text, of whole lines, each without the last line's end. */
struct tail_view {
    enum tail_kind kind;
    const char *text;
    size_t len;
    /* The last lines of what follows the exception; a gap is before them. */
    const char *after;
    size_t after_len;
    int gap;
};

struct tail_view tail_view(const char *text);

#endif
