/* SPDX-License-Identifier: Apache-2.0 */
/* `hvdrun ps`, `kill` and `clean`: other jobs, seen and ended from outside;
 * hvdrun-ps(1). */
#ifndef HVDRUN_JOBS_H
#define HVDRUN_JOBS_H

#include "cmd/hvdrun/options.h"
#include "lib/base/buf.h"

#include <jansson.h>

enum {
    JOBS_EXIT_NONE = 1,  /* kill: no such job */
    JOBS_PREFIX_MIN = 6, /* digits of an id that are enough */
    JOBS_SHOWN_DIGITS = 12,
};

/* Each prints, and returns hvdrun's exit code. */
int jobs_ps(const struct options *o, const struct hb_log *log);
int jobs_kill(const struct options *o, const struct hb_log *log);
int jobs_clean(const struct options *o, const struct hb_log *log);

/* ---- Pure parts, for tests ---- */

struct jobs_answer {
    const char *host;
    const json_t *answer; /* to "ps"; NULL: none */
};

/* The table of ps; "" without any job. */
void jobs_table(const struct jobs_answer *answers, size_t count,
                struct hb_buf *out);
/* [{"id", "state", "hosts": [...]}] */
json_t *jobs_json(const struct jobs_answer *answers, size_t count);

/*
 * The full ids that `words` mean, unique beginnings of the ids in the
 * answers, appended to ids; all NULL: every one.  0; -HVD_EINVAL for a word
 * that is no beginning of an id or not unique; -HVD_ENOENT when no job has
 * it: one line in err.
 */
int jobs_match(const struct jobs_answer *answers, size_t count,
               const struct hb_strv *words, struct hb_strv *ids,
               struct hb_error *err);

#endif
