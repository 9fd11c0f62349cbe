/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text behind hvd_error_message(): the last failure of the calling
 * thread.  It costs nothing unless something fails.
 */
#ifndef HVD_CORE_MESSAGE_H
#define HVD_CORE_MESSAGE_H

#include "lib/base/error.h"

/* Records a failure's text for this thread, and blames the rank that it names
 * (blame.h).  Returns the status for the program: err->status, or -HVD_ERESIZED
 * where that says that the generation has ended; without a failure 0. */
int hvd__tell(const struct hb_error *err) __attribute__((warn_unused_result));

/* Returns the status for the program, without recording anything. */
int hvd__public_status(const struct hb_error *err);

/* Records a failure given by status and format; returns -status. */
int hvd__fail(enum hvd_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
