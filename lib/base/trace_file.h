/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that holds a JSON array which grows, and is valid at any moment,
 * however its writer ends.  One thread.
 *
 * The file ends with the closing bracket.  Elements are collected, and then
 * written together with a new bracket over the old one, by a single pwrite
 * inside one page: the kernel looks for a fatal signal between pages only.
 * To get to the next page, the bracket first moves to the last byte of its
 * page; then a space and a bracket are put over it and onto the next page.
 * No write does that as a whole, but one store of two bytes does, into a
 * mapping of the file.  Where files cannot be mapped, a write is used, and
 * in the moment between its two bytes a SIGKILL leaves the file without a
 * bracket.
 */
#ifndef HB_TRACE_FILE_H
#define HB_TRACE_FILE_H

#include "error.h"

#include <sys/types.h>

enum {
    HB_TRACE_PAGE_BYTES = 4096,
    HB_TRACE_WINDOW_BYTES = 256 * HB_TRACE_PAGE_BYTES,
    HB_TRACE_ELEMENT_MAX = HB_TRACE_PAGE_BYTES - 16, /* bytes of one element */
};

struct hb_trace_file {
    int fd;    /* -1: not open; also for reading, or it could not be mapped */
    off_t end; /* of the closing bracket */
    int empty; /* no element was put */
    size_t len;
    int sys_errno; /* why nothing is written any more; 0 */
    char *window;  /* a mapping of a part of the file; NULL: none */
    off_t window_at;
    char page[HB_TRACE_PAGE_BYTES];
};

/* Makes or replaces the file, unless another process has it open like this.
 * 0 or negative with err set. */
int hb_trace_file_open(struct hb_trace_file *f, const char *path,
                       struct hb_error *err);
/* Goes on with one that was closed, if it is there and is one. */
int hb_trace_file_reopen(struct hb_trace_file *f, const char *path,
                         struct hb_error *err);

/* Takes one element, without commas or line ends: longer ones are left
 * out.  What fails is told by close. */
void hb_trace_file_put(struct hb_trace_file *f, const char *element,
                       size_t len);

/* Writes what was put. */
void hb_trace_file_flush(struct hb_trace_file *f);

/* Flushes.  0, or the errno for which elements were lost. */
int hb_trace_file_close(struct hb_trace_file *f);

#endif
