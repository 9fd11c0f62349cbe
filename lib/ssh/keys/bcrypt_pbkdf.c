/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bcrypt_pbkdf; see bcrypt_pbkdf.h.  Blowfish (Schneier, 1993) starts from the
 * first 33,344 binary digits of pi.  They are computed, which takes a tenth of
 * a second, once, instead of trusting a table of a thousand constants.
 */
#include "lib/ssh/keys/bcrypt_pbkdf.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

enum {
    P_WORDS = 18,
    S_WORDS = 256,
    STATE_WORDS = P_WORDS + 4 * S_WORDS,
    PI_WORDS = STATE_WORDS + 4, /* before the point, and where errors stay */
    HASH_BYTES = 32,
    HASH_WORDS = HASH_BYTES / 4,
    COSTS = 64, /* 2^6 */
};

struct blowfish {
    uint32_t p[P_WORDS], s[4][S_WORDS];
};

/* ---- The digits of pi ---- */

/* Divides a fixed-point number; x[0] is before the point.  Words before *first
 * are 0. */
static void divide(uint32_t *x, uint32_t by, int *first)
{
    uint64_t rest = 0;

    for (int i = *first; i < PI_WORDS; i++) {
        uint64_t v = rest << 32 | x[i];
        x[i] = (uint32_t)(v / by);
        rest = v % by;
    }
    while (*first < PI_WORDS && x[*first] == 0)
        ++*first;
}

