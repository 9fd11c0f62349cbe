/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hb_error: one error, as a status and one line of text.
 *
 * A fallible function whose failure the caller must explain takes a trailing
 * `struct hb_error *err` (caller-owned, may be NULL) and returns the negative
 * status that it stored there.  The first error wins: hb_error_set on an error
 * that is already set changes nothing.  Callers add context in front:
 *
 *     if (hostfile_read(path, &list, err) < 0)
 *         return hb_error_context(err, "hostfile %s", path);
 *
 * No allocation, so it also works when memory is exhausted.  Not thread-safe:
 * one error object belongs to one thread at a time.
 */
#ifndef HB_ERROR_H
#define HB_ERROR_H

#include "hvd_status.h"

enum { HB_ERROR_TEXT_MAX = 512 };

/* The step of reaching a host that failed. */
enum hb_stage {
    HB_STAGE_NONE,
    HB_STAGE_NAME,     /* finding its address */
    HB_STAGE_CONNECT,  /* connecting to it, or the connection broke */
    HB_STAGE_HOST_KEY, /* checking its key */
    HB_STAGE_LOGIN,    /* logging in and starting a shell */
};

struct hb_error {
    int status;    /* 0 or negative enum hvd_status */
    int sys_errno; /* 0 if not an error of the operating system */
    enum hb_stage stage;
    int rank;      /* -1 if not about a rank */
    int is_told;   /* another rank has failed and told this one why */
    char host[64]; /* "" if not about a host */
    char text[HB_ERROR_TEXT_MAX]; /* one line, no final newline */
};

/* clang-format off */
#define HB_ERROR_INIT { 0, 0, HB_STAGE_NONE, -1, 0, "", "" }
/* clang-format on */

void hb_error_clear(struct hb_error *err);

/* Stores -status and the formatted line if err is not NULL and not set.
 * Control bytes in the text become '?', so a hostile string cannot forge
 * lines or drive a terminal.  Returns -status always. */
int hb_error_set(struct hb_error *err, enum hvd_status status, const char *fmt,
                 ...) __attribute__((format(printf, 3, 4)));

/* Stores an error as hb_error_set does, for errno `e`: the status is HVD_ENOMEM
 * for ENOMEM, HVD_ENOENT for ENOENT, HVD_EPERM for EACCES and EPERM, else
 * HVD_ESYSTEM; ": strerror(e)" ends the text. */
int hb_error_sys(struct hb_error *err, int e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of a set error's text, cutting its end.  Returns
 * err->status; -HVD_ESYSTEM if err is NULL or not set. */
int hb_error_context(struct hb_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Stores the stage in a set error that has none.  Returns err->status. */
int hb_error_stage(struct hb_error *err, enum hb_stage stage);

/* Converts a negative status received from another rank, which may be any
 * number: HVD_EPROTO if it does not exist. */
static inline enum hvd_status hb_status_told(int status)
{
    return status < 0 && status > -HVD_STATUS_COUNT ? (enum hvd_status) - status
                                                    : HVD_EPROTO;
}

/* Returns a status's name, such as "HVD_EPEER", for either sign; a constant,
 * never NULL. */
const char *hb_status_name(int status);
/* Returns a short lower-case phrase, such as "a peer died". */
const char *hb_status_text(int status);

#endif
