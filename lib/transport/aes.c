/* SPDX-License-Identifier: Apache-2.0 */
/* FIPS 197, sections 5.1 and 5.2; see aes.h.  The S-box is computed: the
 * inverse in GF(2^8), then an affine map. */
#include "lib/transport/aes.h"

#include <sodium.h>
#include <string.h>

enum { ROUNDS = 14, KEY_WORDS = 8, SCHEDULE_BYTES = 16 * (ROUNDS + 1) };

struct aes {
    unsigned char sbox[256];
    unsigned char keys[SCHEDULE_BYTES];
};

static unsigned char twice(unsigned char a)
{
    return (unsigned char)((a << 1) ^ ((a >> 7) * 0x1b));
}

static unsigned char rotate8(unsigned char v, int n)
{
    return (unsigned char)((v << n) | (v >> (8 - n)));
}

/* p runs through all that is not 0 by its generator 3, q through the
 * inverses. */
static void make_sbox(unsigned char *sbox)
{
    unsigned char p = 1, q = 1;

    do {
        p = (unsigned char)(p ^ twice(p));
        q ^= (unsigned char)(q << 1);
        q ^= (unsigned char)(q << 2);
        q ^= (unsigned char)(q << 4);
        if (q & 0x80)
            q ^= 0x09;
        sbox[p] = (unsigned char)(q ^ rotate8(q, 1) ^ rotate8(q, 2) ^
                                  rotate8(q, 3) ^ rotate8(q, 4) ^ 0x63);
    } while (p != 1);
    sbox[0] = 0x63;
}

static void expand_key(struct aes *a, const unsigned char *key)
{
    unsigned char *w = a->keys, rcon = 1;

    memcpy(w, key, AES256_KEY_BYTES);
    for (int i = KEY_WORDS; i < 4 * (ROUNDS + 1); i++) {
        unsigned char t[4];
        memcpy(t, w + 4 * (i - 1), 4);
        if (i % KEY_WORDS == 0) {
            unsigned char first = t[0];
            t[0] = a->sbox[t[1]] ^ rcon;
            t[1] = a->sbox[t[2]];
            t[2] = a->sbox[t[3]];
            t[3] = a->sbox[first];
            rcon = twice(rcon);
        } else if (i % KEY_WORDS == 4) {
            for (int j = 0; j < 4; j++)
                t[j] = a->sbox[t[j]];
        }
        for (int j = 0; j < 4; j++)
            w[4 * i + j] = w[4 * (i - KEY_WORDS) + j] ^ t[j];
    }
}

static void sub_and_shift(const struct aes *a, unsigned char *s)
{
    unsigned char from[AES_BLOCK_BYTES];

    memcpy(from, s, sizeof(from));
    for (int i = 0; i < AES_BLOCK_BYTES; i++)
        s[i] = a->sbox[from[(i + 4 * (i % 4)) % AES_BLOCK_BYTES]];
}

static void mix_columns(unsigned char *s)
{
    for (int c = 0; c < AES_BLOCK_BYTES; c += 4) {
        unsigned char all = s[c] ^ s[c + 1] ^ s[c + 2] ^ s[c + 3];
        unsigned char first = s[c];
        for (int i = c; i < c + 4; i++) {
            unsigned char next = i < c + 3 ? s[i + 1] : first;
            s[i] ^= all ^ twice(s[i] ^ next);
        }
    }
}

static void add_key(unsigned char *s, const unsigned char *key)
{
    for (int i = 0; i < AES_BLOCK_BYTES; i++)
        s[i] ^= key[i];
}

static void encrypt(const struct aes *a, unsigned char *s)
{
    add_key(s, a->keys);
    for (int round = 1; round <= ROUNDS; round++) {
        sub_and_shift(a, s);
        if (round < ROUNDS)
            mix_columns(s);
        add_key(s, a->keys + AES_BLOCK_BYTES * round);
    }
}

static void count(unsigned char *counter)
{
    for (int i = AES_BLOCK_BYTES - 1; i >= 0 && ++counter[i] == 0; i--)
        continue;
}

void aes256_ctr(const unsigned char key[AES256_KEY_BYTES],
                const unsigned char counter[AES_BLOCK_BYTES], void *bytes,
                size_t len)
{
    unsigned char next[AES_BLOCK_BYTES], pad[AES_BLOCK_BYTES];
    unsigned char *p = bytes;
    struct aes a;

    make_sbox(a.sbox);
    expand_key(&a, key);
    memcpy(next, counter, sizeof(next));
    for (size_t i = 0; i < len; i++) {
        if (i % AES_BLOCK_BYTES == 0) {
            memcpy(pad, next, sizeof(pad));
            encrypt(&a, pad);
            count(next);
        }
        p[i] ^= pad[i % AES_BLOCK_BYTES];
    }
    sodium_memzero(&a, sizeof(a));
    sodium_memzero(pad, sizeof(pad));
}
