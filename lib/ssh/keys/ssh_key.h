/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssh key files: the kind of key, its public part, and whether it needs a
 * passphrase.  Pure except for ssh_key_load.
 *
 * Files in OpenSSH's own format are decrypted by ssh-add (ssh_add.h): their
 * bcrypt takes a tenth of a second or more on purpose, and libssh2 would do it
 * twice for every host.  The other formats are cheap to decrypt and left to
 * libssh2.
 */
#ifndef HVD_TRANSPORT_SSH_KEY_H
#define HVD_TRANSPORT_SSH_KEY_H

#include <stddef.h>

enum { SSH_KEY_FILE_MAX = 64 << 10, SSH_KEY_TYPE_MAX = 64 };

struct ssh_key {
    char type[SSH_KEY_TYPE_MAX]; /* "ssh-ed25519"; "" if unknown */
    unsigned char *blob;         /* the public key, or NULL */
    size_t blob_len;
    char *text; /* the private key in a form for libssh2, or NULL */
    size_t text_len;
    int encrypted;
    int openssh; /* the file is in OpenSSH's own format */
};

/* clang-format off */
#define SSH_KEY_INIT { "", NULL, 0, NULL, 0, 0, 0 }
/* clang-format on */

/* Parses a private or public key file: 0, -HVD_EPROTO if it is neither, or
 * -HVD_ENOMEM.  *out is overwritten, and must be freed in any case. */
int ssh_key_parse(const char *text, size_t len, struct ssh_key *out);
/* Adds the public part from a line "type base64 comment". */
int ssh_key_parse_public(const char *text, size_t len, struct ssh_key *out);
void ssh_key_free(struct ssh_key *k); /* wipes it, leaves it empty */

/* Reads the file and, if needed, the one with ".pub" appended.
 * - 0
 * - -HVD_ENOENT: there is no such file
 * - -HVD_EPERM: other users can read it
 * - -HVD_EPROTO, -HVD_ENOMEM */
int ssh_key_load(const char *path, struct ssh_key *out);

/* Sets the private part to a key without a passphrase: its type, its numbers
 * and a comment, as OpenSSH's format and the agent protocol have them.  0;
 * -HVD_EPROTO, also if it does not belong to the public part or, where that is
 * unknown, is not of the known type; -HVD_ENOMEM. */
int ssh_key_set_private(struct ssh_key *k, const void *key, size_t len);

/* Returns the length of an RSA public key's modulus in bits; 0 if malformed; -1
 * for a key of another type. */
int ssh_key_rsa_bits(const void *blob, size_t len);

#endif
