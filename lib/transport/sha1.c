/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-1 as RFC 3174 section 6.1 has it; see sha1.h. */
#include "lib/transport/sha1.h"

#include <string.h>

enum { ROUNDS = 80, LENGTH_BYTES = 8 };

static uint32_t rotate(uint32_t v, int n)
{
    return (v << n) | (v >> (32 - n));
}

static uint32_t load_be(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static void store_be(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (24 - 8 * i));
}

/* f and K of a round. */
static uint32_t mix(int round, uint32_t b, uint32_t c, uint32_t d)
{
    if (round < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (round < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (round < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void compress(struct sha1 *s)
{
    uint32_t w[ROUNDS], v[5];

    for (int i = 0; i < 16; i++)
        w[i] = load_be(s->block + 4 * i);
    for (int i = 16; i < ROUNDS; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, s->h, sizeof(v));
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t t = rotate(v[0], 5) + mix(i, v[1], v[2], v[3]) + v[4] + w[i];
        v[4] = v[3];
        v[3] = v[2];
        v[2] = rotate(v[1], 30);
        v[1] = v[0];
        v[0] = t;
    }
    for (int i = 0; i < 5; i++)
        s->h[i] += v[i];
}

void sha1_init(struct sha1 *s)
{
    static const uint32_t start[5] = {0x67452301, 0xefcdab89, 0x98badcfe,
                                      0x10325476, 0xc3d2e1f0};

    memset(s, 0, sizeof(*s));
    memcpy(s->h, start, sizeof(start));
}

void sha1_update(struct sha1 *s, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;

    while (len > 0) {
        size_t used = s->total_bytes % SHA1_BLOCK_BYTES;
        size_t n = SHA1_BLOCK_BYTES - used;

        if (n > len)
            n = len;
        memcpy(s->block + used, p, n);
        s->total_bytes += n;
        p += n;
        len -= n;
        if (used + n == SHA1_BLOCK_BYTES)
            compress(s);
    }
}

void sha1_final(struct sha1 *s, unsigned char out[SHA1_BYTES])
{
    static const unsigned char zeros[SHA1_BLOCK_BYTES] = {0};
    uint64_t bits = s->total_bytes * 8;
    unsigned char end[LENGTH_BYTES];
    size_t used;

    store_be(end, (uint32_t)(bits >> 32));
    store_be(end + 4, (uint32_t)bits);
    sha1_update(s, "\x80", 1);
    used = s->total_bytes % SHA1_BLOCK_BYTES;
    sha1_update(s, zeros,
                (2 * SHA1_BLOCK_BYTES - LENGTH_BYTES - used) %
                    SHA1_BLOCK_BYTES);
    sha1_update(s, end, sizeof(end));
    for (int i = 0; i < 5; i++)
        store_be(out + 4 * i, s->h[i]);
}

void sha1_hmac(const void *key, size_t key_len, const void *bytes, size_t len,
               unsigned char out[SHA1_BYTES])
{
    unsigned char pad[SHA1_BLOCK_BYTES] = {0};
    struct sha1 s;

    sha1_init(&s);
    if (key_len > SHA1_BLOCK_BYTES) {
        sha1_update(&s, key, key_len);
        sha1_final(&s, pad);
    } else if (key_len > 0) {
        memcpy(pad, key, key_len);
    }
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36;
    sha1_init(&s);
    sha1_update(&s, pad, sizeof(pad));
    sha1_update(&s, bytes, len);
    sha1_final(&s, out);
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha1_init(&s);
    sha1_update(&s, pad, sizeof(pad));
    sha1_update(&s, out, SHA1_BYTES);
    sha1_final(&s, out);
}
