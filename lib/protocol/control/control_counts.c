/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks have counted; see control_counts.h. */
#include "lib/protocol/control/control_counts.h"

#include "lib/protocol/control/control.h"

enum { ENTRY_BYTES = 28 };

int control_encode_counts(struct hb_buf *out, const struct control_counts *m,
                          int count)
{
    int rc = frame_begin(out, CONTROL_COUNTS, (size_t)count * ENTRY_BYTES);

    for (int i = 0; rc == 0 && i < count; i++) {
        hb_buf_put_u32(out, (uint32_t)m[i].rank);
        hb_buf_put_u64(out, m[i].counts.calls);
        hb_buf_put_u64(out, m[i].counts.bytes);
        rc = hb_buf_put_u64(out, m[i].counts.waited_ns);
    }
    return rc;
}

int control_encode_counts_ask(struct hb_buf *out)
{
    return frame_begin(out, CONTROL_COUNTS_ASK, 0);
}

int control_decode_counts(const void *p, size_t len, int at,
                          struct control_counts *m, struct hb_error *err)
{
    struct hb_reader r;
    uint32_t rank;

    if (len % ENTRY_BYTES != 0 || len / ENTRY_BYTES > CONTROL_LOCAL_MAX)
        return hb_error_set(err, HVD_EPROTO, "counts: malformed");
    if ((size_t)at >= len / ENTRY_BYTES)
        return 0;
    hb_reader_init(&r, (const char *)p + (size_t)at * ENTRY_BYTES, ENTRY_BYTES);
    rank = hb_read_u32(&r);
    if (rank >= CONTROL_RANKS_MAX)
        return hb_error_set(err, HVD_EPROTO,
                            "counts: field 'rank' is out of range");
    m->rank = (int)rank;
    m->counts.calls = hb_read_u64(&r);
    m->counts.bytes = hb_read_u64(&r);
    m->counts.waited_ns = hb_read_u64(&r);
    return 1;
}
