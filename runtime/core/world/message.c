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

void hvd__translate(struct hb_error *err)
{
    char text[HB_ERROR_TEXT_MAX];

    if (!hvd__generation_ended(err))
        return;
    hvd__blame(err);
    atomic_store(&hvd__context.resized, 1);
    snprintf(text, sizeof(text),
             "generation %u has ended: %.400s; call hvd_sync",
             atomic_load(&hvd__context.generation), err->text);
    memcpy(err->text, text, sizeof(text));
    err->status = -HVD_ERESIZED;
}

int hvd__tell(const struct hb_error *err)
{
    struct hb_error translated;

    if (!err->status)
        return 0;
    translated = *err;
    hvd__translate(&translated);
    memcpy(message, translated.text, sizeof(message));
    hvd__blame(&translated);
    return translated.status;
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
