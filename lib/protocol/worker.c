/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a worker and its agent; see worker.h.  Linked into libhvd:
 * libc only.
 *
 * Decoders fill a local copy and hand it over when every check has passed.
 * After frame_begin has reserved a frame, appending cannot fail, so the
 * encoders ignore those results.
 */
#include "lib/protocol/worker.h"

#include <string.h>

_Static_assert(sizeof(((struct worker_welcome *)0)->host) == 256 &&
                   sizeof(((struct worker_welcome *)0)->job_id) == 64,
               "string sizes are part of the wire's limits");

int worker_encode_hello(struct hb_buf *out, const struct worker_hello *m)
{
    int rc = frame_begin(out, WORKER_HELLO, 12);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->abi);
    hb_buf_put_u32(out, m->rank);
    hb_buf_put_u32(out, m->pid);
    return 0;
}

/* Checks that the payload was read exactly to its end. */
static int finish(const struct hb_reader *r)
{
    return r->bad || r->left ? -HVD_EPROTO : 0;
}

int worker_decode_hello(const void *p, size_t len, struct worker_hello *m)
{
    struct worker_hello got;
    struct hb_reader r;

    hb_reader_init(&r, p, len);
    got.abi = hb_read_u32(&r);
    got.rank = hb_read_u32(&r);
    got.pid = hb_read_u32(&r);
    if (finish(&r) < 0 || got.rank > INT32_MAX)
        return -HVD_EPROTO;
    *m = got;
    return 0;
}

static int welcome_is_valid(const struct worker_welcome *m)
{
    uint32_t i;

    if (m->size < 1 || m->size > INT32_MAX || m->rank >= m->size)
        return 0;
    if (m->local_size < 1 || m->local_size > WORKER_LOCAL_MAX ||
        m->local_size > m->size || m->local_rank >= m->local_size)
        return 0;
    if (m->cross_size > m->size || m->cross_rank >= m->cross_size)
        return 0;
    if (m->cpus > INT32_MAX || m->local_count != m->local_size)
        return 0;
    if (m->host_count > m->size || m->host_index >= m->host_count)
        return 0;
    if (m->generation > INT32_MAX || m->joined > m->size)
        return 0;
    for (i = 0; i < m->local_count; i++) {
        if (m->local_ranks[i] >= m->size ||
            m->local_domains[i] >= m->local_size)
            return 0;
    }
    return m->local_ranks[m->local_rank] == m->rank;
}

static void put_string(struct hb_buf *out, const char *s, size_t len)
{
    hb_buf_put_u16(out, (uint16_t)len);
    hb_buf_append(out, s, len);
}

int worker_encode_welcome(struct hb_buf *out, const struct worker_welcome *m)
{
    size_t host_len = strnlen(m->host, sizeof(m->host));
    size_t job_len = strnlen(m->job_id, sizeof(m->job_id));
    size_t why_len = strnlen(m->why, sizeof(m->why));
    size_t len;
    uint32_t i;
    int rc;

    if (host_len == sizeof(m->host) || job_len == sizeof(m->job_id) ||
        why_len == sizeof(m->why) || !welcome_is_valid(m))
        return -HVD_EINVAL;
    len = 6 * 4 + 2 + host_len + 2 + job_len + WORKER_SECRET_BYTES + 4 + 4 +
          2 * 4 * (size_t)m->local_count + 4 * 4 + 2 + why_len;
    rc = frame_begin(out, WORKER_WELCOME, len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->rank);
    hb_buf_put_u32(out, m->size);
    hb_buf_put_u32(out, m->local_rank);
    hb_buf_put_u32(out, m->local_size);
    hb_buf_put_u32(out, m->cross_rank);
    hb_buf_put_u32(out, m->cross_size);
    put_string(out, m->host, host_len);
    put_string(out, m->job_id, job_len);
    hb_buf_append(out, m->secret, sizeof(m->secret));
    hb_buf_put_u32(out, m->cpus);
    hb_buf_put_u32(out, m->local_count);
    for (i = 0; i < m->local_count; i++)
        hb_buf_put_u32(out, m->local_ranks[i]);
    for (i = 0; i < m->local_count; i++)
        hb_buf_put_u32(out, m->local_domains[i]);
    hb_buf_put_u32(out, m->host_index);
    hb_buf_put_u32(out, m->host_count);
    hb_buf_put_u32(out, m->generation);
    hb_buf_put_u32(out, m->joined);
    put_string(out, m->why, why_len);
    return 0;
}

