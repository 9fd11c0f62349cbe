/* SPDX-License-Identifier: Apache-2.0 */
/* Parses line by line, in place; a value is built in a buffer. */
#include "cmd/hvdrun/options/env_file.h"

#include "cmd/hvdrun/options/readfile.h"
#include "lib/base/buf.h"

#include <string.h>

struct line {
    const char *path;
    int number;
    const char *p, *end; /* unparsed rest of the line */
};

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(struct line *l)
{
    while (l->p < l->end && is_blank(*l->p))
        l->p++;
}

int env_name_ok(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];

        if (c <= ' ' || c == '=' || c == 127)
            return 0;
    }
    return len > 0;
}

static int line_error(const struct line *l, struct hb_error *err,
                      const char *what)
{
    return hb_error_set(err, HVD_EINVAL, "%s:%d: %s", l->path, l->number, what);
}

static char unescape(char c)
{
    return (char)(c == 'n' ? '\n' : c == 't' ? '\t' : c);
}

/* Parses a quoted value; l->p is at the opening quote. */
static int parse_quoted(struct line *l, struct hb_buf *value,
                        struct hb_error *err)
{
    char quote = *l->p++;

    while (l->p < l->end && *l->p != quote) {
        char c = *l->p++;

        if (c == '\\' && quote == '"') {
            if (l->p == l->end || !strchr("nt\"\\$`", *l->p))
                return line_error(l, err,
                                  "\\ in double quotes stands only before "
                                  "n t \" \\ $ `; write \\\\");
            c = unescape(*l->p++);
        }
        if (hb_buf_putc(value, c) < 0)
            return hb_error_set(err, HVD_ENOMEM, "out of memory");
    }
    if (l->p == l->end)
        return line_error(l, err, "the quote is not closed on this line");
    l->p++;
    skip_blanks(l);
    if (l->p < l->end && *l->p != '#')
        return line_error(l, err, "text after the closing quote");
    return 0;
}

static int parse_value(struct line *l, struct hb_buf *value,
                       struct hb_error *err)
{
    skip_blanks(l);
    if (l->p < l->end && (*l->p == '\'' || *l->p == '"'))
        return parse_quoted(l, value, err);
    while (l->end > l->p && is_blank(l->end[-1]))
        l->end--;
    if (hb_buf_append(value, l->p, (size_t)(l->end - l->p)) < 0)
        return hb_error_set(err, HVD_ENOMEM, "out of memory");
    return 0;
}

static int parse_line(struct line *l, struct hb_strv *out, struct hb_error *err)
{
    struct hb_buf value = HB_BUF_INIT;
    const char *equals;
    int rc;

    skip_blanks(l);
    if (l->p == l->end || *l->p == '#')
        return 0;
    if (l->end - l->p > 7 && !memcmp(l->p, "export", 6) && is_blank(l->p[6])) {
        l->p += 7;
        skip_blanks(l);
    }
    equals = memchr(l->p, '=', (size_t)(l->end - l->p));
    if (!equals)
        return line_error(l, err, "expected NAME=VALUE");
    if (!env_name_ok(l->p, (size_t)(equals - l->p)))
        return line_error(l, err, "no variable can have this name");
    rc = hb_buf_append(&value, l->p, (size_t)(equals - l->p) + 1);
    l->p = equals + 1;
    if (!rc)
        rc = parse_value(l, &value, err);
    if (!rc)
        rc = hb_strv_add(out, hb_buf_data(&value));
    if (rc == -HVD_ENOMEM)
        hb_error_set(err, HVD_ENOMEM, "out of memory");
    hb_buf_free(&value);
    return rc;
}

int env_file_parse(const char *path, const char *text, size_t len,
                   struct hb_strv *out, struct hb_error *err)
{
    const char *end = text + len;
    struct line l = {.path = path};

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        int rc;

        l.number++;
        l.p = text;
        l.end = newline ? newline : end;
        text = newline ? newline + 1 : end;
        if (memchr(l.p, '\0', (size_t)(l.end - l.p)))
            return line_error(&l, err, "a zero byte; is this a text file?");
        rc = parse_line(&l, out, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int env_file_read(const char *path, struct hb_strv *out, struct hb_error *err)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = readfile(path, ENV_FILE_BYTES_MAX, &text, err);

    if (!rc)
        rc = env_file_parse(path, hb_buf_data(&text), hb_buf_len(&text), out,
                            err);
    hb_buf_free(&text);
    return rc;
}
