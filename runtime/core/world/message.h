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

/* Rewrites an error by which this rank has noticed the end of its generation,
 * in an elastic job, as HVD_ERESIZED, and notes that end; other errors stay.
 * Done as soon as an operation has failed, so that an old request does not end
 * a later generation. */
void hvd__translate(struct hb_error *err);

/* Records a failure given by status and format; returns -status. */
int hvd__fail(enum hvd_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
