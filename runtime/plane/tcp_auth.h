/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two ranks prove to each other, over a fresh TCP connection, that they
 * hold the job's secret.  Pure: bytes in, bytes out.
 *
 *     caller -> CALL    who calls whom in which job and epoch, a nonce, MAC
 *     callee -> ANSWER  a nonce, MAC over both nonces
 *     caller -> FINISH  MAC over both nonces
 *
 * A MAC is HMAC-SHA256 under the secret over a label of its own for each
 * message, the job id, and all that CALL and ANSWER said, so no message can
 * stand for another one, another pair of ranks, direction, group, epoch or
 * job.
 * Whoever does not know the secret gets not one byte from the callee.  A
 * replayed CALL gets an ANSWER, which says nothing, and fails at FINISH.
 *
 *     CALL    u32 magic, u32 version, u32 epoch, u32 group, u32 caller,
 *             u32 callee, nonce[32], mac[32]
 *     ANSWER  nonce[32], mac[32]
 *     FINISH  mac[32]
 */
#ifndef HVD_PLANE_TCP_AUTH_H
#define HVD_PLANE_TCP_AUTH_H

#include <stddef.h>
#include <stdint.h>

enum {
    TCP_AUTH_MAGIC = 0x68764343, /* "hvCC" */
    TCP_AUTH_VERSION = 2,
    TCP_AUTH_NONCE_BYTES = 32,
    TCP_AUTH_MAC_BYTES = 32,
    TCP_AUTH_SECRET_BYTES = 32,
    TCP_AUTH_FIELDS_BYTES = 6 * 4 + TCP_AUTH_NONCE_BYTES,
    TCP_AUTH_CALL_BYTES = TCP_AUTH_FIELDS_BYTES + TCP_AUTH_MAC_BYTES,
    TCP_AUTH_ANSWER_BYTES = TCP_AUTH_NONCE_BYTES + TCP_AUTH_MAC_BYTES,
    TCP_AUTH_FINISH_BYTES = TCP_AUTH_MAC_BYTES,
    TCP_AUTH_JOB_MAX = 64,
};

/* What both sides of one connection know beforehand. */
struct tcp_auth {
    unsigned char secret[TCP_AUTH_SECRET_BYTES];
    char job_id[TCP_AUTH_JOB_MAX];
    uint32_t epoch, group; /* 0: the world; else a process set's */
};

/* One connection's exchange so far: CALL without its MAC, and the callee's
 * nonce. */
struct tcp_auth_talk {
    unsigned char fields[TCP_AUTH_FIELDS_BYTES];
    unsigned char answer_nonce[TCP_AUTH_NONCE_BYTES];
};

/* Caller.  0, or -HVD_ESYSTEM without random numbers. */
int tcp_auth_call(const struct tcp_auth *a, struct tcp_auth_talk *t,
                  uint32_t caller, uint32_t callee,
                  unsigned char out[TCP_AUTH_CALL_BYTES]);
/* Callee: whether the CALL is good, meant for `callee`, and whose it is.
 * Answers it.  0, -HVD_EPERM, or -HVD_ESYSTEM. */
int tcp_auth_answer(const struct tcp_auth *a, struct tcp_auth_talk *t,
                    const unsigned char call[TCP_AUTH_CALL_BYTES],
                    uint32_t callee, uint32_t *caller,
                    unsigned char out[TCP_AUTH_ANSWER_BYTES]);
/* Caller: whether the ANSWER is good; makes FINISH.  0 or -HVD_EPERM. */
int tcp_auth_finish(const struct tcp_auth *a, struct tcp_auth_talk *t,
                    const unsigned char answer[TCP_AUTH_ANSWER_BYTES],
                    unsigned char out[TCP_AUTH_FINISH_BYTES]);
/* Callee: whether the FINISH is good.  0 or -HVD_EPERM. */
int tcp_auth_check(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                   const unsigned char finish[TCP_AUTH_FINISH_BYTES]);

#endif
