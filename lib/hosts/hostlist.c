/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host lists; see hostlist.h.  This file divides a -H argument into entries and
 * a hostfile into lines, and reports where an error is.
 */
#include "lib/hosts/hostlist.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/hosts/hostparse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 16 << 20 };

void hostlist_free(struct hostlist *l)
{
    size_t i;

    for (i = 0; i < l->count; i++) {
        hb_free(l->entries[i].name);
        hb_free(l->entries[i].user);
    }
    hb_free(l->entries);
    memset(l, 0, sizeof(*l));
}

int host_fail(struct host_parser *ps, const char *at, const char *fmt, ...)
{
    char text[HB_ERROR_TEXT_MAX];
    int column = ps->line < 0 ? 0 : (int)(at - ps->line_start) + 1;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (ps->line < 0)
        return hb_error_set(ps->err, HVD_EINVAL, "%.200s: %s", ps->where, text);
    if (ps->line == 0)
        return hb_error_set(ps->err, HVD_EINVAL, "%.200s: column %d: %s",
                            ps->where, column, text);
    return hb_error_set(ps->err, HVD_EINVAL, "%.200s:%d:%d: %s", ps->where,
                        ps->line, column, text);
}

int host_no_memory(struct host_parser *ps)
{
    return hb_error_set(ps->err, HVD_ENOMEM, "%.200s: out of memory",
                        ps->where);
}

void host_skip_blanks(struct host_parser *ps)
{
    while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\t'))
        ps->p++;
}

void host_begin(struct host_parser *ps, const char *where, const char *text,
                size_t len, struct hb_error *err)
{
    memset(ps, 0, sizeof(*ps));
    ps->p = ps->line_start = text;
    ps->end = text + len;
    ps->where = where;
    ps->err = err;
}

int host_finish(struct host_parser *ps, int rc, struct hostlist *l)
{
    hb_free(ps->index.table);
    if (rc == 0 && ps->list.count == 0)
        rc = hb_error_set(ps->err, HVD_EINVAL, "%.200s: names no host",
                          ps->where);
    if (rc < 0) {
        hostlist_free(&ps->list);
        return rc;
    }
    *l = ps->list;
    return 0;
}

static int parse_argument(struct host_parser *ps)
{
    for (;;) {
        struct host_spec spec;
        int rc = host_parse_name(ps, ",", &spec);

        if (rc == 0)
            rc = host_add_spec(ps, &spec);
        if (rc < 0)
            return rc;
        host_skip_blanks(ps);
        if (ps->p == ps->end)
            return 0;
        if (*ps->p != ',')
            return host_fail(ps, ps->p, "a comma is missing between two hosts");
        ps->p++;
    }
}

int hostlist_parse_value(const char *where, const char *s, struct hostlist *l,
                         struct hb_error *err)
{
    struct host_parser ps;
    int rc = 0;

    host_begin(&ps, where, s, strlen(s), err);
    host_skip_blanks(&ps);
    if (ps.p < ps.end)
        rc = parse_argument(&ps);
    return host_finish(&ps, rc, l);
}

int hostlist_parse(const char *s, struct hostlist *l, struct hb_error *err)
{
    return hostlist_parse_value("-H", s, l, err);
}

static int parse_line(struct host_parser *ps)
{
    struct host_spec spec;
    int rc;

    host_skip_blanks(ps);
    if (ps->p == ps->end)
        return 0;
    rc = host_parse_name(ps, "", &spec);
    if (rc == 0)
        rc = host_parse_keys(ps, &spec);
    if (rc == 0)
        rc = host_add_spec(ps, &spec);
    return rc;
}

/* Sets the cursor to [p, end) of the line, without comment and final CR. */
static void set_line(struct host_parser *ps, const char *p, const char *eol)
{
    size_t len = (size_t)(eol - p);
    const char *hash = memchr(p, '#', len);

    ps->line++;
    ps->line_start = ps->p = p;
    ps->end = eol;
    if (len > 0 && eol[-1] == '\r')
        ps->end--;
    if (hash)
        ps->end = hash;
}

int host_parse_lines(const char *path, const char *text, size_t len,
                     int (*parse)(struct host_parser *ps), struct hostlist *l,
                     struct hb_error *err)
{
    static const char bom[] = "\xef\xbb\xbf";
    const char *file_end = text + len, *p = text, *eol;
    struct host_parser ps;
    int rc = 0;

    if (len >= 3 && memcmp(p, bom, 3) == 0)
        p += 3;
    host_begin(&ps, path, p, 0, err);
    while (rc == 0 && p < file_end) {
        eol = memchr(p, '\n', (size_t)(file_end - p));
        set_line(&ps, p, eol ? eol : file_end);
        rc = parse(&ps);
        p = eol ? eol + 1 : file_end;
    }
    return host_finish(&ps, rc, l);
}

int hostlist_parse_file_text(const char *path, const char *text, size_t len,
                             struct hostlist *l, struct hb_error *err)
{
    return host_parse_lines(path, text, len, parse_line, l, err);
}

/* Reads to the end, because the size of a pipe is not known before. */
static int read_all(int fd, const char *path, struct hb_buf *text,
                    struct hb_error *err)
{
    char chunk[16384];
    ssize_t n;

    for (;;) {
        n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return hb_error_sys(err, errno, "hostfile %.200s: cannot read",
                                path);
        if (n == 0)
            return 0;
        if (hb_buf_len(text) + (size_t)n > FILE_BYTES_MAX)
            return hb_error_set(err, HVD_EINVAL,
                                "hostfile %.200s: longer than %d MiB; is "
                                "it a hostfile?",
                                path, FILE_BYTES_MAX >> 20);
        if (hb_buf_append(text, chunk, (size_t)n) < 0)
            return hb_error_set(err, HVD_ENOMEM,
                                "hostfile %.200s: out of memory", path);
    }
}

int host_read_text(const char *path, struct hb_buf *text, struct hb_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc;

    if (fd < 0)
        return hb_error_sys(err, errno, "hostfile %.200s: cannot open", path);
    rc = read_all(fd, path, text, err);
    close(fd);
    return rc;
}

int hostlist_read_file(const char *path, struct hostlist *l,
                       struct hb_error *err)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = host_read_text(path, &text, err);

    if (rc == 0)
        rc = hostlist_parse_file_text(path, hb_buf_data(&text),
                                      hb_buf_len(&text), l, err);
    hb_buf_free(&text);
    return rc;
}

static int is_loopback(const char *name)
{
    struct in6_addr v6;
    struct in_addr v4;

    if (inet_pton(AF_INET, name, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

int hosts_name_is_local(const char *name, const char *hostname)
{
    size_t label = strcspn(hostname, ".");

    if (strcasecmp(name, "localhost") == 0 || is_loopback(name))
        return 1;
    if (name[0] == '\0' || hostname[0] == '\0')
        return 0;
    return strcasecmp(name, hostname) == 0 ||
           (strlen(name) == label && strncasecmp(name, hostname, label) == 0);
}
