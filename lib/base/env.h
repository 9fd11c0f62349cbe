/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked reading of numbers, switches and durations, from the environment
 * and from options.  Nothing else in the project calls getenv, atoi or
 * strtol.
 *
 * hb_parse_* take a whole string: leading or trailing rubbish, an empty
 * string, overflow and a value outside [min, max] are HVD_EINVAL with a
 * text that says what was wrong and what is allowed, without naming the
 * option (callers add that as context).  *out is untouched on failure.
 */
#ifndef HB_ENV_H
#define HB_ENV_H

#include "error.h"

#include <stdint.h>

/* Longest duration accepted: 100 years, so that nanoseconds fit 63 bits. */
#define HB_DURATION_MAX_MS INT64_C(3153600000000)

int hb_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out,
                 struct hb_error *err);
int hb_parse_double(const char *s, double min, double max, double *out,
                    struct hb_error *err);
/* Parses 1 0 yes no true false on off, any case. */
int hb_parse_bool(const char *s, int *out, struct hb_error *err);
/* Parses "30", "1.5", "500ms", "2m" or "1h" into milliseconds; a bare number is
 * in seconds.  A value above zero is never rounded to zero. */
int hb_parse_duration_ms(const char *s, int64_t *out, struct hb_error *err);
/* Parses "65536", "64K", "64KiB", "2M" or "1G" into bytes; K, M, G and T are
 * powers of 1024, any case. */
int hb_parse_size(const char *s, uint64_t *out, struct hb_error *err);

/* Reads a variable of another program, by its whole name; NULL: unset or
 * empty. */
const char *hb_variable(const char *name);

/* Returns the value of a variable that is ignored because this program has more
 * rights than its caller (setuid, setgid, file capabilities); else NULL. */
const char *hb_ignored_variable(const char *name);

/* Returns HVD_<name>, else HOROVOD_<name>, else NULL; an empty value counts as
 * unset. */
const char *hb_knob(const char *name);
/* Returns 1 if hb_knob(name) is the value of HOROVOD_<name>, for a knob with
 * another meaning under that name; else 0. */
int hb_knob_is_horovods(const char *name);
/* Reads and parses a knob; *out keeps its default if the knob is unset. */
int hb_knob_i64(const char *name, int64_t min, int64_t max, int64_t *out,
                struct hb_error *err);
int hb_knob_bool(const char *name, int *out, struct hb_error *err);

#endif
