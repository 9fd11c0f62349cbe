/* SPDX-License-Identifier: Apache-2.0 */
/* The binary control messages; see control.h. */
#include "lib/protocol/control/control.h"

#include "lib/base/log.h"

#include <limits.h>
#include <string.h>

size_t control_frame_max(const struct hb_buf *in, int greeted)
{
    const unsigned char *p = (const unsigned char *)hb_buf_data(in);

    if (hb_buf_len(in) < FRAME_HEADER_BYTES || !greeted)
        return CONTROL_MESSAGE_MAX;
    switch ((enum control_type)p[5]) {
    case CONTROL_LOG:
    case CONTROL_QUITTING:
        return CONTROL_WORDS_MAX;
    case CONTROL_RENDEZVOUS:
    case CONTROL_ANSWER:
    case CONTROL_STALLED:
    case CONTROL_STALL_RANKS:
    case CONTROL_STALL_STACK:
    case CONTROL_TRACE:
        return FRAME_PAYLOAD_MAX;
    default:
        return CONTROL_MESSAGE_MAX;
    }
}

/* After frame_begin has reserved a frame, appending cannot fail. */

int control_encode_output(struct hb_buf *out, int rank, int stream,
                          const void *bytes, size_t len)
{
    int rc;

    if (len > FRAME_PAYLOAD_MAX - 5)
        return -HVD_EINVAL;
    rc = frame_begin(out, CONTROL_OUTPUT, 5 + len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)rank);
    hb_buf_put_u8(out, (uint8_t)stream);
    return hb_buf_append(out, bytes, len);
}

static int encode_rank_and_bytes(struct hb_buf *out, enum control_type type,
                                 int rank, const void *bytes, size_t len)
{
    int rc;

    if (len > FRAME_PAYLOAD_MAX - 4)
        return -HVD_EINVAL;
    rc = frame_begin(out, (uint8_t)type, 4 + len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)rank);
    return hb_buf_append(out, bytes, len);
}

int control_encode_stdin(struct hb_buf *out, int rank, const void *bytes,
                         size_t len)
{
    return encode_rank_and_bytes(out, CONTROL_STDIN, rank, bytes, len);
}

int control_encode_abort(struct hb_buf *out, int rank, const char *text)
{
    return encode_rank_and_bytes(out, CONTROL_ABORT, rank, text, strlen(text));
}

int control_encode_removed(struct hb_buf *out, int rank, const char *text)
{
    return encode_rank_and_bytes(out, CONTROL_REMOVED, rank, text,
                                 strlen(text));
}

int control_encode_evict(struct hb_buf *out, int rank, const char *text)
{
    return encode_rank_and_bytes(out, CONTROL_EVICT, rank, text, strlen(text));
}

int control_encode_stall_blame(struct hb_buf *out, int rank, const char *text)
{
    return encode_rank_and_bytes(out, CONTROL_STALL_BLAME, rank, text,
                                 strlen(text));
}

int control_encode_stall_end(struct hb_buf *out, int rank, const char *text)
{
    return encode_rank_and_bytes(out, CONTROL_STALL_END, rank, text,
                                 strlen(text));
}

int control_encode_bytes(struct hb_buf *out, enum control_type type, int rank,
                         const void *bytes, size_t len)
{
    return encode_rank_and_bytes(out, type, rank, bytes, len);
}

int control_encode_stdin_ack(struct hb_buf *out, int rank, uint32_t bytes)
{
    int rc = frame_begin(out, CONTROL_STDIN_ACK, 8);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)rank);
    return hb_buf_put_u32(out, bytes);
}

int control_encode_u32(struct hb_buf *out, enum control_type type, uint32_t v)
{
    int rc = frame_begin(out, (uint8_t)type, 4);

    if (rc < 0)
        return rc;
    return hb_buf_put_u32(out, v);
}

int control_encode_ping(struct hb_buf *out, uint64_t sent_ns,
                        uint32_t silence_ms)
{
    int rc = frame_begin(out, CONTROL_PING, 12);

    if (rc < 0)
        return rc;
    hb_buf_put_u64(out, sent_ns);
    return hb_buf_put_u32(out, silence_ms);
}

int control_encode_pong(struct hb_buf *out, uint64_t ping_ns, uint64_t now_ns)
{
    int rc = frame_begin(out, CONTROL_PONG, 16);

    if (rc < 0)
        return rc;
    hb_buf_put_u64(out, ping_ns);
    return hb_buf_put_u64(out, now_ns);
}

int control_encode_log(struct hb_buf *out, int level, const char *text)
{
    size_t len = strlen(text);
    int rc;

    if (len > FRAME_PAYLOAD_MAX - 1)
        return -HVD_EINVAL;
    rc = frame_begin(out, CONTROL_LOG, 1 + len);
    if (rc < 0)
        return rc;
    hb_buf_put_u8(out, (uint8_t)level);
    return hb_buf_append(out, text, len);
}

static int refuse(struct hb_error *err, const char *what, const char *why)
{
    return hb_error_set(err, HVD_EPROTO, "%s: %s", what, why);
}

