/* SPDX-License-Identifier: Apache-2.0 */
/* The key derivation of OpenSSH's private key files: bcrypt_pbkdf, after
 * OpenBSD's bcrypt_pbkdf(3), with Blowfish inside. */
#ifndef HVD_TRANSPORT_BCRYPT_PBKDF_H
#define HVD_TRANSPORT_BCRYPT_PBKDF_H

#include <stddef.h>
#include <stdint.h>

enum { BCRYPT_KEY_MAX = 1024, BCRYPT_ROUNDS_MAX = 1 << 16 };

/* Derives a key.  0, -HVD_EINVAL for invalid lengths or rounds, or
 * -HVD_ENOMEM. */
int bcrypt_pbkdf(const char *passphrase, size_t passphrase_len,
                 const void *salt, size_t salt_len, uint32_t rounds,
                 unsigned char *key, size_t key_len);

#endif
