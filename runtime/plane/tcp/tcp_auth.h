/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two ranks prove to each other, over a fresh TCP connection, that they
 * hold the job's secret.  Pure: bytes in, bytes out.
 *
 *     caller -> CALL    who calls whom in which job and epoch, a nonce, MAC
 *     callee -> ANSWER  a nonce, MAC over both nonces
 *     caller -> FINISH  MAC over both nonces
 *
 * A MAC is HMAC-SHA256 under the secret over a label per kind of message, the
 * job id, and the fields of CALL and ANSWER so far.  So no message can stand
 * for another one, or for another pair of ranks, direction, group, epoch or
 * job.  A caller that does not know the secret gets not a single byte from the
 * callee.  A replayed CALL gets an ANSWER, which reveals nothing, and fails at
 * FINISH.
 *
 *     CALL    u32 magic, u32 version, u32 epoch, u32 group, u32 caller,
 *             u32 callee, u32 codes, nonce[32], mac[32]
 *     ANSWER  u32 codes, nonce[32], mac[32]
 *     FINISH  mac[32]
 *
 * `codes` is 1 where that side's later messages carry authentication codes
 * (tcp_mac.h).  The MAC covers it, so nobody on the way can make both sides do
 * without codes.  If the two sides differ, ANSWER is still sent, so that both
 * know, and the handshake ends.
 *
 * The keys of those codes belong to this connection alone: HMAC-SHA256 under
 * the secret over another label, the job id and the fields of CALL and ANSWER.
 */
#ifndef HVD_PLANE_TCP_AUTH_H
#define HVD_PLANE_TCP_AUTH_H

#include <stddef.h>
#include <stdint.h>

enum {
    TCP_AUTH_MAGIC = 0x68764343, /* "hvCC" */
    TCP_AUTH_VERSION = 3,
    TCP_AUTH_NONCE_BYTES = 32,
    TCP_AUTH_MAC_BYTES = 32,
    TCP_AUTH_SECRET_BYTES = 32,
    TCP_AUTH_FIELDS_BYTES = 7 * 4 + TCP_AUTH_NONCE_BYTES,
    TCP_AUTH_REPLY_BYTES = 4 + TCP_AUTH_NONCE_BYTES,
    TCP_AUTH_CALL_BYTES = TCP_AUTH_FIELDS_BYTES + TCP_AUTH_MAC_BYTES,
    TCP_AUTH_ANSWER_BYTES = TCP_AUTH_REPLY_BYTES + TCP_AUTH_MAC_BYTES,
    TCP_AUTH_FINISH_BYTES = TCP_AUTH_MAC_BYTES,
    TCP_AUTH_JOB_MAX = 64,
    TCP_AUTH_KEY_BYTES = 16,
};

/* What both sides of a connection know before the handshake. */
struct tcp_auth {
    unsigned char secret[TCP_AUTH_SECRET_BYTES];
    char job_id[TCP_AUTH_JOB_MAX];
    uint32_t epoch, group; /* group: 0: the world; else a process set's */
    int codes;             /* 1: messages carry codes; must equal the peer's */
};

/* One connection's handshake so far: CALL and ANSWER without their MACs. */
struct tcp_auth_talk {
    unsigned char fields[TCP_AUTH_FIELDS_BYTES];
    unsigned char reply[TCP_AUTH_REPLY_BYTES];
};

/* Makes the caller's CALL.  0, or -HVD_ESYSTEM without random numbers. */
int tcp_auth_call(const struct tcp_auth *a, struct tcp_auth_talk *t,
                  uint32_t caller, uint32_t callee,
                  unsigned char out[TCP_AUTH_CALL_BYTES]);
/* Checks, as callee, a CALL meant for `callee`, sets *caller and makes ANSWER.
 * Returns 0; -HVD_EPERM; -HVD_ESYSTEM; or -HVD_EINVAL if the two sides' `codes`
 * differ: *caller and the ANSWER, which is to be sent, are then set. */
int tcp_auth_answer(const struct tcp_auth *a, struct tcp_auth_talk *t,
                    const unsigned char call[TCP_AUTH_CALL_BYTES],
                    uint32_t callee, uint32_t *caller,
                    unsigned char out[TCP_AUTH_ANSWER_BYTES]);
/* Checks, as caller, the ANSWER and makes FINISH.  0, -HVD_EPERM, or
 * -HVD_EINVAL if the two sides' `codes` differ. */
int tcp_auth_finish(const struct tcp_auth *a, struct tcp_auth_talk *t,
                    const unsigned char answer[TCP_AUTH_ANSWER_BYTES],
                    unsigned char out[TCP_AUTH_FINISH_BYTES]);
/* Checks, as callee, the FINISH.  0 or -HVD_EPERM. */
int tcp_auth_check(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                   const unsigned char finish[TCP_AUTH_FINISH_BYTES]);

/* The keys for the codes of the messages that each side sends. */
struct tcp_auth_keys {
    unsigned char caller[TCP_AUTH_KEY_BYTES], callee[TCP_AUTH_KEY_BYTES];
};
void tcp_auth_keys(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                   struct tcp_auth_keys *keys);

#endif
