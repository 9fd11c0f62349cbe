/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a rank's stderr; see tail_view.h. */
#include "lib/job/output/tail_view.h"

#include <string.h>

enum { PREFIX_MAX = 32 };

static const char header[] = "Traceback (most recent call last):";
static const char uncaught[] = "terminate called ";

/* A line, without its end, and where the next one begins. */
struct line {
    const char *p;
    size_t len;
    const char *next;
};

/* What precedes each line of a traceback: nothing, or "[rank0]: ". */
struct prefix {
    const char *p;
    size_t len;
};

/* Reads the line at p; 0 if the text ends there. */
static int read_line(const char *p, const char *end, struct line *out)
{
    const char *newline;

    if (p >= end)
        return 0;
    newline = memchr(p, '\n', (size_t)(end - p));
    out->p = p;
    out->len = (size_t)((newline ? newline : end) - p);
    out->next = newline ? newline + 1 : end;
    if (out->len > 0 && p[out->len - 1] == '\r')
        out->len--;
    return 1;
}

static int begins(const struct line *l, const char *text)
{
    size_t len = strlen(text);

    return l->len >= len && memcmp(l->p, text, len) == 0;
}

/* Removes the prefix from a line; 0 if the line does not have it. */
static int strip(struct line *l, const struct prefix *prefix)
{
    if (l->len < prefix->len || memcmp(l->p, prefix->p, prefix->len) != 0)
        return 0;
    l->p += prefix->len;
    l->len -= prefix->len;
    return 1;
}

static int is_header(const struct line *l, struct prefix *prefix)
{
    const size_t len = sizeof(header) - 1;

    if (l->len < len || l->len - len > PREFIX_MAX ||
        memcmp(l->p + l->len - len, header, len) != 0)
        return 0;
    *prefix = (struct prefix){l->p, l->len - len};
    return 1;
}

static int is_blank(const struct line *l)
{
    for (size_t i = 0; i < l->len; i++)
        if (l->p[i] != ' ' && l->p[i] != '\t')
            return 0;
    return 1;
}

/* Returns the end of an exception's message, whose first line begins at p. */
static const char *message_end(const char *p, const char *end,
                               const struct prefix *prefix)
{
    struct line l;

    for (int n = 0; n < TAIL_MESSAGE_MAX && read_line(p, end, &l); n++) {
        if (!strip(&l, prefix) || is_blank(&l) || begins(&l, uncaught) ||
            begins(&l, header))
            break;
        p = l.next;
    }
    return p;
}

/* Returns the end of the traceback whose first line with a place begins at p:
 * places and code are indented, and the exception follows. */
static const char *traceback_end(const char *p, const char *end,
                                 const struct prefix *prefix)
{
    struct line l;

    while (read_line(p, end, &l) && strip(&l, prefix) && l.len > 0 &&
           l.p[0] == ' ')
        p = l.next;
    return message_end(p, end, prefix);
}

/* Returns where the next traceback begins if only the line that connects it
 * with the one before is between p and it; else NULL. */
static const char *find_next_of_chain(const char *p, const char *end,
                                      const struct prefix *prefix)
{
    static const char *const connections[] = {
        "During handling of the above exception",
        "The above exception was the direct cause",
    };
    struct prefix other;
    struct line l;
    int connected = 0;

    for (; read_line(p, end, &l); p = l.next) {
        if (connected && is_header(&l, &other))
            return p;
        if (!strip(&l, prefix))
            return NULL;
        if (begins(&l, connections[0]) || begins(&l, connections[1]))
            connected = 1;
        else if (!is_blank(&l))
            return NULL;
    }
    return NULL;
}

/* Returns where the places of a traceback begin whose header is lost, because
 * only the end of the text was kept: at its first line; else NULL. */
static const char *find_cut(const char *text, const char *end)
{
    struct line l;

    for (const char *p = text; read_line(p, end, &l) && begins(&l, "  ");
         p = l.next)
        if (begins(&l, "  File \""))
            return text;
    return NULL;
}

/* Sets [*from, *to) to the last traceback and those that it is chained to; 0
 * if there is none.  Python prints one more for each error that it ignores
 * when it ends: those do not count. */
static int find_traceback(const char *text, const char *end, const char **from,
                          const char **to)
{
    struct prefix prefix = {text, 0};
    struct line l;
    int found = 0, ignored = 0;
    const char *p = text, *cut = find_cut(text, end), *next = cut;

    if (cut) {
        *from = cut;
        *to = traceback_end(cut, end, &prefix);
        next = find_next_of_chain(*to, end, &prefix);
        p = *to;
        found = 1;
    }
    for (; read_line(p, end, &l); p = l.next) {
        if (!is_header(&l, &prefix)) {
            ignored = begins(&l, "Exception ignored in");
            continue;
        }
        if (!ignored) {
            if (p != next || !found)
                *from = p;
            *to = traceback_end(l.next, end, &prefix);
            next = find_next_of_chain(*to, end, &prefix);
            found = 1;
        }
        ignored = 0;
    }
    return found;
}

/* Sets [*from, *to) to what C++ says of the last uncaught exception; 0 if there
 * is none. */
static int find_uncaught(const char *text, const char *end, const char **from,
                         const char **to)
{
    const struct prefix none = {text, 0};
    struct line l;
    int found = 0;

    for (const char *p = text; read_line(p, end, &l); p = l.next) {
        if (!begins(&l, uncaught))
            continue;
        *from = p;
        *to = message_end(l.next, end, &none);
        found = 1;
    }
    return found;
}

/* Returns where the last `lines` lines of [text, end) begin. */
static const char *last_lines(const char *text, const char *end, int lines)
{
    const char *p = end;

    while (p > text) {
        if (p[-1] == '\n' && p < end && lines-- == 1)
            break;
        p--;
    }
    return p;
}

/* Returns the end of the text without line ends at its end. */
static const char *trim(const char *text, const char *end)
{
    while (end > text && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    return end;
}

struct tail_view tail_view(const char *text)
{
    struct tail_view v = {.kind = TAIL_NOTHING};
    const char *end = trim(text, text + strlen(text)), *from, *to, *rest;

    if (end == text)
        return v;
    if (find_traceback(text, end, &from, &to))
        v.kind = TAIL_TRACEBACK;
    else if (find_uncaught(text, end, &from, &to))
        v.kind = TAIL_EXCEPTION;
    if (v.kind == TAIL_NOTHING) {
        v.kind = TAIL_LINES;
        v.text = last_lines(text, end, TAIL_LINES_MAX);
        v.len = (size_t)(end - v.text);
        return v;
    }
    v.text = from;
    v.len = (size_t)(trim(from, to) - from);
    rest = to;
    while (rest < end && (*rest == '\n' || *rest == '\r'))
        rest++;
    v.after = last_lines(rest, end, TAIL_AFTER_MAX);
    v.after_len = (size_t)(end - v.after);
    v.gap = v.after > rest;
    return v;
}
