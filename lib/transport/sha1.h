/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-1 and HMAC-SHA-1 (RFC 3174, RFC 2104), for the hashed host names of
 * known_hosts files and nothing else: there it only hides names.
 */
#ifndef HVD_TRANSPORT_SHA1_H
#define HVD_TRANSPORT_SHA1_H

#include <stddef.h>
#include <stdint.h>

enum { SHA1_BYTES = 20, SHA1_BLOCK_BYTES = 64 };

struct sha1 {
    uint32_t h[5];
    uint64_t total_bytes;
    unsigned char block[SHA1_BLOCK_BYTES];
};

void sha1_init(struct sha1 *s);
void sha1_update(struct sha1 *s, const void *bytes, size_t len);
void sha1_final(struct sha1 *s, unsigned char out[SHA1_BYTES]);

void sha1_hmac(const void *key, size_t key_len, const void *bytes, size_t len,
               unsigned char out[SHA1_BYTES]);

#endif
