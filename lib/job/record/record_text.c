/* SPDX-License-Identifier: Apache-2.0 */
/* Text of ranks and hosts, made safe for files that people open; see
 * record_data.h. */
#include "lib/job/record/record_data.h"

#include "lib/base/alloc.h"
#include "lib/base/quote.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"

#include <string.h>
#include <time.h>

/* Returns the length of the terminal's escape sequence at p: CSI, as colours
 * are, or OSC, as links and titles are; 0 if there is none. */
static size_t escape_len(const char *p)
{
    size_t n = 2;

    if (p[0] != '\033')
        return 0;
    if (p[1] == '[') {
        while (p[n] >= 0x20 && p[n] < 0x40)
            n++;
        return p[n] >= 0x40 && p[n] < 0x7f ? n + 1 : 0;
    }
    if (p[1] != ']')
        return 0;
    while (p[n] && p[n] != '\a' && p[n] != '\n' && p[n] != '\033')
        n++;
    if (p[n] == '\a')
        return n + 1;
    return p[n] == '\033' && p[n + 1] == '\\' ? n + 2 : 0;
}

/* Appends the replacement of a line end or a tab at p.  Returns the length of
 * what was replaced; 0 if there is neither at p. */
static size_t put_blank(struct hb_buf *out, const char *p)
{
    if (p[0] == '\t') {
        xbuf_puts(out, "    ");
        return 1;
    }
    if (p[0] != '\n' && p[0] != '\r')
        return 0;
    xbuf_puts(out, "\n");
    return p[0] == '\r' && p[1] == '\n' ? 2 : 1;
}

/* Replaces U+FFFE and U+FFFF, which XML does not allow. */
static void drop_nonchars(char *s)
{
    for (char *p = s; (p = strstr(p, "\xef\xbf")) != NULL; p += 2)
        if ((unsigned char)p[2] >= 0xbe)
            memset(p, '?', 3);
}

char *record_clean(const char *text)
{
    struct hb_buf out = HB_BUF_INIT;
    char *copy, *line, *end;

    for (const char *p = text ? text : ""; *p;) {
        size_t n = escape_len(p);

        if (n == 0)
            n = put_blank(&out, p);
        if (n == 0)
            xbuf_append(&out, p, n = 1);
        p += n;
    }
    copy = hb_buf_detach(&out);
    if (!copy)
        hb_die_oom();
    for (line = copy; line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end)
            *end = '\0';
        hb_text_sanitize(line);
        if (end)
            *end = '\n';
    }
    drop_nonchars(copy);
    return copy;
}

void record_escape(struct hb_buf *out, const char *text)
{
    char *clean = record_clean(text);

    for (const char *p = clean; *p;) {
        size_t n = strcspn(p, "&<>\"'");

        xbuf_append(out, p, n);
        p += n;
        if (*p)
            hb_must(hb_buf_printf(out, "&#%d;", *p++));
    }
    hb_free(clean);
}

void record_command(struct hb_buf *out, const struct record *r)
{
    for (size_t i = 0; i < r->argv.count; i++) {
        xbuf_puts(out, i > 0 ? " " : "");
        hb_must(hb_quote_word(r->argv.items[i], out));
    }
}

void record_time(struct hb_buf *out, uint64_t wall_ns)
{
    time_t s = (time_t)(wall_ns / 1000000000);
    char text[40];
    struct tm tm;

    if (!gmtime_r(&s, &tm))
        memset(&tm, 0, sizeof(tm));
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    xbuf_puts(out, text);
}
