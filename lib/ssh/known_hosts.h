/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What known_hosts files (sshd(8)) say about one host.  Pure: the caller reads
 * the files.
 *
 *     struct known_hosts k = KNOWN_HOSTS_INIT;
 *     known_hosts_read(&k, "[n1]:2222", path, text, len);    each file
 *     known_hosts_algorithms(&k, allowed, able, &list);      before the kex
 *     known_hosts_judge(&k, blob, blob_len, &key);           after it
 *     known_hosts_free(&k);
 *
 * As in OpenSSH, if any key without a marker is known for a host, and the host
 * shows another key, its key has changed.  The type of the keys does not
 * matter: otherwise another machine could choose a type that is not in the
 * file, and pass for a host that is not known yet.
 *
 * libssh2's own reader is not used: it supports neither markers (it takes a
 * revoked key for a match) nor patterns.
 */
#ifndef HVD_TRANSPORT_KNOWN_HOSTS_H
#define HVD_TRANSPORT_KNOWN_HOSTS_H

#include "lib/base/buf.h"

#include <stddef.h>

enum known_marker { KNOWN_NO_MARKER, KNOWN_REVOKED_KEY, KNOWN_AUTHORITY };

enum known_verdict {
    KNOWN_UNKNOWN, /* no key of the host is known */
    KNOWN_MATCH,
    KNOWN_CHANGED, /* only other keys are known */
    KNOWN_REVOKED,
};

/* A line that concerns the host. */
struct known_key {
    enum known_marker marker;
    char *type; /* "ssh-ed25519" */
    unsigned char *blob;
    size_t len;
    char *file;
    int line;
};

struct known_hosts {
    struct known_key *keys;
    size_t count;
};

/* clang-format off */
#define KNOWN_HOSTS_INIT { NULL, 0 }
/* clang-format on */

enum { KNOWN_HOSTS_SALT_BYTES = 20 };

/* Appends the name that files use for a server, without port 22.  0 or
 * -HVD_ENOMEM. */
int known_hosts_name(const char *host, int port, struct hb_buf *out);

/* Adds the lines of a file that concern `name`; malformed lines are skipped. 0;
 * -HVD_EUNSUPPORTED if libcrypto refuses to hash names; -HVD_ENOMEM. */
int known_hosts_read(struct known_hosts *k, const char *name, const char *file,
                     const char *text, size_t len);
void known_hosts_free(struct known_hosts *k); /* leaves it empty */

/* Judges a host's key.  *which is the line that decided, or NULL. */
enum known_verdict known_hosts_judge(const struct known_hosts *k,
                                     const void *blob, size_t len,
                                     const struct known_key **which);
/* Returns 1 if a line lets an authority sign keys of this host. */
int known_hosts_has_authority(const struct known_hosts *k);

/*
 * Appends the host key algorithms for the key exchange, best first: those in
 * both `allowed` and `able` (comma-separated lists), beginning with those for
 * which a key is known.
 * - 0
 * - -HVD_EUNSUPPORTED: no algorithm is in both lists; or keys of the host are
 *   known and none of their types is in both lists
 * - -HVD_ENOMEM
 */
int known_hosts_algorithms(const struct known_hosts *k, const char *allowed,
                           const char *able, struct hb_buf *out);

/* Copies the type named in a key, cut to size; "" if malformed. */
void known_hosts_key_type(const void *blob, size_t len, char *out, size_t size);
/* Appends "SHA256:..." as ssh prints it. */
int known_hosts_fingerprint(const void *blob, size_t len, struct hb_buf *out);
/* Appends a line for a file, with its newline; the name is hashed with salt
 * unless that is NULL.  As known_hosts_read. */
int known_hosts_line(const char *name, const void *blob, size_t len,
                     const unsigned char salt[KNOWN_HOSTS_SALT_BYTES],
                     struct hb_buf *out);

/* Matches a list of patterns with * ? and !; for tests. */
int known_hosts_match(const char *patterns, size_t len, const char *name);

#endif
