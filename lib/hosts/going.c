/* SPDX-License-Identifier: Apache-2.0 */
/* See going.h. */
#include "lib/hosts/going.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <string.h>

static const char blanks[] = " \t\r";

/* Returns the next word of *at, which is moved behind it, or NULL. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, blanks);
    size_t len = strcspn(word, blanks);

    if (len == 0)
        return NULL;
    *at = word + len;
    if (**at)
        *(*at)++ = '\0';
    return word;
}

/* Parses a line, which is changed: 1 with *out set, 0 for an empty one, or
 * -HVD_EINVAL with err set. */
static int parse_line(char *line, struct going *out, struct hb_error *err)
{
    char *host, *left;

    line[strcspn(line, "#")] = '\0';
    host = next_word(&line);
    if (!host)
        return 0;
    left = next_word(&line);
    if (next_word(&line))
        return hb_error_set(err, HVD_EINVAL,
                            "more than a host and its seconds");
    out->left_ms = -1;
    if (left && (hb_parse_duration_ms(left, &out->left_ms, err) < 0 ||
                 out->left_ms > GOING_LEFT_MAX_MS)) {
        hb_error_clear(err);
        return hb_error_set(err, HVD_EINVAL,
                            "'%s' is no time from 0 to 86400 seconds", left);
    }
    memcpy(out->host, host, strlen(host) + 1);
    return 1;
}

/* Copies the line that begins at `text`; returns its bytes with the newline, or
 * 0 if it is too long or has a 0 byte. */
static size_t take_line(const char *text, size_t len, char line[GOING_LINE_MAX])
{
    const char *end = memchr(text, '\n', len);
    size_t bytes = end ? (size_t)(end - text) : len;

    if (bytes >= GOING_LINE_MAX || memchr(text, '\0', bytes))
        return 0;
    memcpy(line, text, bytes);
    line[bytes] = '\0';
    return bytes + (end != NULL);
}

int going_parse(const char *text, size_t len, struct going **list,
                size_t *count, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    struct going *items = NULL;
    size_t n = 0, cap = 0;

    if (len > GOING_BYTES_MAX)
        return hb_error_set(err, HVD_EINVAL, "longer than %d bytes",
                            GOING_BYTES_MAX);
    for (int at = 1; len > 0; at++) {
        char line[GOING_LINE_MAX];
        struct going one;
        size_t bytes = take_line(text, len, line);
        int rc = bytes ? parse_line(line, &one, &why)
                       : hb_error_set(&why, HVD_EINVAL,
                                      "too long, or with a 0 byte");

        if (rc < 0) {
            hb_free(items);
            return hb_error_set(err, HVD_EINVAL, "line %d: %s", at, why.text);
        }
        text += bytes;
        len -= bytes;
        if (rc == 0)
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 8;
            items = hb_xrealloc_array(items, cap, sizeof(*items));
        }
        items[n++] = one;
    }
    *list = items;
    *count = n;
    return 0;
}
