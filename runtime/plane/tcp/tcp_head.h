/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a message on a connection of a TCP group.  Big-endian, except
 * the codes, which are little-endian (tcp_mac.h).
 *
 *     u32 magic, u32 kind, u32 sequence, u32 words, u64 length,
 *     u64 code over the words, u64 code over the fields above
 */
#ifndef HVD_PLANE_TCP_HEAD_H
#define HVD_PLANE_TCP_HEAD_H

#include <stdint.h>

enum {
    TCP_HEAD_FIELDS_BYTES = 24,
    TCP_HEAD_WORDS_CODE_AT = TCP_HEAD_FIELDS_BYTES,
    TCP_HEAD_CODE_AT = TCP_HEAD_FIELDS_BYTES + 8,
    TCP_HEAD_BYTES = TCP_HEAD_FIELDS_BYTES + 16,
    TCP_HEAD_MAGIC = 0x68764445, /* "hvDE" */
    TCP_GONE_BYTES = 4,          /* u32 rank */
};

enum tcp_head_kind { TCP_HEAD_DATA = 1, TCP_HEAD_GONE = 2 };

struct tcp_head {
    uint32_t kind, seq;
    uint32_t words; /* bytes at the body's begin that are authenticated */
    uint64_t len;
};

/* Encodes a head with codes of 0. */
void tcp_head_encode(const struct tcp_head *head,
                     unsigned char out[TCP_HEAD_BYTES]);
/* Decodes a head.  0, or -HVD_EPROTO if no member sends such a head. */
int tcp_head_decode(const unsigned char in[TCP_HEAD_BYTES],
                    struct tcp_head *head);

#endif
