/* SPDX-License-Identifier: Apache-2.0 */
/* Authentication codes of messages; see tcp_mac.h. */
#include "runtime/plane/tcp/tcp_mac.h"

#include "lib/base/hvd_status.h"

/* Hashes what both codes of a message begin with: its number and its head. */
static void begin(const struct tcp_mac *m, const unsigned char *head,
                  struct siphash *state)
{
    siphash_init(state, m->key);
    siphash_word(state, m->number);
    state->bytes = sizeof(m->number);
    siphash_take(state, head, TCP_HEAD_FIELDS_BYTES);
}

static void put_code(unsigned char *at, uint64_t code)
{
    code = htole64(code);
    memcpy(at, &code, sizeof(code));
}

void tcp_mac_seal(struct tcp_mac *m, const struct tcp_head *head,
                  const void *body, unsigned char out[TCP_HEAD_BYTES])
{
    struct siphash state;

    tcp_head_encode(head, out);
    if (!m->on)
        return;
    begin(m, out, &state);
    put_code(out + TCP_HEAD_CODE_AT, siphash_code(state, NULL, 0));
    if (head->words)
        put_code(out + TCP_HEAD_WORDS_CODE_AT,
                 siphash_code(state, body, head->words));
    m->number++;
}

int tcp_mac_check_head(struct tcp_mac *m,
                       const unsigned char in[TCP_HEAD_BYTES])
{
    if (!m->on)
        return 0;
    begin(m, in, &m->state);
    return siphash_code(m->state, NULL, 0) ==
                   siphash_load(in + TCP_HEAD_CODE_AT)
               ? 0
               : -HVD_EPERM;
}

int tcp_mac_check_words(const struct tcp_mac *m,
                        const unsigned char in[TCP_HEAD_BYTES],
                        const void *body, size_t words)
{
    if (!m->on || words == 0)
        return 0;
    return siphash_code(m->state, body, words) ==
                   siphash_load(in + TCP_HEAD_WORDS_CODE_AT)
               ? 0
               : -HVD_EPERM;
}
