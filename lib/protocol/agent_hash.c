/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of an agent; see agent_hash.h. */
#include "lib/protocol/agent_hash.h"

#include <errno.h>
#include <sodium/crypto_generichash_blake2b.h>
#include <unistd.h>

enum { CHUNK_BYTES = 64 << 10 };

static void finish(crypto_generichash_blake2b_state *state,
                   char out[AGENT_HASH_HEX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[AGENT_HASH_BYTES];

    crypto_generichash_blake2b_final(state, hash, sizeof(hash));
    for (size_t i = 0; i < sizeof(hash); i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[AGENT_HASH_HEX - 1] = '\0';
}

void agent_hash(const void *bytes, size_t len, char out[AGENT_HASH_HEX])
{
    crypto_generichash_blake2b_state state;

    crypto_generichash_blake2b_init(&state, NULL, 0, AGENT_HASH_BYTES);
    crypto_generichash_blake2b_update(&state, bytes, len);
    finish(&state, out);
}

int agent_hash_fd(int fd, char out[AGENT_HASH_HEX])
{
    crypto_generichash_blake2b_state state;
    unsigned char chunk[CHUNK_BYTES];
    ssize_t n;

    crypto_generichash_blake2b_init(&state, NULL, 0, AGENT_HASH_BYTES);
    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0)
            crypto_generichash_blake2b_update(&state, chunk, (size_t)n);
    }
    finish(&state, out);
    return 0;
}
