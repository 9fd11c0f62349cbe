/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a message on a connection of a TCP group; see tcp_head.h.  The
 * receiver checks the length.
 */
#include "runtime/plane/tcp/tcp_head.h"

#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"

#include <string.h>

static void put(unsigned char *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(v >> (8 * (bytes - 1 - i)));
}

void tcp_head_encode(const struct tcp_head *head,
                     unsigned char out[TCP_HEAD_BYTES])
{
    put(out, TCP_HEAD_MAGIC, 4);
    put(out + 4, head->kind, 4);
    put(out + 8, head->seq, 4);
    put(out + 12, head->words, 4);
    put(out + 16, head->len, 8);
    memset(out + TCP_HEAD_FIELDS_BYTES, 0,
           TCP_HEAD_BYTES - TCP_HEAD_FIELDS_BYTES);
}

int tcp_head_decode(const unsigned char in[TCP_HEAD_BYTES],
                    struct tcp_head *head)
{
    struct hb_reader r;
    uint32_t magic;

    hb_reader_init(&r, in, TCP_HEAD_FIELDS_BYTES);
    magic = hb_read_u32(&r);
    head->kind = hb_read_u32(&r);
    head->seq = hb_read_u32(&r);
    head->words = hb_read_u32(&r);
    head->len = hb_read_u64(&r);
    if (magic != TCP_HEAD_MAGIC || head->words > head->len)
        return -HVD_EPROTO;
    if (head->kind == TCP_HEAD_GONE)
        return head->len == TCP_GONE_BYTES ? 0 : -HVD_EPROTO;
    return head->kind == TCP_HEAD_DATA ? 0 : -HVD_EPROTO;
}
