/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key files of ssh: what kind of key, its public part, whether a passphrase
 * is needed.  Pure but for ssh_key_load.
 *
 * OpenSSH's own format is decrypted here, because its bcrypt takes half a
 * second on purpose, and libssh2 would do it for every host.  The other
 * formats are cheap to decrypt and left to libssh2.
 */
#ifndef HVD_TRANSPORT_SSH_KEY_H
#define HVD_TRANSPORT_SSH_KEY_H

#include <stddef.h>

enum { SSH_KEY_FILE_MAX = 64 << 10, SSH_KEY_TYPE_MAX = 64 };

struct ssh_key {
    char type[SSH_KEY_TYPE_MAX]; /* "ssh-ed25519"; "" when not known */
    unsigned char *blob;         /* the public key, or NULL */
    size_t blob_len;
    char *text; /* the private key as libssh2 wants it, or NULL */
    size_t text_len;
    int encrypted;
};

/* clang-format off */
#define SSH_KEY_INIT { "", NULL, 0, NULL, 0, 0 }
/* clang-format on */

/* Of a private or public key file: 0, -HVD_EPROTO for none of those, or
 * -HVD_ENOMEM.  *out holds nothing yet, and is to be freed in any case. */
int ssh_key_parse(const char *text, size_t len, struct ssh_key *out);
/* A line "type base64 comment": adds the public part. */
int ssh_key_parse_public(const char *text, size_t len, struct ssh_key *out);
void ssh_key_free(struct ssh_key *k); /* wipes it, leaves it empty */

/* The file, and the one with ".pub" at its end where that is needed.  0;
 * -HVD_ENOENT; -HVD_EPERM when others can read it; -HVD_EPROTO;
 * -HVD_ENOMEM. */
int ssh_key_load(const char *path, struct ssh_key *out);

/* 0 and k is not encrypted any more; -HVD_EPERM for a wrong passphrase;
 * -HVD_EUNSUPPORTED where that is libssh2's part; -HVD_EPROTO;
 * -HVD_ENOMEM. */
int ssh_key_decrypt(struct ssh_key *k, const char *passphrase);

#endif