static void add(uint32_t *x, const uint32_t *y, int first, int sign)
{
    int64_t carry = 0;

    for (int i = PI_WORDS - 1; i >= 0 && (i >= first || carry); i--) {
        carry += (int64_t)x[i] + (i >= first ? sign * (int64_t)y[i] : 0);
        x[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* Adds factor * atan(1 / n), by its series. */
static void add_atan(uint32_t *x, int factor, uint32_t n)
{
    uint32_t power[PI_WORDS] = {0}, term[PI_WORDS] = {0};
    int sign = factor < 0 ? -1 : 1, first = 0;

    power[0] = (uint32_t)(factor * sign);
    divide(power, n, &first);
    for (uint32_t k = 1; first < PI_WORDS; k += 2) {
        int term_first = first;
        memcpy(term + first, power + first,
               (PI_WORDS - (size_t)first) * sizeof(term[0]));
        divide(term, k, &term_first);
        add(x, term, term_first, sign);
        sign = -sign;
        divide(power, n * n, &first);
    }
}

static struct blowfish initial;

/* Computes pi by Machin: 16 atan(1/5) - 4 atan(1/239). */
static void make_initial(void)
{
    uint32_t pi[PI_WORDS] = {0};

    add_atan(pi, 16, 5);
    add_atan(pi, -4, 239);
    memcpy(initial.p, pi + 1, sizeof(initial.p));
    memcpy(initial.s, pi + 1 + P_WORDS, sizeof(initial.s));
}

/* ---- Blowfish ---- */

static uint32_t f(const struct blowfish *b, uint32_t x)
{
    return ((b->s[0][x >> 24] + b->s[1][x >> 16 & 255]) ^
            b->s[2][x >> 8 & 255]) +
           b->s[3][x & 255];
}

static void encipher(const struct blowfish *b, uint32_t v[2])
{
    uint32_t l = v[0] ^ b->p[0], r = v[1];

    for (int i = 1; i <= 16; i += 2) {
        r ^= f(b, l) ^ b->p[i];
        l ^= f(b, r) ^ b->p[i + 1];
    }
    v[0] = r ^ b->p[17];
    v[1] = l;
}

/* Returns the next word of `bytes`, which are repeated at their end. */
static uint32_t next_word(const unsigned char *bytes, size_t len, size_t *at)
{
    uint32_t w = 0;

    for (int i = 0; i < 4; i++) {
        w = w << 8 | bytes[*at];
        *at = (*at + 1) % len;
    }
    return w;
}

static void fill(struct blowfish *b, uint32_t *words, int count, uint32_t v[2],
                 const unsigned char *salt, size_t *at)
{
    for (int i = 0; i < count; i += 2) {
        if (salt) {
            v[0] ^= next_word(salt, crypto_hash_sha512_BYTES, at);
            v[1] ^= next_word(salt, crypto_hash_sha512_BYTES, at);
        }
        encipher(b, v);
        words[i] = v[0];
        words[i + 1] = v[1];
    }
}

/* Expands the key schedule; key and salt are SHA-512 hashes; salt may be
 * NULL. */
static void expand(struct blowfish *b, const unsigned char *key,
                   const unsigned char *salt)
{
    uint32_t v[2] = {0, 0};
    size_t at = 0;

    for (int i = 0; i < P_WORDS; i++)
        b->p[i] ^= next_word(key, crypto_hash_sha512_BYTES, &at);
    at = 0;
    fill(b, b->p, P_WORDS, v, salt, &at);
    for (int i = 0; i < 4; i++)
        fill(b, b->s[i], S_WORDS, v, salt, &at);
}

/* ---- bcrypt ---- */

static void bcrypt_hash(struct blowfish *b, const unsigned char *pass,
                        const unsigned char *salt,
                        unsigned char out[HASH_BYTES])
{
    static const unsigned char text[] = "OxychromaticBlowfishSwatDynamite";
    uint32_t v[HASH_WORDS];
    size_t at = 0;

    *b = initial;
    expand(b, pass, salt);
    for (int i = 0; i < COSTS; i++) {
        expand(b, salt, NULL);
        expand(b, pass, NULL);
    }
    for (int i = 0; i < HASH_WORDS; i++)
        v[i] = next_word(text, HASH_BYTES, &at);
    for (int i = 0; i < COSTS; i++)
        for (int j = 0; j < HASH_WORDS; j += 2)
            encipher(b, v + j);
    for (int i = 0; i < HASH_BYTES; i++)
        out[i] = (unsigned char)(v[i / 4] >> 8 * (i % 4));
}

/* Computes one block: the hash of all rounds, from a first salt. */
static void hash_rounds(struct blowfish *b, const unsigned char *pass,
                        unsigned char salt[crypto_hash_sha512_BYTES],
                        uint32_t rounds, unsigned char out[HASH_BYTES])
{
    unsigned char last[HASH_BYTES];

    bcrypt_hash(b, pass, salt, last);
    memcpy(out, last, HASH_BYTES);
    for (uint32_t i = 1; i < rounds; i++) {
        crypto_hash_sha512(salt, last, sizeof(last));
        bcrypt_hash(b, pass, salt, last);
        for (int j = 0; j < HASH_BYTES; j++)
            out[j] ^= last[j];
    }
    sodium_memzero(last, sizeof(last));
}

/* Makes the salt of a block: the salt, followed by the block's number. */
static void block_salt(const void *salt, size_t len, size_t number,
                       unsigned char out[crypto_hash_sha512_BYTES])
{
    crypto_hash_sha512_state state;
    unsigned char end[4];

    for (int i = 0; i < 4; i++)
        end[i] = (unsigned char)(number >> (24 - 8 * i));
    crypto_hash_sha512_init(&state);
    crypto_hash_sha512_update(&state, salt, len);
    crypto_hash_sha512_update(&state, end, sizeof(end));
    crypto_hash_sha512_final(&state, out);
}

/* Derives the key; the bytes of a block are spread over all of it. */
int bcrypt_pbkdf(const char *passphrase, size_t passphrase_len,
                 const void *salt, size_t salt_len, uint32_t rounds,
                 unsigned char *key, size_t key_len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char pass[crypto_hash_sha512_BYTES];
    unsigned char salt_hash[crypto_hash_sha512_BYTES];
    unsigned char out[HASH_BYTES];
    size_t blocks = (key_len + HASH_BYTES - 1) / HASH_BYTES;
    struct blowfish *b;

    if (passphrase_len == 0 || salt_len == 0 || rounds == 0 ||
        rounds > BCRYPT_ROUNDS_MAX || key_len == 0 || key_len > BCRYPT_KEY_MAX)
        return -HVD_EINVAL;
    b = hb_malloc(sizeof(*b));
    if (!b)
        return -HVD_ENOMEM;
    pthread_once(&once, make_initial);
    crypto_hash_sha512(pass, (const unsigned char *)passphrase, passphrase_len);
    for (size_t i = 0; i < blocks; i++) {
        block_salt(salt, salt_len, i + 1, salt_hash);
        hash_rounds(b, pass, salt_hash, rounds, out);
        for (size_t j = 0; j * blocks + i < key_len; j++)
            key[j * blocks + i] = out[j];
    }
    sodium_memzero(pass, sizeof(pass));
    sodium_memzero(salt_hash, sizeof(salt_hash));
    sodium_memzero(out, sizeof(out));
    sodium_memzero(b, sizeof(*b));
    hb_free(b);
    return 0;
}
