/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status texts and the per-thread message of the last failure.
 */
#include "runtime/core/world/message.h"

#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/hvd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Per thread, because the API hands out no error object: two threads that
 * fail at once each read their own line. */
static _Thread_local char message[HB_ERROR_TEXT_MAX];

/* In an elastic job it is the end of the generation, whatever this rank noticed
 * of it first. */
int hvd__public_status(const struct hb_error *err)
{
    return hvd__generation_ended(err) ? -HVD_ERESIZED : err->status;
}

int hvd__tell(const struct hb_error *err)
{
    if (err->status) {
        if (hvd__generation_ended(err)) {
            atomic_store(&hvd__context.resized, 1);
            snprintf(message, sizeof(message),
                     "generation %u has ended: %.400s; call hvd_sync",
                     atomic_load(&hvd__context.generation), err->text);
        } else
            memcpy(message, err->text, sizeof(message));
        hvd__blame(err);
    }
    return hvd__public_status(err);
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
