/* SPDX-License-Identifier: Apache-2.0 */
/* AES (FIPS 197) with 256-bit keys in counter mode, for OpenSSH's private
 * key files.  Small, not fast, and not safe from who measures caches: it
 * handles a few hundred bytes once. */
#ifndef HVD_TRANSPORT_AES_H
#define HVD_TRANSPORT_AES_H

#include <stddef.h>

enum { AES256_KEY_BYTES = 32, AES_BLOCK_BYTES = 16 };

/* Encrypts or decrypts in place; the counter is big-endian. */
void aes256_ctr(const unsigned char key[AES256_KEY_BYTES],
                const unsigned char counter[AES_BLOCK_BYTES], void *bytes,
                size_t len);

#endif
