/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and answers of probes; see route_auth.h. */
#include "lib/agent/route/route_auth.h"

#include <errno.h>
#include <limits.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <string.h>
#include <sys/random.h>

enum { MAC_BYTES = 32, NONCE_BYTES = 16 };

_Static_assert(crypto_auth_hmacsha256_BYTES == MAC_BYTES &&
                   crypto_auth_hmacsha256_KEYBYTES == CONTROL_TOKEN_BYTES,
               "HMAC-SHA256 with a token of its size");
_Static_assert(ROUTE_CALL_BYTES == 16 + NONCE_BYTES + MAC_BYTES &&
                   ROUTE_ANSWER_BYTES == 4 + NONCE_BYTES + MAC_BYTES,
               "as drawn in the header");

static const unsigned char magic[4] = {'h', 'v', 'P', '1'};

static void put_u32(unsigned char *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(v >> (24 - 8 * i));
}

static uint32_t get_u32(const unsigned char *in)
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 |
           (uint32_t)in[2] << 8 | in[3];
}

static int put_nonce(unsigned char *out)
{
    size_t have = 0;

    while (have < NONCE_BYTES) {
        ssize_t n = getrandom(out + have, NONCE_BYTES - have, 0);

        if (n < 0 && errno != EINTR)
            return -HVD_ESYSTEM;
        have += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Computes the code of a call or of its answer, with different labels, so that
 * neither can pass for the other. */
static void make_mac(const unsigned char *token, const unsigned char *call,
                     const unsigned char *answer, unsigned char mac[MAC_BYTES])
{
    static const unsigned char labels[2][16] = {"hvd probe call",
                                                "hvd probe reply"};
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, token, CONTROL_TOKEN_BYTES);
    crypto_auth_hmacsha256_update(&state, labels[answer != NULL],
                                  sizeof(labels[0]));
    crypto_auth_hmacsha256_update(&state, call, ROUTE_CALL_BYTES - MAC_BYTES);
    if (answer)
        crypto_auth_hmacsha256_update(&state, answer,
                                      ROUTE_ANSWER_BYTES - MAC_BYTES);
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_memzero(&state, sizeof(state));
}

static int check_mac(const unsigned char *token, const unsigned char *call,
                     const unsigned char *answer, const unsigned char *mac)
{
    unsigned char good[MAC_BYTES];

    make_mac(token, call, answer, good);
    return sodium_memcmp(good, mac, MAC_BYTES) == 0 ? 0 : -HVD_EPERM;
}

int route_auth_call(const unsigned char token[CONTROL_TOKEN_BYTES],
                    const struct route_call *call,
                    unsigned char out[ROUTE_CALL_BYTES])
{
    memset(out, 0, ROUTE_CALL_BYTES);
    memcpy(out, magic, sizeof(magic));
    out[4] = (unsigned char)call->mode;
    put_u32(out + 8, (uint32_t)call->from);
    put_u32(out + 12, (uint32_t)call->to);
    if (put_nonce(out + 16) < 0)
        return -HVD_ESYSTEM;
    make_mac(token, out, NULL, out + ROUTE_CALL_BYTES - MAC_BYTES);
    return 0;
}

int route_auth_read_call(const unsigned char token[CONTROL_TOKEN_BYTES],
                         const unsigned char in[ROUTE_CALL_BYTES],
                         struct route_call *call)
{
    uint32_t from = get_u32(in + 8), to = get_u32(in + 12);

    if (memcmp(in, magic, sizeof(magic)) != 0 ||
        check_mac(token, in, NULL, in + ROUTE_CALL_BYTES - MAC_BYTES) < 0 ||
        in[4] >= ROUTE_MODE_COUNT || from > INT_MAX || to > INT_MAX)
        return -HVD_EPERM;
    call->mode = (enum route_mode)in[4];
    call->from = (int)from;
    call->to = (int)to;
    return 0;
}

int route_auth_answer(const unsigned char token[CONTROL_TOKEN_BYTES],
                      const unsigned char call[ROUTE_CALL_BYTES], int host,
                      unsigned char out[ROUTE_ANSWER_BYTES])
{
    put_u32(out, (uint32_t)host);
    if (put_nonce(out + 4) < 0)
        return -HVD_ESYSTEM;
    make_mac(token, call, out, out + ROUTE_ANSWER_BYTES - MAC_BYTES);
    return 0;
}

int route_auth_read_answer(const unsigned char token[CONTROL_TOKEN_BYTES],
                           const unsigned char call[ROUTE_CALL_BYTES],
                           const unsigned char in[ROUTE_ANSWER_BYTES],
                           int *host)
{
    uint32_t got = get_u32(in);

    if (check_mac(token, call, in, in + ROUTE_ANSWER_BYTES - MAC_BYTES) < 0 ||
        got > INT_MAX)
        return -HVD_EPERM;
    *host = (int)got;
    return 0;
}