static void read_secret(struct hb_reader *r, unsigned char *out)
{
    const void *p = hb_read_bytes(r, WORKER_SECRET_BYTES);

    if (p)
        memcpy(out, p, WORKER_SECRET_BYTES);
}

int worker_decode_welcome(const void *p, size_t len, struct worker_welcome *m)
{
    struct worker_welcome got;
    struct hb_reader r;
    int rc = -HVD_EPROTO;
    uint32_t i;

    memset(&got, 0, sizeof(got));
    hb_reader_init(&r, p, len);
    got.rank = hb_read_u32(&r);
    got.size = hb_read_u32(&r);
    got.local_rank = hb_read_u32(&r);
    got.local_size = hb_read_u32(&r);
    got.cross_rank = hb_read_u32(&r);
    got.cross_size = hb_read_u32(&r);
    hb_read_text(&r, hb_read_u16(&r), got.host, sizeof(got.host));
    hb_read_text(&r, hb_read_u16(&r), got.job_id, sizeof(got.job_id));
    read_secret(&r, got.secret);
    got.cpus = hb_read_u32(&r);
    got.local_count = hb_read_u32(&r);
    if (got.local_count > WORKER_LOCAL_MAX)
        goto refuse;
    for (i = 0; i < got.local_count; i++)
        got.local_ranks[i] = hb_read_u32(&r);
    for (i = 0; i < got.local_count; i++)
        got.local_domains[i] = hb_read_u32(&r);
    got.host_index = hb_read_u32(&r);
    got.host_count = hb_read_u32(&r);
    got.generation = hb_read_u32(&r);
    got.joined = hb_read_u32(&r);
    hb_read_text(&r, hb_read_u16(&r), got.why, sizeof(got.why));
    if (finish(&r) < 0 || !welcome_is_valid(&got))
        goto refuse;
    *m = got;
    rc = 0;
refuse:
    explicit_bzero(got.secret, sizeof(got.secret));
    return rc;
}

int worker_encode_refused(struct hb_buf *out, const char *text)
{
    return frame_encode(out, WORKER_REFUSED, text,
                        strnlen(text, WORKER_TEXT_MAX - 1));
}

int worker_decode_refused(const void *p, size_t len, char *text,
                          size_t text_size)
{
    if (len >= WORKER_TEXT_MAX || text_size == 0 ||
        (len && memchr(p, '\0', len)))
        return -HVD_EPROTO;
    if (len >= text_size)
        len = text_size - 1;
    if (len)
        memcpy(text, p, len);
    text[len] = '\0';
    return 0;
}

int worker_encode_join(struct hb_buf *out, const struct worker_join *m)
{
    int rc = frame_begin(out, WORKER_JOIN, 12);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->epoch);
    hb_buf_put_u64(out, m->segment_bytes);
    return 0;
}

/* Decodes JOIN or SEGMENT, which have the same payload. */
static int decode_epoch_and_bytes(const void *p, size_t len, uint32_t *epoch,
                                  uint64_t *bytes)
{
    struct hb_reader r;
    uint32_t e;
    uint64_t b;

    hb_reader_init(&r, p, len);
    e = hb_read_u32(&r);
    b = hb_read_u64(&r);
    if (finish(&r) < 0 || e == 0)
        return -HVD_EPROTO;
    *epoch = e;
    *bytes = b;
    return 0;
}

int worker_decode_join(const void *p, size_t len, struct worker_join *m)
{
    return decode_epoch_and_bytes(p, len, &m->epoch, &m->segment_bytes);
}

int worker_encode_segment(struct hb_buf *out, const struct worker_segment *m)
{
    int rc = frame_begin(out, WORKER_SEGMENT, 12);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->epoch);
    hb_buf_put_u64(out, m->segment_bytes);
    return 0;
}

