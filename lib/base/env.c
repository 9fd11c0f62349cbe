/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked parsing of values; see env.h.
 *
 * Independent of the locale: libhvd runs inside programs that may have set one,
 * and 1.5 must not become 1 where the decimal sign is a comma.
 *
 * A program that has more rights than its caller (setuid, file capabilities)
 * ignores all variables: some name files that are loaded or written.
 */
#include "lib/base/env.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { VARIABLE_MAX = 128 };

int hb_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out,
                 struct hb_error *err)
{
    const char *digits = s + (s[0] == '-');
    long long v;

    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return hb_error_set(err, HVD_EINVAL,
                            "'%.64s' is not a whole number; "
                            "give one from %" PRId64 " to %" PRId64,
                            s, min, max);
    errno = 0;
    v = strtoll(s, NULL, 10);
    if (errno == ERANGE || v < min || v > max)
        return hb_error_set(err, HVD_EINVAL,
                            "%.64s is out of range; "
                            "give a number from %" PRId64 " to %" PRId64,
                            s, min, max);
    *out = v;
    return 0;
}

/* Parses a decimal number of len characters; not hexadecimal, inf or nan. */
static int parse_decimal(const char *s, size_t len, double *out)
{
    locale_t c_locale;
    char text[64], *end;
    double v;

    if (len == 0 || len >= sizeof(text) || strspn(s, "0123456789.eE+-") < len)
        return -HVD_EINVAL;
    memcpy(text, s, len);
    text[len] = '\0';
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return -HVD_ENOMEM;
    v = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    if (*end != '\0' || !isfinite(v))
        return -HVD_EINVAL;
    *out = v;
    return 0;
}

int hb_parse_double(const char *s, double min, double max, double *out,
                    struct hb_error *err)
{
    double v;

    if (parse_decimal(s, strlen(s), &v) < 0)
        return hb_error_set(err, HVD_EINVAL,
                            "'%.64s' is not a number; "
                            "give one from %g to %g",
                            s, min, max);
    if (v < min || v > max)
        return hb_error_set(err, HVD_EINVAL,
                            "%.64s is out of range; "
                            "give a number from %g to %g",
                            s, min, max);
    *out = v;
    return 0;
}

int hb_parse_bool(const char *s, int *out, struct hb_error *err)
{
    static const char *const words[][2] = {
        {"0", "1"}, {"no", "yes"}, {"false", "true"}, {"off", "on"}};
    size_t i;
    int v;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (v = 0; v < 2; v++) {
            if (strcasecmp(s, words[i][v]) == 0) {
                *out = v;
                return 0;
            }
        }
    }
    return hb_error_set(err, HVD_EINVAL,
                        "'%.64s' is neither yes nor no; give one of "
                        "1 0 yes no true false on off",
                        s);
}

int hb_parse_duration_ms(const char *s, int64_t *out, struct hb_error *err)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
    size_t len = strspn(s, "0123456789."), i;
    double v, ms = 0;

    for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(s + len, units[i].name) == 0)
            ms = units[i].ms;
    }
    if (ms == 0 || parse_decimal(s, len, &v) < 0)
        return hb_error_set(err, HVD_EINVAL,
                            "'%.64s' is not a duration; give seconds, or a "
                            "number with ms, s, m or h (30, 1.5, 500ms, 2m)",
                            s);
    if (v * ms > (double)HB_DURATION_MAX_MS)
        return hb_error_set(err, HVD_EINVAL,
                            "%.64s is out of range; give at most 100 years", s);
    /* A positive value stays positive: 0 often means "no limit". */
    *out = v > 0 && v * ms < 1 ? 1 : (int64_t)(v * ms + 0.5);
    return 0;
}

int hb_parse_size(const char *s, uint64_t *out, struct hb_error *err)
{
    static const char prefixes[] = "KMGT";
    size_t len = strspn(s, "0123456789");
    const char *unit = s + len, *prefix;
    unsigned shift = 0;
    unsigned long long v;

    if (*unit != '\0') {
        prefix = strchr(prefixes, toupper((unsigned char)*unit));
        shift = prefix ? 10u * (unsigned)(prefix - prefixes + 1) : 0;
        unit++;
        if (strcmp(unit, "iB") == 0)
            unit += 2;
    }
    if (len == 0 || *unit != '\0' || (s[len] != '\0' && shift == 0))
        return hb_error_set(err, HVD_EINVAL,
                            "'%.64s' is not a size; give bytes, or a number "
                            "with K, M, G or T in powers of 1024 (64K, 2MiB)",
                            s);
    errno = 0;
    v = strtoull(s, NULL, 10);
    if (errno == ERANGE || v > UINT64_MAX >> shift)
        return hb_error_set(err, HVD_EINVAL,
                            "%.64s is out of range; give less than 2^64 "
                            "bytes",
                            s);
    *out = (uint64_t)v << shift;
    return 0;
}

/* Finds a knob: its value, and in `variable` the name that it was found
 * under. */
static const char *find_knob(const char *name, char variable[VARIABLE_MAX])
{
    static const char *const prefixes[] = {"HVD_", "HOROVOD_"};
    const char *value;
    size_t i;
    int len;

    for (i = 0; i < 2; i++) {
        len = snprintf(variable, VARIABLE_MAX, "%s%s", prefixes[i], name);
        if (len < 0 || len >= VARIABLE_MAX)
            return NULL;
        value = secure_getenv(variable);
        if (value && value[0] != '\0')
            return value;
    }
    return NULL;
}

const char *hb_variable(const char *name)
{
    const char *value = secure_getenv(name);

    return value && value[0] != '\0' ? value : NULL;
}

const char *hb_ignored_variable(const char *name)
{
    return secure_getenv(name) ? NULL : getenv(name);
}

const char *hb_knob(const char *name)
{
    char variable[VARIABLE_MAX];

    return find_knob(name, variable);
}

int hb_knob_is_horovods(const char *name)
{
    char variable[VARIABLE_MAX];

    return find_knob(name, variable) && strncmp(variable, "HOROVOD_", 8) == 0;
}

int hb_knob_i64(const char *name, int64_t min, int64_t max, int64_t *out,
                struct hb_error *err)
{
    char variable[VARIABLE_MAX];
    const char *value = find_knob(name, variable);
    int rc = 0;

    if (value)
        rc = hb_parse_i64(value, min, max, out, err);
    if (rc < 0)
        hb_error_context(err, "%s", variable);
    return rc;
}

int hb_knob_bool(const char *name, int *out, struct hb_error *err)
{
    char variable[VARIABLE_MAX];
    const char *value = find_knob(name, variable);
    int rc = 0;

    if (value)
        rc = hb_parse_bool(value, out, err);
    if (rc < 0)
        hb_error_context(err, "%s", variable);
    return rc;
}
