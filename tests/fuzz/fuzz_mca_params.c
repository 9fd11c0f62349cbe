/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/agent/wireup/pmix/mca_params: what a file of Open MPI's says of a
 * parameter, and the list that hvdrun makes of it.  A second parser, byte by
 * byte from the end, finds the value; a second reader of lists counts names.
 */
#include "lib/agent/wireup/pmix/mca_params.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"

#include <ctype.h>

#define NAME "mtl"

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Narrows [*from, *to) to what lies between its outer blanks. */
static void trim(const char **from, const char **to)
{
    while (*from < *to && is_blank(**from))
        (*from)++;
    while (*to > *from && is_blank((*to)[-1]))
        (*to)--;
}

/* Judges a line: 1 with the value's bounds if it sets NAME, 0 if it does not,
 * -1 if it is an option. */
static int judge_line(const char **from, const char **to)
{
    const char *equals, *name_end;

    trim(from, to);
    if (*from < *to && **from == '-')
        return -1;
    equals = memchr(*from, '=', (size_t)(*to - *from));
    name_end = equals;
    if (!equals)
        return 0;
    trim(from, &name_end);
    if (name_end - *from != (ptrdiff_t)strlen(NAME) ||
        memcmp(*from, NAME, strlen(NAME)) != 0)
        return 0;
    *from = equals + 1;
    trim(from, to);
    return 1;
}

/* Finds the value from the last line back: its copy, or NULL; *rc as that of
 * mca_find. */
static char *find_backwards(const char *text, size_t len, int *rc)
{
    const char *end = text + len;
    char *value = NULL;

    *rc = memchr(text, 0, len) || strstr(text, "/*") ? -1 : 0;
    while (*rc == 0 && end > text) {
        const char *from = end, *to = end;
        int is_set;

        while (from > text && from[-1] != '\n')
            from--;
        end = from > text ? from - 1 : text;
        is_set = judge_line(&from, &to);
        if (is_set < 0)
            *rc = -1;
        else if (is_set && !value)
            value = fuzz_string(from, (size_t)(to - from));
    }
    if (*rc < 0) {
        free(value);
        value = NULL;
    }
    return value;
}

/* Counts how often a name stands in a list, "^a,b". */
static int count_name(const char *list, const char *name)
{
    int count = 0;

    for (const char *p = list + 1; *p;) {
        size_t len = strcspn(p, ",");

        count += len == strlen(name) && memcmp(p, name, len) == 0;
        p += len + (p[len] == ',');
    }
    return count;
}

static int is_list(const char *value)
{
    for (const char *p = value + 1; value[0] == '^' && *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != ',')
            return 0;
    return value[0] == '^' && strlen(value) <= 1024;
}

static void check_list(const char *value)
{
    static const char *const more[] = {"x", "psm2", "x"};
    char *list = mca_extend(value, more, 3);

    FUZZ_CHECK((list != NULL) == is_list(value));
    if (!list)
        return;
    FUZZ_CHECK(strncmp(list, value, strlen(value)) == 0);
    for (size_t i = 0; i < 2; i++) {
        int before = count_name(value, more[i]);

        FUZZ_CHECK(count_name(list, more[i]) == (before ? before : 1));
    }
    hb_free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size), *copy = fuzz_string(data, size);
    const char *value;
    int expected_rc, rc = mca_find(text, size, NAME, &value);
    char *expected = find_backwards(copy, size, &expected_rc);

    FUZZ_CHECK(rc == expected_rc);
    FUZZ_CHECK((value != NULL) == (expected != NULL));
    if (value) {
        FUZZ_CHECK(value >= text && value <= text + size);
        FUZZ_CHECK(strcmp(value, expected) == 0);
        check_list(value);
    }
    free(expected);
    free(copy);
    free(text);
    return 0;
}
