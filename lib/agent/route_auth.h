/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents say to each other on a probe connection: one call, one answer,
 * both of fixed length, both proving the token by HMAC-SHA256 (libsodium).
 * Pure but for the randomness of nonces.
 *
 *     call    "hvP1", u8 mode, 3 zeros, u32 from, u32 to, nonce 16, mac 32
 *     answer  u32 host, nonce 16, mac 32     mac: over the call too
 *
 * The caller proves itself first, so that a scanner learns nothing; the
 * answer names the host that gave it, so that an address that many hosts
 * have counts for none.  A replayed call gets an answer and no more.
 */
#ifndef HVD_AGENT_ROUTE_AUTH_H
#define HVD_AGENT_ROUTE_AUTH_H

#include "lib/protocol/control_route.h"

enum { ROUTE_CALL_BYTES = 64, ROUTE_ANSWER_BYTES = 52 };

enum route_mode {
    ROUTE_MODE_REACH, /* nothing follows */
    ROUTE_MODE_ECHO,  /* the listener sends back what comes */
    ROUTE_MODE_SINK,  /* the listener counts up to end of file, and says a
                         u64 of bytes */
    ROUTE_MODE_COUNT
};

struct route_call {
    enum route_mode mode;
    int from, to; /* hosts */
};

/* 0, or -HVD_ESYSTEM for want of randomness. */
int route_auth_call(const unsigned char token[CONTROL_TOKEN_BYTES],
                    const struct route_call *call,
                    unsigned char out[ROUTE_CALL_BYTES]);
/* 0, or -HVD_EPERM when it is not of one who has the token. */
int route_auth_read_call(const unsigned char token[CONTROL_TOKEN_BYTES],
                         const unsigned char in[ROUTE_CALL_BYTES],
                         struct route_call *call);
int route_auth_answer(const unsigned char token[CONTROL_TOKEN_BYTES],
                      const unsigned char call[ROUTE_CALL_BYTES], int host,
                      unsigned char out[ROUTE_ANSWER_BYTES]);
int route_auth_read_answer(const unsigned char token[CONTROL_TOKEN_BYTES],
                           const unsigned char call[ROUTE_CALL_BYTES],
                           const unsigned char in[ROUTE_ANSWER_BYTES],
                           int *host);

#endif