int worker_decode_segment(const void *p, size_t len, struct worker_segment *m)
{
    return decode_epoch_and_bytes(p, len, &m->epoch, &m->segment_bytes);
}

static void write_u32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 24);
    p[1] = (unsigned char)(v >> 16);
    p[2] = (unsigned char)(v >> 8);
    p[3] = (unsigned char)v;
}

void worker_write_stalled(unsigned char out[WORKER_STALLED_BYTES],
                          const struct worker_stalled *m)
{
    frame_header(out, WORKER_STALLED, 12);
    write_u32(out + FRAME_HEADER_BYTES, m->waited_ms);
    write_u32(out + FRAME_HEADER_BYTES + 4, m->warning_ms);
    write_u32(out + FRAME_HEADER_BYTES + 8, m->shutdown_ms);
}

void worker_write_blames(unsigned char out[WORKER_BLAMES_BYTES], uint32_t rank)
{
    frame_header(out, WORKER_BLAMES, 4);
    write_u32(out + FRAME_HEADER_BYTES, rank);
}

void worker_write_late(unsigned char out[WORKER_LATE_BYTES], uint32_t ms)
{
    frame_header(out, WORKER_LATE, 4);
    write_u32(out + FRAME_HEADER_BYTES, ms);
}

static int decode_u31(const void *p, size_t len, uint32_t *value)
{
    struct hb_reader r;
    uint32_t got;

    hb_reader_init(&r, p, len);
    got = hb_read_u32(&r);
    if (finish(&r) < 0 || got > INT32_MAX)
        return -HVD_EPROTO;
    *value = got;
    return 0;
}

int worker_decode_blames(const void *p, size_t len, uint32_t *rank)
{
    return decode_u31(p, len, rank);
}

int worker_decode_late(const void *p, size_t len, uint32_t *ms)
{
    return decode_u31(p, len, ms);
}

int worker_decode_stalled(const void *p, size_t len, struct worker_stalled *m)
{
    struct worker_stalled got;
    struct hb_reader r;

    hb_reader_init(&r, p, len);
    got.waited_ms = hb_read_u32(&r);
    got.warning_ms = hb_read_u32(&r);
    got.shutdown_ms = hb_read_u32(&r);
    if (finish(&r) < 0)
        return -HVD_EPROTO;
    *m = got;
    return 0;
}

static int encode_abort(struct hb_buf *out, enum worker_type type,
                        const struct worker_abort *m)
{
    size_t text_len = strnlen(m->text, sizeof(m->text) - 1);
    int rc = frame_begin(out, (uint8_t)type, 4 + text_len);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->rank);
    hb_buf_append(out, m->text, text_len);
    return 0;
}

int worker_encode_abort(struct hb_buf *out, const struct worker_abort *m)
{
    return encode_abort(out, WORKER_ABORT, m);
}

int worker_encode_timeout(struct hb_buf *out, const struct worker_abort *m)
{
    return encode_abort(out, WORKER_TIMEOUT, m);
}

int worker_decode_abort(const void *p, size_t len, struct worker_abort *m)
{
    char text[WORKER_TEXT_MAX];
    struct hb_reader r;
    uint32_t rank;

    hb_reader_init(&r, p, len);
    rank = hb_read_u32(&r);
    if (r.bad || (rank > INT32_MAX && rank != UINT32_MAX) ||
        worker_decode_refused(r.p, r.left, text, sizeof(text)) < 0)
        return -HVD_EPROTO;
    m->rank = rank;
    memcpy(m->text, text, sizeof(text));
    return 0;
}

int worker_encode_leave(struct hb_buf *out, uint32_t epoch)
{
    int rc = frame_begin(out, WORKER_LEAVE, 4);

    if (rc < 0)
        return rc;
    return hb_buf_put_u32(out, epoch);
}

int worker_decode_leave(const void *p, size_t len, uint32_t *epoch)
{
    struct hb_reader r;
    uint32_t e;

    hb_reader_init(&r, p, len);
    e = hb_read_u32(&r);
    if (finish(&r) < 0 || e == 0)
        return -HVD_EPROTO;
    *epoch = e;
    return 0;
}
