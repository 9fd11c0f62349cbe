/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/hosts/going: what a file or script says of hosts that will go.  A second
 * parser, word by word, says how many hosts there are and which; times are
 * those of hb_parse_duration_ms.
 */
#include "lib/hosts/going.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

enum { WORDS = 4 };

/* Splits a line, without its comment, into at most WORDS words. */
static int split(char *line, char *words[WORDS])
{
    int count = 0, inside = 0;

    for (char *p = line; *p && *p != '#'; p++) {
        int blank = *p == ' ' || *p == '\t' || *p == '\r';

        if (!blank && !inside && count < WORDS)
            words[count++] = p;
        inside = !blank;
    }
    for (char *p = line; *p; p++)
        if (*p == ' ' || *p == '\t' || *p == '\r' || *p == '#')
            *p = '\0';
    return count;
}

/* Returns whether the line is good; *is_host: and names a host, as `one`. */
static int judge(char *line, struct going *one, int *is_host)
{
    char *comment = strchr(line, '#'), *words[WORDS];
    int count;

    if (comment)
        *comment = '\0';
    count = split(line, words);
    *is_host = count > 0;
    if (count == 0)
        return 1;
    if (count > 2)
        return 0;
    one->left_ms = -1;
    snprintf(one->host, sizeof(one->host), "%s", words[0]);
    return count == 1 ||
           (hb_parse_duration_ms(words[1], &one->left_ms, NULL) == 0 &&
            one->left_ms <= GOING_LEFT_MAX_MS);
}

/* Checks the list against the text, which is all of it, or good up to the line
 * that err names. */
static void check(const char *text, size_t len, const struct going *list,
                  size_t count, int rc)
{
    size_t found = 0;
    int good = len <= GOING_BYTES_MAX;

    while (good && len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t bytes = end ? (size_t)(end - text) : len;
        char *line = fuzz_string(text, bytes);
        struct going one;
        int is_host = 0;

        good = bytes < GOING_LINE_MAX && strlen(line) == bytes &&
               judge(line, &one, &is_host);
        if (good && is_host && rc == 0) {
            FUZZ_CHECK(found < count);
            FUZZ_CHECK(strcmp(list[found].host, one.host) == 0);
            FUZZ_CHECK(list[found].left_ms == one.left_ms);
        }
        found += (size_t)is_host;
        free(line);
        bytes += end != NULL;
        text += bytes;
        len -= bytes;
    }
    FUZZ_CHECK(good == (rc == 0));
    FUZZ_CHECK(rc < 0 || found == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hb_error err = HB_ERROR_INIT;
    char *text = fuzz_copy(data, size);
    struct going *list = NULL;
    size_t count = 0;
    int rc = going_parse(text, size, &list, &count, &err);

    fuzz_check_error(rc, &err);
    FUZZ_CHECK(rc == 0 || !list);
    check(text, size, list, count, rc);
    hb_free(list);
    free(text);
    return 0;
}
