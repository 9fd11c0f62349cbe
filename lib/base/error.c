/* SPDX-License-Identifier: Apache-2.0 */
/* struct hb_error; see error.h.  No allocation anywhere here. */
#include "lib/base/error.h"

#include "lib/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
} statuses[HVD_STATUS_COUNT] = {
    [HVD_OK] = {"HVD_OK", "success"},
    [HVD_EINVAL] = {"HVD_EINVAL", "an argument is not valid"},
    [HVD_ENOMEM] = {"HVD_ENOMEM", "out of memory"},
    [HVD_ENOTINIT] = {"HVD_ENOTINIT", "not initialised"},
    [HVD_ESHUTDOWN] = {"HVD_ESHUTDOWN", "shut down"},
    [HVD_EDUPNAME] = {"HVD_EDUPNAME", "an operation of that name is in flight"},
    [HVD_EMISMATCH] = {"HVD_EMISMATCH", "ranks disagree on the operation"},
    [HVD_EPEER] = {"HVD_EPEER", "a peer died"},
    [HVD_ETIMEOUT] = {"HVD_ETIMEOUT", "timed out"},
    [HVD_EUNSUPPORTED] = {"HVD_EUNSUPPORTED", "not supported by this build"},
    [HVD_ESYSTEM] = {"HVD_ESYSTEM", "the operating system refused"},
    [HVD_EPROTO] = {"HVD_EPROTO", "a peer broke the protocol"},
    [HVD_ENOTMEMBER] = {"HVD_ENOTMEMBER",
                        "this rank is not in the process set"},
    [HVD_ENOSET] = {"HVD_ENOSET", "no such process set"},
    [HVD_ENOENT] = {"HVD_ENOENT", "does not exist"},
    [HVD_EPERM] = {"HVD_EPERM", "not permitted"},
    [HVD_ECLOSED] = {"HVD_ECLOSED", "the connection was closed"},
    [HVD_ERESIZED] = {"HVD_ERESIZED", "the world has changed: call hvd_sync"},
    [HVD_EREMOVED] = {"HVD_EREMOVED", "this rank has left the job, as asked"},
    [HVD_EEXIST] = {"HVD_EEXIST", "a process set with these members exists"},
};

static unsigned status_index(int status)
{
    return status < 0 ? 0u - (unsigned)status : (unsigned)status;
}

const char *hb_status_name(int status)
{
    unsigned i = status_index(status);

    return i < HVD_STATUS_COUNT ? statuses[i].name : "HVD_UNKNOWN";
}

const char *hb_status_text(int status)
{
    unsigned i = status_index(status);

    return i < HVD_STATUS_COUNT ? statuses[i].text : "unknown status";
}

void hb_error_clear(struct hb_error *err)
{
    static const struct hb_error none = HB_ERROR_INIT;

    *err = none;
}

/* Formats a text, cut to size bytes with its final 0, and sanitizes it. */
static void format_line(char *out, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static void format_line(char *out, size_t size, const char *fmt, va_list ap)
{
    int len = vsnprintf(out, size, fmt, ap);

    if (len < 0)
        out[0] = '\0';
    else if ((size_t)len >= size)
        hb_text_trim_cut(out);
    hb_text_sanitize(out);
}

int hb_error_set(struct hb_error *err, enum hvd_status status, const char *fmt,
                 ...)
{
    char text[HB_ERROR_TEXT_MAX];
    va_list ap;

    if (!err || err->status != 0)
        return -(int)status;
    va_start(ap, fmt);
    format_line(text, sizeof(text), fmt, ap);
    va_end(ap);
    memcpy(err->text, text, sizeof(text));
    err->status = -(int)status;
    return err->status;
}

static enum hvd_status status_of_errno(int e)
{
    switch (e) {
    case ENOMEM:
        return HVD_ENOMEM;
    case ENOENT:
        return HVD_ENOENT;
    case EACCES:
    case EPERM:
        return HVD_EPERM;
    default:
        return HVD_ESYSTEM;
    }
}

int hb_error_sys(struct hb_error *err, int e, const char *fmt, ...)
{
    enum hvd_status status = status_of_errno(e);
    char line[HB_ERROR_TEXT_MAX], cause[128];
    const char *reason;
    size_t room, used;
    va_list ap;

    if (!err || err->status != 0)
        return -(int)status;
    reason = strerror_r(e, cause, sizeof(cause));
    /* The reason is kept whole; a long text in front of it is cut. */
    room = sizeof(line) - strnlen(reason, sizeof(cause)) - 2;
    va_start(ap, fmt);
    format_line(line, room, fmt, ap);
    va_end(ap);
    used = strlen(line);
    snprintf(line + used, sizeof(line) - used, ": %.127s", reason);
    memcpy(err->text, line, sizeof(line));
    err->status = -(int)status;
    err->sys_errno = e;
    return err->status;
}

int hb_error_context(struct hb_error *err, const char *fmt, ...)
{
    char line[2 * HB_ERROR_TEXT_MAX];
    size_t used;
    va_list ap;

    if (!err || err->status == 0)
        return -HVD_ESYSTEM;
    va_start(ap, fmt);
    format_line(line, HB_ERROR_TEXT_MAX, fmt, ap);
    va_end(ap);
    used = strlen(line);
    snprintf(line + used, sizeof(line) - used, ": %s", err->text);
    if (strlen(line) >= sizeof(err->text)) {
        line[sizeof(err->text) - 1] = '\0';
        hb_text_trim_cut(line);
    }
    memcpy(err->text, line, strlen(line) + 1);
    return err->status;
}

int hb_error_stage(struct hb_error *err, enum hb_stage stage)
{
    if (!err || err->status == 0)
        return -HVD_ESYSTEM;
    if (err->stage == HB_STAGE_NONE)
        err->stage = stage;
    return err->status;
}
