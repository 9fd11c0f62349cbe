/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: levelled lines for the operator, on stderr by default.
 *
 * One struct hb_log per program, made in cmd/ and passed down, so tests can
 * capture it and nothing is global.  A line is written with one write(2):
 * `hvdrun: warning: text`.  With HB_LOG_TIMESTAMP a local time comes first.
 * Return an error or log it, never both: library code logs only what no return
 * value reports (state changes, choices made).
 */
#ifndef HB_LOG_H
#define HB_LOG_H

enum hb_log_level {
    HB_LOG_TRACE,
    HB_LOG_DEBUG,
    HB_LOG_INFO,
    HB_LOG_WARNING,
    HB_LOG_ERROR,
    HB_LOG_FATAL,
};

enum { HB_LOG_TIMESTAMP = 1u << 0, HB_LOG_COLOR = 1u << 1 };

struct hb_log {
    /* "hvdrun"; NULL: lines without `program: level: `, for a sink that passes
     * them to another log. */
    const char *program;
    enum hb_log_level level; /* lines below it are dropped */
    unsigned flags;
    /* Receives each line, without its newline; NULL: stderr. */
    void (*sink)(void *arg, enum hb_log_level level, const char *line);
    void *sink_arg;
};

void hb_log(const struct hb_log *log, enum hb_log_level level, const char *fmt,
            ...) __attribute__((format(printf, 3, 4)));

/* Returns whether texts of the level are logged, to avoid work for others. */
static inline int hb_log_enabled(const struct hb_log *log,
                                 enum hb_log_level level)
{
    return log && level >= log->level;
}

/* Parses "TRACE" .. "FATAL", any case.  0 or -HVD_EINVAL. */
int hb_log_level_parse(const char *s, enum hb_log_level *out);
const char *hb_log_level_name(enum hb_log_level level);

#endif
