/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as users write them, and environments.  The input is split into
 * lines: each is tried as every kind of value, then all of them together
 * are an environment in which names are looked up, set and removed.
 */
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>

static void fuzz_numbers(const char *s)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t n = 0;
    double d = 0;
    char text[32];
    int rc;

    rc = hb_parse_i64(s, -1000, INT64_MAX, &n, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(n >= -1000);
        snprintf(text, sizeof(text), "%" PRId64, n);
        FUZZ_CHECK(hb_parse_i64(text, n, n, &n, NULL) == 0);
    }
    hb_error_clear(&err);
    rc = hb_parse_double(s, -1e9, 1e9, &d, &err);
    fuzz_check_error(rc, &err);
    FUZZ_CHECK(d >= -1e9 && d <= 1e9);
}

static void fuzz_units(const char *s)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t ms = 0;
    uint64_t bytes = 0;
    int rc;

    rc = hb_parse_duration_ms(s, &ms, &err);
    fuzz_check_error(rc, &err);
    FUZZ_CHECK(ms >= 0 && ms <= HB_DURATION_MAX_MS);
    if (rc == 0)
        FUZZ_CHECK((ms == 0) == (s[strcspn(s, "123456789")] == '\0'));
    hb_error_clear(&err);
    rc = hb_parse_size(s, &bytes, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0)
        FUZZ_CHECK((bytes == 0) == (s[strcspn(s, "123456789")] == '\0'));
}

static void fuzz_words(const char *s)
{
    struct hb_error err = HB_ERROR_INIT;
    enum hb_log_level level = HB_LOG_INFO;
    int flag = 0;

    fuzz_check_error(hb_parse_bool(s, &flag, &err), &err);
    FUZZ_CHECK(flag == 0 || flag == 1);
    if (hb_log_level_parse(s, &level) == 0)
        FUZZ_CHECK(strcasecmp(hb_log_level_name(level), s) == 0);
}

static int starts_with_name(const char *item, const char *name)
{
    return strncmp(item, name, strlen(name)) == 0 && item[strlen(name)] == '=';
}

static size_t count_name(const struct hb_strv *env, const char *name)
{
    size_t i, n = 0;

    for (i = 0; i < env->count; i++)
        n += (size_t)starts_with_name(env->items[i], name);
    return n;
}

/* Sets, reads back and removes a name taken from the vector itself. */
static void fuzz_name(struct hb_strv *env, const char *item)
{
    char *name = hb_xstrdup(item);
    size_t others;

    name[strcspn(name, "=")] = '\0';
    if (name[0] == '\0') {
        FUZZ_CHECK(hb_env_set(env, name, "v") == -HVD_EINVAL);
    } else {
        others = env->count - count_name(env, name);
        FUZZ_CHECK(hb_env_setf(env, name, "%s", item) == 0);
        FUZZ_CHECK(count_name(env, name) == 1);
        FUZZ_CHECK(env->count == others + 1);
        FUZZ_CHECK(strcmp(hb_env_get(env, name), item) == 0);
        FUZZ_CHECK(hb_env_set(env, name, NULL) == 0);
        FUZZ_CHECK(env->count == others && !hb_env_get(env, name));
    }
    FUZZ_CHECK(!env->items[env->count]);
    hb_free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    struct hb_strv lines = HB_STRV_INIT, env = HB_STRV_INIT;
    size_t i;

    FUZZ_CHECK(hb_strv_split(&lines, text, "\n") == 0);
    FUZZ_CHECK(hb_strv_add_all(&env, lines.items) == 0);
    for (i = 0; i < lines.count; i++) {
        fuzz_numbers(lines.items[i]);
        fuzz_units(lines.items[i]);
        fuzz_words(lines.items[i]);
    }
    for (i = 0; i < lines.count && i < 100; i++)
        fuzz_name(&env, lines.items[i]);
    hb_strv_free(&lines);
    hb_strv_free(&env);
    free(text);
    return 0;
}
