/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file with a growing JSON array that is valid at any moment, however its
 * writer ends.  One thread.
 *
 * The file ends with the closing bracket.  Elements are collected, and then
 * written together with a new bracket over the old one, by a single pwrite
 * inside one page: the kernel checks for a fatal signal between pages only.  To
 * get to the next page, the bracket is first moved to the last byte of its
 * page; then a space and a bracket are put over it and onto the next page.  No
 * write does both atomically, but one store of two bytes does, into a mapping
 * of the file.  Where files cannot be mapped, a write is used, and a SIGKILL
 * between its two bytes leaves the file without a bracket.
 */
#ifndef HB_TRACE_FILE_H
#define HB_TRACE_FILE_H

#include "lib/base/error.h"

#include <sys/types.h>

enum {
    HB_TRACE_PAGE_BYTES = 4096,
    HB_TRACE_WINDOW_BYTES = 256 * HB_TRACE_PAGE_BYTES,
    HB_TRACE_ELEMENT_MAX = HB_TRACE_PAGE_BYTES - 16, /* bytes of one element */
};

struct hb_trace_file {
    int fd;    /* -1: not open; open for reading, too, for the mapping */
    off_t end; /* offset of the closing bracket */
    int empty; /* the array has no element */
    size_t len;
    int sys_errno; /* why writing has stopped; 0: it has not */
    char *window;  /* mapping of a part of the file, or NULL */
    off_t window_at;
    char page[HB_TRACE_PAGE_BYTES];
};

/* Creates or replaces the file, unless another process has it open by this
 * function.  0, or negative with err set. */
int hb_trace_file_open(struct hb_trace_file *f, const char *path,
                       struct hb_error *err);
/* Opens a file that was closed, to continue it; fails if it is missing or
 * malformed.  As hb_trace_file_open. */
int hb_trace_file_reopen(struct hb_trace_file *f, const char *path,
                         struct hb_error *err);

/* Adds one element, without commas or line ends; one that is too long is left
 * out.  Errors are reported by close. */
void hb_trace_file_put(struct hb_trace_file *f, const char *element,
                       size_t len);

/* Writes the collected elements. */
void hb_trace_file_flush(struct hb_trace_file *f);

/* Flushes and closes.  0, or the errno because of which elements were lost. */
int hb_trace_file_close(struct hb_trace_file *f);

#endif
