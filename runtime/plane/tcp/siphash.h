/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-2-4: a keyed hash that nobody without the 128-bit key can forge or
 * tell from random numbers.
 *
 * libsodium takes a message only in one piece.  Here the head and the body lie
 * apart, and one pass gives the codes of the head alone and of the whole
 * message.  The unit test compares it with libsodium's.
 *
 * Source: Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012.
 */
#ifndef HVD_PLANE_SIPHASH_H
#define HVD_PLANE_SIPHASH_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SIPHASH_KEY_BYTES = 16, SIPHASH_WORD_BYTES = 8 };

struct siphash {
    uint64_t v[4];
    uint64_t bytes; /* taken so far */
};

static inline uint64_t siphash_load(const unsigned char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof(word));
    return le64toh(word);
}

static inline uint64_t siphash_rotate(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

/* Mixes the state.  Must be inlined: keeping the state in registers between
 * rounds halves the time. */
static inline __attribute__((always_inline)) void siphash_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = siphash_rotate(v[1], 13) ^ v[0];
    v[3] = siphash_rotate(v[3], 16) ^ v[2];
    v[0] = siphash_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = siphash_rotate(v[1], 17) ^ v[2];
    v[3] = siphash_rotate(v[3], 21) ^ v[0];
    v[2] = siphash_rotate(v[2], 32);
}

static inline __attribute__((always_inline)) void
siphash_word(struct siphash *s, uint64_t word)
{
    s->v[3] ^= word;
    siphash_round(s->v);
    siphash_round(s->v);
    s->v[0] ^= word;
}

/* Begins a message under a key. */
static inline void siphash_init(struct siphash *s,
                                const unsigned char key[SIPHASH_KEY_BYTES])
{
    uint64_t k0 = siphash_load(key), k1 = siphash_load(key + 8);

    s->v[0] = k0 ^ UINT64_C(0x736f6d6570736575);
    s->v[1] = k1 ^ UINT64_C(0x646f72616e646f6d);
    s->v[2] = k0 ^ UINT64_C(0x6c7967656e657261);
    s->v[3] = k1 ^ UINT64_C(0x7465646279746573);
    s->bytes = 0;
}

/* Takes whole words of the message: `bytes` is a multiple of 8. */
static inline __attribute__((always_inline)) void
siphash_take(struct siphash *s, const unsigned char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += SIPHASH_WORD_BYTES)
        siphash_word(s, siphash_load(p + i));
    s->bytes += bytes;
}

/* Takes the last bytes of the message, any number, and returns its code.  `s`
 * is a copy, so the caller can continue with its own. */
static inline uint64_t siphash_code(struct siphash s, const unsigned char *p,
                                    size_t bytes)
{
    size_t rest = bytes % SIPHASH_WORD_BYTES;
    uint64_t last;

    siphash_take(&s, p, bytes - rest);
    last = (s.bytes + rest) << 56;
    for (size_t i = 0; i < rest; i++)
        last |= (uint64_t)p[bytes - rest + i] << 8 * i;
    siphash_word(&s, last);
    s.v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        siphash_round(s.v);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

#endif
