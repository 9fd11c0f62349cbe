/* SPDX-License-Identifier: Apache-2.0 */
/* `hvdrun ps`, `kill`, `drain` and `clean`: lists and ends other jobs, makes
 * them leave hosts, and cleans up after them; hvdrun-ps(1). */
#ifndef HVDRUN_JOBS_H
#define HVDRUN_JOBS_H

#include "cmd/hvdrun/options/options.h"
#include "lib/base/buf.h"

#include <jansson.h>

enum {
    JOBS_EXIT_NONE = 1,  /* kill, drain: no such job */
    JOBS_PREFIX_MIN = 6, /* least digits that name a job */
    JOBS_SHOWN_DIGITS = 12,
};

/* Prints the result of the tool and returns hvdrun's exit code. */
int jobs_ps(const struct options *o, const struct hb_log *log);
int jobs_kill(const struct options *o, const struct hb_log *log);
int jobs_drain(const struct options *o, const struct hb_log *log);
int jobs_clean(const struct options *o, const struct hb_log *log);

/* ---- Pure parts, for tests ---- */

struct jobs_answer {
    const char *host;
    const json_t *answer; /* to "ps", "kill" or "clean"; NULL: none */
};

/* Appends the table of ps; nothing if there is no job. */
void jobs_table(const struct jobs_answer *answers, size_t count,
                struct hb_buf *out);
/* Returns a new array of {"id", "state", "hosts": [...]}. */
json_t *jobs_json(const struct jobs_answer *answers, size_t count);

/* Appends a line for each job that the host has ended, or with `dry` would
 * end, as kill and clean print them.  Returns how many of these jobs still
 * have processes. */
size_t jobs_ended(const struct jobs_answer *a, int dry, struct hb_buf *out);
/* Appends a line for each job that the host has been asked to let go of, as
 * drain prints them.  Returns how many will not leave. */
size_t jobs_drained(const struct jobs_answer *a, struct hb_buf *out);
/* Appends a line for each file that clean has removed on the host. */
void jobs_removed(const struct jobs_answer *a, int dry, struct hb_buf *out);

/*
 * Appends to ids the full job ids that `words` stand for, each a unique prefix
 * of an id in the answers; words NULL: all ids.  0, or with err set
 * -HVD_EINVAL (a word is no prefix of an id, or is ambiguous) or -HVD_ENOENT
 * (no job has it).
 */
int jobs_match(const struct jobs_answer *answers, size_t count,
               const struct hb_strv *words, struct hb_strv *ids,
               struct hb_error *err);

#endif
