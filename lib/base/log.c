/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics; see log.h.
 *
 * A line never exceeds PIPE_BUF, so that lines of several processes on one pipe
 * stay whole; a longer text is cut.  A line that stderr does not take at once
 * is dropped: a diagnostic must not block a loop.
 */
#include "lib/base/log.h"

#include "lib/base/hvd_status.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name, *color;
} levels[] = {
    [HB_LOG_TRACE] = {"trace", "\033[2m"},
    [HB_LOG_DEBUG] = {"debug", "\033[2m"},
    [HB_LOG_INFO] = {"info", "\033[32m"},
    [HB_LOG_WARNING] = {"warning", "\033[33m"},
    [HB_LOG_ERROR] = {"error", "\033[31m"},
    [HB_LOG_FATAL] = {"fatal", "\033[1;31m"},
};

enum { LEVEL_COUNT = sizeof(levels) / sizeof(levels[0]) };

const char *hb_log_level_name(enum hb_log_level level)
{
    return (unsigned)level < LEVEL_COUNT ? levels[level].name : "unknown";
}

int hb_log_level_parse(const char *s, enum hb_log_level *out)
{
    unsigned i;

    for (i = 0; i < LEVEL_COUNT; i++) {
        if (strcasecmp(s, levels[i].name) == 0) {
            *out = (enum hb_log_level)i;
            return 0;
        }
    }
    return -HVD_EINVAL;
}

/* Formats `2024-05-01 12:00:00.123 `, or nothing if the clock is invalid. */
static size_t put_time(char *out, size_t size)
{
    uint64_t now = hb_wall_ns();
    time_t seconds = (time_t)(now / 1000000000u);
    unsigned ms = (unsigned)(now / 1000000u % 1000u);
    struct tm tm;
    size_t len;

    if (!localtime_r(&seconds, &tm))
        return 0;
    len = strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm);
    return len + (size_t)snprintf(out + len, size - len, ".%03u ", ms);
}

/* Formats all before the text; at most 200 bytes of the program's name. */
static size_t put_prefix(char *out, size_t size, const struct hb_log *log,
                         enum hb_log_level level)
{
    int color = (log->flags & HB_LOG_COLOR) && (unsigned)level < LEVEL_COUNT;
    size_t len = 0;

    if (log->flags & HB_LOG_TIMESTAMP)
        len = put_time(out, size);
    if (!log->program)
        return len;
    len += (size_t)snprintf(out + len, size - len,
                            "%.100s: %s%s%s: ", log->program,
                            color ? levels[level].color : "",
                            hb_log_level_name(level), color ? "\033[0m" : "");
    return len;
}

static void write_line(const char *line, size_t len)
{
    ssize_t n;

    do {
        n = write(STDERR_FILENO, line, len);
    } while (n < 0 && errno == EINTR);
}

void hb_log(const struct hb_log *log, enum hb_log_level level, const char *fmt,
            ...)
{
    char line[PIPE_BUF];
    size_t used, room;
    va_list ap;
    int len;

    if (!hb_log_enabled(log, level))
        return;
    used = put_prefix(line, sizeof(line), log, level);
    room = sizeof(line) - used - 1; /* keeps a byte for the newline */
    va_start(ap, fmt);
    len = vsnprintf(line + used, room, fmt, ap);
    va_end(ap);
    if (len < 0)
        line[used] = '\0';
    else if ((size_t)len >= room)
        hb_text_trim_cut(line + used);
    hb_text_sanitize(line + used);
    if (log->sink) {
        log->sink(log->sink_arg, level, line);
        return;
    }
    used += strlen(line + used);
    line[used++] = '\n';
    write_line(line, used);
}