int control_decode_output(const void *p, size_t len, struct control_bytes *m,
                          struct hb_error *err)
{
    struct hb_reader r;
    uint32_t rank;
    uint8_t stream;

    hb_reader_init(&r, p, len);
    rank = hb_read_u32(&r);
    stream = hb_read_u8(&r);
    if (r.bad)
        return refuse(err, "output", "too short");
    if (rank >= CONTROL_RANKS_MAX)
        return refuse(err, "output", "field 'rank' is out of range");
    if (stream != 1 && stream != 2)
        return refuse(err, "output", "field 'stream' is not 1 or 2");
    m->rank = (int)rank;
    m->stream = stream;
    m->len = r.left;
    m->bytes = hb_read_bytes(&r, r.left);
    return 0;
}

static int decode_rank_and_bytes(const char *what, const void *p, size_t len,
                                 struct control_bytes *m, struct hb_error *err)
{
    struct hb_reader r;
    uint32_t rank;

    hb_reader_init(&r, p, len);
    rank = hb_read_u32(&r);
    if (r.bad)
        return refuse(err, what, "too short");
    if (rank >= CONTROL_RANKS_MAX)
        return refuse(err, what, "field 'rank' is out of range");
    m->rank = (int)rank;
    m->stream = 0;
    m->len = r.left;
    m->bytes = hb_read_bytes(&r, r.left);
    return 0;
}

int control_decode_stdin(const void *p, size_t len, struct control_bytes *m,
                         struct hb_error *err)
{
    return decode_rank_and_bytes("stdin", p, len, m, err);
}

int control_decode_bytes(const void *p, size_t len, struct control_bytes *m,
                         struct hb_error *err)
{
    return decode_rank_and_bytes("trace", p, len, m, err);
}

int control_decode_stdin_ack(const void *p, size_t len, int *rank,
                             uint32_t *bytes, struct hb_error *err)
{
    struct hb_reader r;
    uint32_t got_rank, got_bytes;

    hb_reader_init(&r, p, len);
    got_rank = hb_read_u32(&r);
    got_bytes = hb_read_u32(&r);
    if (r.bad || r.left)
        return refuse(err, "stdin_ack", "wrong length");
    if (got_rank >= CONTROL_RANKS_MAX)
        return refuse(err, "stdin_ack", "field 'rank' is out of range");
    *rank = (int)got_rank;
    *bytes = got_bytes;
    return 0;
}

int control_decode_u32(const void *p, size_t len, uint32_t *v,
                       struct hb_error *err)
{
    struct hb_reader r;
    uint32_t got;

    hb_reader_init(&r, p, len);
    got = hb_read_u32(&r);
    if (r.bad || r.left)
        return refuse(err, "number", "wrong length");
    *v = got;
    return 0;
}

int control_decode_ping(const void *p, size_t len, uint64_t *sent_ns,
                        uint32_t *silence_ms, struct hb_error *err)
{
    struct hb_reader r;
    uint64_t sent;
    uint32_t silence;

    hb_reader_init(&r, p, len);
    sent = hb_read_u64(&r);
    silence = hb_read_u32(&r);
    if (r.bad || r.left)
        return refuse(err, "ping", "wrong length");
    *sent_ns = sent;
    *silence_ms = silence;
    return 0;
}

int control_decode_pong(const void *p, size_t len, uint64_t *ping_ns,
                        uint64_t *now_ns, struct hb_error *err)
{
    struct hb_reader r;
    uint64_t ping, now;

    hb_reader_init(&r, p, len);
    ping = hb_read_u64(&r);
    now = hb_read_u64(&r);
    if (r.bad || r.left)
        return refuse(err, "pong", "wrong length");
    *ping_ns = ping;
    *now_ns = now;
    return 0;
}

/* Reads the rest of r as text, cut to fit. */
static void read_text(struct hb_reader *r, char *text, size_t size)
{
    size_t len = r->left < size - 1 ? r->left : size - 1, i;
    const char *p = hb_read_bytes(r, len);

    for (i = 0; i < len; i++)
        text[i] = p[i] ? p[i] : '?';
    text[len] = '\0';
}

int control_decode_log(const void *p, size_t len, int *level, char *text,
                       size_t text_size, struct hb_error *err)
{
    struct hb_reader r;
    uint8_t got;

    hb_reader_init(&r, p, len);
    got = hb_read_u8(&r);
    if (r.bad)
        return refuse(err, "log", "too short");
    if (got > HB_LOG_FATAL)
        return refuse(err, "log", "field 'level' is out of range");
    *level = got;
    read_text(&r, text, text_size);
    return 0;
}

int control_decode_abort(const void *p, size_t len, int *rank, char *text,
                         size_t text_size, struct hb_error *err)
{
    struct hb_reader r;
    uint32_t got;

    hb_reader_init(&r, p, len);
    got = hb_read_u32(&r);
    if (r.bad)
        return refuse(err, "abort", "too short");
    if (got >= CONTROL_RANKS_MAX && got != UINT32_MAX)
        return refuse(err, "abort", "field 'rank' is out of range");
    *rank = (int)got;
    read_text(&r, text, text_size);
    return 0;
}
