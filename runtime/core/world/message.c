/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status texts and the per-thread message of the last failure.
 */
#include "runtime/core/world/message.h"

#include "runtime/core/world/blame.h"
#include "runtime/hvd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Per thread, because the API hands out no error object: two threads that
 * fail at once each read their own line. */
static _Thread_local char message[HB_ERROR_TEXT_MAX];

int hvd__tell(const struct hb_error *err)
{
    if (err->status) {
        memcpy(message, err->text, sizeof(message));
        hvd__blame(err);
    }
    return err->status;
}

int hvd__fail(enum hvd_status status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    return -(int)status;
}

const char *hvd_error_message(void)
{
    return message;
}

const char *hvd_status_text(int status)
{
    return hb_status_text(status);
}
