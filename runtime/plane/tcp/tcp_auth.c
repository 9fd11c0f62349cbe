/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of the job's secret; see tcp_auth.h.  The primitives are
 * libsodium's, linked statically.
 */
#include "runtime/plane/tcp/tcp_auth.h"

#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"

#include <errno.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(crypto_auth_hmacsha256_BYTES == TCP_AUTH_MAC_BYTES &&
                   crypto_auth_hmacsha256_KEYBYTES == TCP_AUTH_SECRET_BYTES,
               "HMAC-SHA256 with a secret of its size");

_Static_assert(sizeof(struct tcp_auth_keys) == TCP_AUTH_MAC_BYTES,
               "both keys are one HMAC");

enum which { CALL = 1, ANSWER = 2, FINISH = 3, KEYS = 4 };

/* Computes a code.  Every covered field has a fixed length, so fields cannot
 * run into each other. */
static void make_mac(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                     enum which which, unsigned char mac[TCP_AUTH_MAC_BYTES])
{
    unsigned char label[16] = "hvd tcp";
    unsigned char job[TCP_AUTH_JOB_MAX] = {0};
    crypto_auth_hmacsha256_state state;

    label[sizeof(label) - 1] = (unsigned char)which;
    memcpy(job, a->job_id, strnlen(a->job_id, sizeof(job)));
    crypto_auth_hmacsha256_init(&state, a->secret, sizeof(a->secret));
    crypto_auth_hmacsha256_update(&state, label, sizeof(label));
    crypto_auth_hmacsha256_update(&state, job, sizeof(job));
    crypto_auth_hmacsha256_update(&state, t->fields, sizeof(t->fields));
    if (which != CALL)
        crypto_auth_hmacsha256_update(&state, t->reply, sizeof(t->reply));
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_memzero(&state, sizeof(state));
}

static int same_mac(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                    enum which which, const unsigned char *mac)
{
    unsigned char good[TCP_AUTH_MAC_BYTES];

    make_mac(a, t, which, good);
    return sodium_memcmp(good, mac, sizeof(good)) == 0;
}

static int make_nonce(unsigned char nonce[TCP_AUTH_NONCE_BYTES])
{
    size_t have = 0;

    while (have < TCP_AUTH_NONCE_BYTES) {
        ssize_t n = getrandom(nonce + have, TCP_AUTH_NONCE_BYTES - have, 0);

        if (n < 0 && errno != EINTR)
            return -HVD_ESYSTEM;
        have += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void put_u32(unsigned char **at, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        *(*at)++ = (unsigned char)(v >> shift);
}

int tcp_auth_call(const struct tcp_auth *a, struct tcp_auth_talk *t,
                  uint32_t caller, uint32_t callee,
                  unsigned char out[TCP_AUTH_CALL_BYTES])
{
    unsigned char *at = t->fields;

    put_u32(&at, TCP_AUTH_MAGIC);
    put_u32(&at, TCP_AUTH_VERSION);
    put_u32(&at, a->epoch);
    put_u32(&at, a->group);
    put_u32(&at, caller);
    put_u32(&at, callee);
    put_u32(&at, a->codes != 0);
    if (make_nonce(at) < 0)
        return -HVD_ESYSTEM;
    memcpy(out, t->fields, sizeof(t->fields));
    make_mac(a, t, CALL, out + sizeof(t->fields));
    return 0;
}

int tcp_auth_answer(const struct tcp_auth *a, struct tcp_auth_talk *t,
                    const unsigned char call[TCP_AUTH_CALL_BYTES],
                    uint32_t callee, uint32_t *caller,
                    unsigned char out[TCP_AUTH_ANSWER_BYTES])
{
    uint32_t magic, version, epoch, group, from, codes;
    unsigned char *reply = t->reply;
    struct hb_reader r;

    memcpy(t->fields, call, sizeof(t->fields));
    hb_reader_init(&r, t->fields, sizeof(t->fields));
    magic = hb_read_u32(&r);
    version = hb_read_u32(&r);
    epoch = hb_read_u32(&r);
    group = hb_read_u32(&r);
    from = hb_read_u32(&r);
    if (magic != TCP_AUTH_MAGIC || version != TCP_AUTH_VERSION ||
        epoch != a->epoch || group != a->group)
        return -HVD_EPERM;
    if (hb_read_u32(&r) != callee ||
        !same_mac(a, t, CALL, call + sizeof(t->fields)))
        return -HVD_EPERM;
    codes = hb_read_u32(&r);
    put_u32(&reply, a->codes != 0);
    if (make_nonce(reply) < 0)
        return -HVD_ESYSTEM;
    memcpy(out, t->reply, sizeof(t->reply));
    make_mac(a, t, ANSWER, out + sizeof(t->reply));
    *caller = from;
    return codes == (uint32_t)(a->codes != 0) ? 0 : -HVD_EINVAL;
}

int tcp_auth_finish(const struct tcp_auth *a, struct tcp_auth_talk *t,
                    const unsigned char answer[TCP_AUTH_ANSWER_BYTES],
                    unsigned char out[TCP_AUTH_FINISH_BYTES])
{
    struct hb_reader r;

    memcpy(t->reply, answer, sizeof(t->reply));
    if (!same_mac(a, t, ANSWER, answer + sizeof(t->reply)))
        return -HVD_EPERM;
    hb_reader_init(&r, t->reply, sizeof(t->reply));
    if (hb_read_u32(&r) != (uint32_t)(a->codes != 0))
        return -HVD_EINVAL;
    make_mac(a, t, FINISH, out);
    return 0;
}

int tcp_auth_check(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                   const unsigned char finish[TCP_AUTH_FINISH_BYTES])
{
    return same_mac(a, t, FINISH, finish) ? 0 : -HVD_EPERM;
}

void tcp_auth_keys(const struct tcp_auth *a, const struct tcp_auth_talk *t,
                   struct tcp_auth_keys *keys)
{
    unsigned char both[TCP_AUTH_MAC_BYTES];

    make_mac(a, t, KEYS, both);
    memcpy(keys->caller, both, sizeof(keys->caller));
    memcpy(keys->callee, both + sizeof(keys->caller), sizeof(keys->callee));
    sodium_memzero(both, sizeof(both));
}
