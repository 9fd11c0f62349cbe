/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of http.h. */
#include "lib/agent/horovod/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A part of the head, not terminated. */
struct span {
    const char *p;
    size_t len;
};

static int equals(struct span s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.p, text, s.len) == 0;
}

/* Takes the bytes before the first `end` off *from; 0 if there is none. */
static int take_until(struct span *from, char end, struct span *out)
{
    const char *at = memchr(from->p, end, from->len);

    if (!at)
        return 0;
    *out = (struct span){from->p, (size_t)(at - from->p)};
    from->len -= out->len + 1;
    from->p = at + 1;
    return 1;
}

/* Takes a line off *from, which holds whole lines.  0 if it does not end with
 * CR LF, or has other control characters. */
static int take_line(struct span *from, struct span *out)
{
    if (!take_until(from, '\n', out) || out->len == 0 ||
        out->p[out->len - 1] != '\r')
        return 0;
    out->len--;
    for (size_t i = 0; i < out->len; i++)
        if (((unsigned char)out->p[i] < ' ' && out->p[i] != '\t') ||
            out->p[i] == 0x7f)
            return 0;
    return 1;
}

static int copy_name(struct span s, char out[HTTP_NAME_BYTES])
{
    if (s.len == 0 || s.len >= HTTP_NAME_BYTES)
        return 0;
    for (size_t i = 0; i < s.len; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~' || s.p[i] == '/')
            return 0;
    memcpy(out, s.p, s.len);
    out[s.len] = '\0';
    return 1;
}

static int parse_method(struct span s, enum http_method *out)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_GET}, {"PUT", HTTP_PUT}, {"DELETE", HTTP_DELETE}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (equals(s, known[i].name)) {
            *out = known[i].method;
            return 1;
        }
    return 0;
}

/* Parses the request line: 0 or a negative status code. */
static int parse_request_line(struct span line, struct http_request *out)
{
    struct span method, path, scope;

    if (!take_until(&line, ' ', &method) || !take_until(&line, ' ', &path))
        return -400;
    if (!equals(line, "HTTP/1.1") && !equals(line, "HTTP/1.0"))
        return -505;
    if (!parse_method(method, &out->method))
        return -501;
    if (path.len == 0 || path.p[0] != '/')
        return -400;
    path.p++;
    path.len--;
    if (!take_until(&path, '/', &scope) || !copy_name(scope, out->scope) ||
        !copy_name(path, out->key))
        return -400;
    return 0;
}

static int parse_length(struct span value, size_t *out)
{
    size_t n = 0;

    if (value.len == 0)
        return -400;
    for (size_t i = 0; i < value.len; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return -400;
        n = 10 * n + (size_t)(value.p[i] - '0');
        if (n > HTTP_BODY_MAX)
            return -413;
    }
    *out = n;
    return 0;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Parses a header: 0 or a negative status code.  *has_length notes that
 * Content-Length was seen. */
static int parse_header(struct span line, struct http_request *out,
                        int *has_length)
{
    struct span name;

    if (!take_until(&line, ':', &name) || name.len == 0)
        return -400;
    for (size_t i = 0; i < name.len; i++)
        if (is_blank(name.p[i]))
            return -400;
    while (line.len > 0 && is_blank(line.p[0])) {
        line.p++;
        line.len--;
    }
    while (line.len > 0 && is_blank(line.p[line.len - 1]))
        line.len--;
    if (name.len == strlen("Transfer-Encoding") &&
        strncasecmp(name.p, "Transfer-Encoding", name.len) == 0)
        return -501;
    if (name.len != strlen("Content-Length") ||
        strncasecmp(name.p, "Content-Length", name.len) != 0)
        return 0;
    if (*has_length)
        return -400;
    *has_length = 1;
    return parse_length(line, &out->body_len);
}

/* Returns the length of the head with its empty line, or 0. */
static size_t head_end(const char *bytes, size_t len)
{
    const char *end = memmem(bytes, len, "\r\n\r\n", 4);

    return end ? (size_t)(end - bytes) + 4 : 0;
}

int http_parse(const char *bytes, size_t len, struct http_request *out)
{
    size_t limit = len < HTTP_HEAD_MAX ? len : HTTP_HEAD_MAX;
    size_t head = len ? head_end(bytes, limit) : 0;
    struct span rest = {bytes, head ? head - 2 : 0}, line;
    int rc, has_length = 0;

    if (!head)
        return len < HTTP_HEAD_MAX ? 0 : -431;
    memset(out, 0, sizeof(*out));
    out->head_len = head;
    if (!take_line(&rest, &line))
        return -400;
    rc = parse_request_line(line, out);
    while (rc == 0 && rest.len > 0)
        rc = take_line(&rest, &line) ? parse_header(line, out, &has_length)
                                     : -400;
    if (rc < 0)
        return rc;
    if (out->method == HTTP_PUT && !has_length)
        return -411;
    if (out->method != HTTP_PUT && out->body_len > 0)
        return -400;
    return 1;
}

static const char *reason(int code)
{
    switch (code) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 411:
        return "Length Required";
    case 413:
        return "Content Too Large";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Bad Request";
    }
}

size_t http_reply_head(char head[HTTP_REPLY_HEAD_MAX], int code,
                       size_t body_len)
{
    int n = snprintf(head, HTTP_REPLY_HEAD_MAX,
                     "HTTP/1.1 %d %s\r\n"
                     "Content-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     code, reason(code), body_len);

    return (size_t)n;
}
