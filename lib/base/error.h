/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hb_error: what went wrong, told once, in one line.
 *
 * A fallible function that its caller must explain takes a trailing
 * `struct hb_error *err` (caller-owned, may be NULL) and returns the
 * negative status it stored there.  The first error wins: hb_error_set on
 * an error that is already set changes nothing.  Callers add context in
 * front:
 *
 *     if (hostfile_read(path, &list, err) < 0)
 *         return hb_error_context(err, "hostfile %s", path);
 *
 * No allocation, so it also works when memory is gone.  Not thread-safe:
 * one error object belongs to one thread at a time.
 */
#ifndef HB_ERROR_H
#define HB_ERROR_H

#include "hvd_status.h"

enum { HB_ERROR_TEXT_MAX = 512 };

struct hb_error {
    int status;    /* 0 or negative enum hvd_status */
    int sys_errno; /* 0 when the operating system is not the cause */
    int rank;      /* -1 when no rank is concerned */
    char host[64]; /* "" when no host is concerned */
    char text[HB_ERROR_TEXT_MAX]; /* one line, no final newline */
};

/* clang-format off */
#define HB_ERROR_INIT { 0, 0, -1, "", "" }
/* clang-format on */

void hb_error_clear(struct hb_error *err);

/* Stores -status and the formatted line if err is not NULL and not set.
 * Control bytes in the text become '?', so a hostile string cannot forge
 * lines or drive a terminal.  Returns -status always. */
int hb_error_set(struct hb_error *err, enum hvd_status status, const char *fmt,
                 ...) __attribute__((format(printf, 3, 4)));

/* The same with HVD_ESYSTEM (HVD_ENOMEM for ENOMEM, HVD_ENOENT for ENOENT,
 * HVD_EPERM for EACCES and EPERM), errno `e`, and ": strerror(e)" at the
 * end of the text. */
int hb_error_sys(struct hb_error *err, int e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the text of a set error (truncating at the
 * end).  Returns err->status; -HVD_ESYSTEM if err is NULL or not set. */
int hb_error_context(struct hb_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The name of a status, e.g. "HVD_EPEER"; takes it with either sign; a
 * constant string, never NULL. */
const char *hb_status_name(int status);
/* A short lower-case phrase for it, e.g. "a peer died". */
const char *hb_status_text(int status);

#endif
