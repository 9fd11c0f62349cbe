/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host lists: what -H and hostfiles say, as data.  Pure: no I/O but
 * reading the named hostfile, no name look-ups.
 *
 * Grammar of one entry, the same for -H (comma-separated) and hostfiles
 * (one a line):
 *
 *     [user@]name[:slots]       a, a:4, user@a:4
 *     [user@][v6addr][:slots]   [::1]:2
 *     prefix[01-16,20]suffix[:slots]    ranges, zero padding kept
 *
 * and in hostfiles after the name any of `slots=N`, `max_slots=N`,
 * `max-slots=N`, `port=N`, `user=NAME`; `#` starts a comment; blank lines
 * are skipped; lines may end in CRLF and the file may begin with a UTF-8
 * byte order mark.  A range and an IPv6 address are told apart by content:
 * a bracket at the start of the name that holds a colon is an address.  A
 * name may hold several ranges.
 *
 * A name given again is the same host (letters of either case): its slots
 * add up, an entry without slots counting 1 (so a PBS node file, which
 * repeats a name per slot, reads as it should), and max_slots is the
 * largest given.  A user or port given twice must agree.
 */
#ifndef HVD_HOSTS_HOSTLIST_H
#define HVD_HOSTS_HOSTLIST_H

#include "lib/base/error.h"

#include <stddef.h>

enum {
    HOSTS_NAME_MAX = 255,
    HOSTS_SLOTS_MAX = 65536,
    HOSTS_COUNT_MAX = 65536, /* hosts of a list, ranges expanded */
};

struct host_entry {
    char *name;    /* without brackets if an IPv6 address */
    char *user;    /* NULL: not given */
    int port;      /* 0: not given */
    int slots;     /* 0: not given */
    int max_slots; /* 0: no limit given */
};

struct hostlist {
    struct host_entry *entries;
    size_t count, cap;
};

/* clang-format off */
#define HOSTLIST_INIT { NULL, 0, 0 }
/* clang-format on */

void hostlist_free(struct hostlist *l);

/* The parsers expect an empty list and leave it so on failure: 0,
 * -HVD_EINVAL, -HVD_ENOMEM, and for the file also as hb_error_sys. */

/* Parses a -H argument; errors read `-H: column 7: ...`. */
int hostlist_parse(const char *s, struct hostlist *l, struct hb_error *err);

/* Parses hostfile text; errors read `path:line:column: ...`.  An empty
 * list is an error (`path: names no host`). */
int hostlist_parse_file_text(const char *path, const char *text, size_t len,
                             struct hostlist *l, struct hb_error *err);
int hostlist_read_file(const char *path, struct hostlist *l,
                       struct hb_error *err);

/* 1 when the name means this machine: localhost, a 127/8 address, ::1, or
 * `hostname` (full or up to its first dot), compared without case.
 * Addresses of interfaces are compared by lib/transport, which may look. */
int hosts_name_is_local(const char *name, const char *hostname);

#endif
