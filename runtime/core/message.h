/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text behind hvd_error_message(): the last failure of the calling
 * thread.  It costs nothing unless something fails.
 */
#ifndef HVD_CORE_MESSAGE_H
#define HVD_CORE_MESSAGE_H

#include "lib/base/error.h"

/* Remembers a failure's text for this thread and returns err->status; an
 * err without a failure changes nothing. */
int hvd__tell(const struct hb_error *err);

/* The same from a status and a format; returns -status. */
int hvd__fail(enum hvd_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
