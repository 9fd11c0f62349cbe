/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host lists: -H arguments and hostfiles as data.  Pure: reads the named
 * hostfile, but does no other I/O and no name look-ups.
 *
 * Grammar of one entry, the same for -H (comma-separated) and hostfiles (one a
 * line):
 *
 *     [user@]name[:slots]       a, a:4, user@a:4
 *     [user@][v6addr][:slots]   [::1]:2
 *     prefix[01-16,20]suffix[:slots]    ranges, zero padding kept
 *
 * and in hostfiles after the name any of `slots=N`, `max_slots=N`,
 * `max-slots=N`, `port=N`, `user=NAME`; `#` starts a comment; blank lines are
 * skipped; lines may end in CRLF and the file may begin with a UTF-8 byte order
 * mark.  A bracket at the start of the name is an IPv6 address if it holds a
 * colon, else a range.  A name may hold several ranges.  The numbers of a range
 * have at least as many digits as its first: [8-10] is 8, 9, 10, and [08-100]
 * is 08, 09, 10, ..., 100.
 *
 * A repeated name is the same host (case does not matter): its slots add up, an
 * entry without slots counting 1 (so a PBS node file, which repeats a name per
 * slot, gives the right number), and max_slots is the largest given.  A user or
 * port given twice must agree.
 */
#ifndef HVD_HOSTS_HOSTLIST_H
#define HVD_HOSTS_HOSTLIST_H

#include "lib/base/error.h"

#include <stddef.h>

enum {
    HOSTS_NAME_MAX = 255,
    HOSTS_SLOTS_MAX = 65536,
    HOSTS_COUNT_MAX = 65536, /* hosts in a list, after ranges are expanded */
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

/* The parsers expect an empty list and leave it empty on failure: 0,
 * -HVD_EINVAL or -HVD_ENOMEM; for the file also as hb_error_sys. */

/* Parses a -H argument; errors read `-H: column 7: ...`. */
int hostlist_parse(const char *s, struct hostlist *l, struct hb_error *err);
/* Parses such a list from elsewhere: errors begin with `where`. */
int hostlist_parse_value(const char *where, const char *s, struct hostlist *l,
                         struct hb_error *err);

/* Parses hostfile text; errors read `path:line:column: ...`.  An empty
 * list is an error (`path: names no host`). */
int hostlist_parse_file_text(const char *path, const char *text, size_t len,
                             struct hostlist *l, struct hb_error *err);
int hostlist_read_file(const char *path, struct hostlist *l,
                       struct hb_error *err);

/* Merges entry `from` into entry `into`, which precedes it and is the same host
 * by another name: slots add up as above.  0, or -HVD_EINVAL if they are more
 * than allowed. */
int hostlist_merge(struct hostlist *l, size_t into, size_t from,
                   struct hb_error *err);

/* Returns 1 if the name means this machine: localhost, a 127/8 address, ::1, or
 * `hostname` (full or up to its first dot), compared without case.
 * lib/transport also compares the addresses of interfaces. */
int hosts_name_is_local(const char *name, const char *hostname);

#endif
