/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What known_hosts files (sshd(8)) say about one host.  Pure: the caller
 * reads the files.
 *
 *     struct known_hosts k = KNOWN_HOSTS_INIT;
 *     known_hosts_read(&k, "[n1]:2222", path, text, len);    each file
 *     known_hosts_algorithms(&k, allowed, able, &list);      before the kex
 *     known_hosts_judge(&k, blob, blob_len, &key);           after it
 *     known_hosts_free(&k);
 *
 * libssh2's own reader knows neither markers (a revoked key is a match) nor
 * patterns, and takes a key of another type for a changed one.
 */
#ifndef HVD_TRANSPORT_KNOWN_HOSTS_H
#define HVD_TRANSPORT_KNOWN_HOSTS_H

#include "lib/base/buf.h"

#include <stddef.h>

enum known_marker { KNOWN_NO_MARKER, KNOWN_REVOKED_KEY, KNOWN_AUTHORITY };

enum known_verdict {
    KNOWN_UNKNOWN, /* no key of this type is known */
    KNOWN_MATCH,
    KNOWN_CHANGED, /* another key of this type is known */
    KNOWN_REVOKED,
};

/* A line that is about the host. */
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

/* The name that files use for a server; 0 or -HVD_ENOMEM.  port 22 is not
 * mentioned. */
int known_hosts_name(const char *host, int port, struct hb_buf *out);

/* Adds the lines of a file that are about `name`.  Lines that make no sense
 * are skipped.  0 or -HVD_ENOMEM. */
int known_hosts_read(struct known_hosts *k, const char *name, const char *file,
                     const char *text, size_t len);
void known_hosts_free(struct known_hosts *k); /* leaves it empty */

/* *which is the line that decided, or NULL. */
enum known_verdict known_hosts_judge(const struct known_hosts *k,
                                     const void *blob, size_t len,
                                     const struct known_key **which);
/* 1 if a line trusts an authority to sign keys of this host. */
int known_hosts_has_authority(const struct known_hosts *k);

/*
 * Host key algorithms for the key exchange, best first: those of `allowed`
 * that are in `able` too (both lists with commas), first those for which a
 * key is known.  0; -HVD_EUNSUPPORTED when keys are known, but of types that
 * are not in both lists, or when nothing is; -HVD_ENOMEM.
 */
int known_hosts_algorithms(const struct known_hosts *k, const char *allowed,
                           const char *able, struct hb_buf *out);

/* The type that a key says it is, "" for rubbish; cut to size. */
void known_hosts_key_type(const void *blob, size_t len, char *out, size_t size);
/* "SHA256:..." as ssh prints it. */
int known_hosts_fingerprint(const void *blob, size_t len, struct hb_buf *out);
/* A line for a file, with its newline; the name is hashed with salt unless
 * that is NULL. */
int known_hosts_line(const char *name, const void *blob, size_t len,
                     const unsigned char salt[KNOWN_HOSTS_SALT_BYTES],
                     struct hb_buf *out);

/* Exposed for tests: a list of patterns with * ? and !. */
int known_hosts_match(const char *patterns, size_t len, const char *name);

#endif
