/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the hostlist parser: a cursor that knows its place in the text,
 * for messages (hostlist.c), the grammar of an entry (hostparse.c), and the
 * list being built with its index by name (hostmerge.c).  Internal to
 * lib/hosts.
 */
#ifndef HVD_HOSTS_HOSTPARSE_H
#define HVD_HOSTS_HOSTPARSE_H

#include "lib/base/buf.h"
#include "lib/hosts/hostlist.h"

#include <stdint.h>

/* A host as written, before ranges are expanded; points into the text. */
struct host_spec {
    const char *name; /* without brackets if an IPv6 address */
    size_t name_len;
    const char *user;
    size_t user_len; /* 0: not given */
    int port, slots, max_slots;
};

struct host_index {
    uint32_t *table; /* entry number + 1 by hash of the name; 0: free */
    size_t size;     /* a power of two */
};

struct host_parser {
    const char *p, *end; /* the line, or all of a -H argument */
    const char *line_start;
    const char *where; /* "-H", a path or a variable; for messages */
    int line;          /* 0: not a file.  < 0: a message names no place */
    struct hostlist list;
    struct host_index index;
    size_t named; /* hosts named so far, including repetitions */
    struct hb_error *err;
};

/* Starts on `len` bytes of text. */
void host_begin(struct host_parser *ps, const char *where, const char *text,
                size_t len, struct hb_error *err);
/* Hands the list over if rc, the result so far, is 0 and a host was named; else
 * frees it.  Returns rc, or -HVD_EINVAL if no host was named. */
int host_finish(struct host_parser *ps, int rc, struct hostlist *l);

/* Sets -HVD_EINVAL with a text that begins with the place of `at`. */
int host_fail(struct host_parser *ps, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int host_no_memory(struct host_parser *ps);

void host_skip_blanks(struct host_parser *ps);
/* Parses [user@]name[:slots] at the cursor, up to one of `seps`, a blank or the
 * end. */
int host_parse_name(struct host_parser *ps, const char *seps,
                    struct host_spec *spec);
/* Parses a number from 1 to max at the cursor, up to one of `seps`, a blank or
 * the end; `what` names it in errors. */
int host_parse_number(struct host_parser *ps, const char *seps,
                      const char *what, int max, int *out);
/* Parses the key=value fields after the name, to the end of the line. */
int host_parse_keys(struct host_parser *ps, struct host_spec *spec);

/* Adds the hosts of spec, with ranges expanded and repetitions merged. */
int host_add_spec(struct host_parser *ps, const struct host_spec *spec);

/* Parses text line by line, without comments: `parse` gets a line's cursor, and
 * adds its hosts.  As hostlist_parse_file_text. */
int host_parse_lines(const char *path, const char *text, size_t len,
                     int (*parse)(struct host_parser *ps), struct hostlist *l,
                     struct hb_error *err);

/* Appends the contents of a file, or of a pipe to its end. */
int host_read_text(const char *path, struct hb_buf *text, struct hb_error *err);

#endif
