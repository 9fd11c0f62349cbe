/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller proves itself first, so that a scanner learns nothing; the answer
 * names the answering host, so that an address that several hosts have is not
 * mistaken for one of them.  Replaying a call yields an answer and nothing
 * else.
 */
#ifndef HVD_AGENT_ROUTE_AUTH_H
#define HVD_AGENT_ROUTE_AUTH_H

#include "lib/protocol/control/control_route.h"

enum { ROUTE_CALL_BYTES = 64, ROUTE_ANSWER_BYTES = 52 };

enum route_mode {
    ROUTE_MODE_REACH, /* nothing follows the answer */
    ROUTE_MODE_ECHO,  /* the listener sends back what it reads */
    /* the listener counts bytes up to end of file, and sends their number as a
     * u64 */
    ROUTE_MODE_SINK,
    ROUTE_MODE_COUNT
};

struct route_call {
    enum route_mode mode;
    int from, to; /* hosts */
};

/* Writes `call`, a new random number and a MAC of both made with the token.  0,
 * or -HVD_ESYSTEM if there is no randomness. */
int route_auth_call(const unsigned char token[CONTROL_TOKEN_BYTES],
                    const struct route_call *call,
                    unsigned char out[ROUTE_CALL_BYTES]);
/* Verifies a call.  0, or -HVD_EPERM if its sender does not have the token. */
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
