/* SPDX-License-Identifier: Apache-2.0 */
/* Text helpers; see text.h.  No allocation. */
#include "lib/base/text.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { NEAREST_NAME_MAX = 64 };

/* Returns the bytes of the UTF-8 character at p, 0 if it is malformed. */
static size_t utf8_len(const unsigned char *p)
{
    size_t len = *p < 0x80                  ? 1
                 : *p >= 0xc2 && *p <= 0xdf ? 2
                 : (*p & 0xf0) == 0xe0      ? 3
                 : *p >= 0xf0 && *p <= 0xf4 ? 4
                                            : 0;

    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* overlong form, surrogate, or beyond U+10FFFF */
    if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
        (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* Returns whether the UTF-8 character of len bytes at p affects the text around
 * it: a control, a change of direction, a line separator. */
static int is_control(const unsigned char *p, size_t len)
{
    unsigned c;

    switch (len) {
    case 1:
        return *p < 0x20 || *p == 0x7f;
    case 2:
        c = (*p & 0x1fu) << 6 | (p[1] & 0x3fu);
        return c <= 0x9f || c == 0x61c;
    case 3:
        c = (*p & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        return c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
               (c >= 0x2066 && c <= 0x2069);
    default:
        return 0;
    }
}

void hb_text_sanitize(char *s)
{
    unsigned char *p = (unsigned char *)s;

    while (*p) {
        size_t len = utf8_len(p);

        if (len == 0 || is_control(p, len)) {
            len = len ? len : 1;
            memset(p, '?', len);
        }
        p += len;
    }
}

void hb_text_trim_cut(char *s)
{
    size_t len = strlen(s), back = 1, want;
    unsigned char lead;

    while (back < len && back < 4 && ((unsigned char)s[len - back] >> 6) == 2)
        back++;
    if (len == 0)
        return;
    lead = (unsigned char)s[len - back];
    if (lead >= 0xf0)
        want = 4;
    else if (lead >= 0xe0)
        want = 3;
    else if (lead >= 0xc0)
        want = 2;
    else
        return;
    if (back < want)
        s[len - back] = '\0';
}

static int same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;

    return m < c ? m : c;
}

/* Computes the Levenshtein distance, one row at a time. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NEAREST_NAME_MAX + 1];
    size_t la = strlen(a), lb = strlen(b), i, j;

    if (la > NEAREST_NAME_MAX || lb > NEAREST_NAME_MAX)
        return (size_t)-1;
    for (j = 0; j <= lb; j++)
        row[j] = j;
    for (i = 1; i <= la; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (j = 1; j <= lb; j++) {
            size_t above = row[j];
            size_t swap = diagonal + !same_letter(a[i - 1], b[j - 1]);

            row[j] = min3(above + 1, row[j - 1] + 1, swap);
            diagonal = above;
        }
    }
    return row[lb];
}

const char *hb_text_nearest(const char *s, const char *const *names,
                            size_t count)
{
    const char *best = NULL;
    /* Tolerates wrong letters: a third of them, but at least two. */
    size_t limit = strlen(s) / 3 < 2 ? 2 : strlen(s) / 3;
    size_t best_distance = limit + 1, i;

    for (i = 0; i < count; i++) {
        size_t d = distance(s, names[i]);

        /* A name with nothing in common is not a hint. */
        if (d < best_distance && d < strlen(names[i]) && d < strlen(s)) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

const char *hb_signal_name(int signo, char text[HB_SIGNAL_NAME_MAX])
{
    const char *abbrev = sigabbrev_np(signo);

    if (abbrev)
        snprintf(text, HB_SIGNAL_NAME_MAX, "SIG%s", abbrev);
    else if (signo >= SIGRTMIN && signo <= SIGRTMAX)
        snprintf(text, HB_SIGNAL_NAME_MAX, "SIGRTMIN+%d", signo - SIGRTMIN);
    else
        snprintf(text, HB_SIGNAL_NAME_MAX, "signal %d", signo);
    return text;
}
