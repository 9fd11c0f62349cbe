/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a worker and its agent; see worker.h.  Linked into libhvd:
 * libc only.
 *
 * After frame_begin has reserved a frame, appending cannot fail, so the
 * encoders ignore those results.
 */
#include "lib/protocol/worker.h"

#include "lib/protocol/wire.h"

#include <assert.h>
#include <string.h>

_Static_assert(sizeof(((struct worker_welcome *)0)->host) == 256 &&
                   sizeof(((struct worker_welcome *)0)->job_id) == 64,
               "string sizes are part of the wire's limits");

static const struct wire_field hello_fields[] = {
    WIRE_U32(worker_hello, abi),
    WIRE_NUMBER(worker_hello, rank, 4, 0, INT32_MAX),
    WIRE_U32(worker_hello, pid),
    WIRE_END,
};

/* WELCOME: the head, the secret, the numbers of local ranks, their arrays, the
 * tail; welcome_is_valid checks the values. */
static const struct wire_field welcome_head[] = {
    WIRE_U32(worker_welcome, rank),
    WIRE_U32(worker_welcome, size),
    WIRE_U32(worker_welcome, local_rank),
    WIRE_U32(worker_welcome, local_size),
    WIRE_U32(worker_welcome, cross_rank),
    WIRE_U32(worker_welcome, cross_size),
    WIRE_TEXT(worker_welcome, host, 2),
    WIRE_TEXT(worker_welcome, job_id, 2),
    WIRE_END,
};

static const struct wire_field welcome_local[] = {
    WIRE_U32(worker_welcome, cpus),
    WIRE_NUMBER(worker_welcome, local_count, 4, 0, WORKER_LOCAL_MAX),
    WIRE_END,
};

static const struct wire_field welcome_tail[] = {
    WIRE_U32(worker_welcome, host_index),
    WIRE_U32(worker_welcome, host_count),
    WIRE_NUMBER(worker_welcome, generation, 4, 0, INT32_MAX),
    WIRE_U32(worker_welcome, joined),
    WIRE_NUMBER(worker_welcome, removed, 4, 0, INT32_MAX),
    WIRE_TEXT(worker_welcome, why, 2),
    WIRE_END,
};

static const struct wire_field join_fields[] = {
    WIRE_NUMBER(worker_join, epoch, 4, 1, UINT32_MAX),
    WIRE_U64(worker_join, segment_bytes),
    WIRE_END,
};

static const struct wire_field segment_fields[] = {
    WIRE_NUMBER(worker_segment, epoch, 4, 1, UINT32_MAX),
    WIRE_U64(worker_segment, segment_bytes),
    WIRE_END,
};

static const struct wire_field stalled_fields[] = {
    WIRE_U32(worker_stalled, waited_ms),
    WIRE_U32(worker_stalled, warning_ms),
    WIRE_U32(worker_stalled, shutdown_ms),
    WIRE_END,
};

static const struct wire_field leave_fields[] = {
    WIRE_VALUE("epoch", 1, UINT32_MAX),
    WIRE_END,
};

static const struct wire_field no_answer_fields[] = {
    WIRE_NUMBER(worker_no_answer, rank, 4, 0, INT32_MAX),
    WIRE_NUMBER(worker_no_answer, generation, 4, 0, INT32_MAX),
    WIRE_END,
};

/* BLAMES: a rank; LATE: milliseconds. */
static const struct wire_field u31_fields[] = {
    WIRE_VALUE("value", 0, INT32_MAX),
    WIRE_END,
};

int worker_encode_hello(struct hb_buf *out, const struct worker_hello *m)
{
    return wire_encode(out, WORKER_HELLO, hello_fields, m);
}

int worker_decode_hello(const void *p, size_t len, struct worker_hello *m)
{
    return wire_decode("hello", p, len, hello_fields, m, NULL);
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

int worker_encode_welcome(struct hb_buf *out, const struct worker_welcome *m)
{
    int rc;

    if (!memchr(m->host, '\0', sizeof(m->host)) ||
        !memchr(m->job_id, '\0', sizeof(m->job_id)) ||
        !memchr(m->why, '\0', sizeof(m->why)) || !welcome_is_valid(m))
        return -HVD_EINVAL;
    rc = frame_begin(out, WORKER_WELCOME,
                     wire_bytes(welcome_head, m) + WORKER_SECRET_BYTES +
                         wire_bytes(welcome_local, m) +
                         2 * 4 * (size_t)m->local_count +
                         wire_bytes(welcome_tail, m));
    if (rc < 0)
        return rc;
    wire_put(out, welcome_head, m);
    hb_buf_append(out, m->secret, sizeof(m->secret));
    wire_put(out, welcome_local, m);
    for (uint32_t i = 0; i < m->local_count; i++)
        hb_buf_put_u32(out, m->local_ranks[i]);
    for (uint32_t i = 0; i < m->local_count; i++)
        hb_buf_put_u32(out, m->local_domains[i]);
    wire_put(out, welcome_tail, m);
    return 0;
}

int worker_decode_welcome(const void *p, size_t len, struct worker_welcome *m)
{
    struct worker_welcome got = {0};
    struct hb_reader r;
    const void *secret;

    hb_reader_init(&r, p, len);
    wire_take(&r, welcome_head, &got);
    secret = hb_read_bytes(&r, sizeof(got.secret));
    wire_take(&r, welcome_local, &got);
    for (uint32_t i = 0; i < got.local_count; i++)
        got.local_ranks[i] = hb_read_u32(&r);
    for (uint32_t i = 0; i < got.local_count; i++)
        got.local_domains[i] = hb_read_u32(&r);
    wire_take(&r, welcome_tail, &got);
    if (!secret || r.bad || r.left || !welcome_is_valid(&got))
        return -HVD_EPROTO;
    *m = got;
    memcpy(m->secret, secret, sizeof(m->secret));
    return 0;
}

int worker_encode_refused(struct hb_buf *out, const char *text)
{
    return frame_encode(out, WORKER_REFUSED, text,
                        strnlen(text, WORKER_TEXT_MAX - 1));
}

int worker_encode_removed(struct hb_buf *out, const char *text)
{
    return frame_encode(out, WORKER_REMOVED, text,
                        strnlen(text, WORKER_TEXT_MAX - 1));
}

int worker_decode_removed(const void *p, size_t len, char *text,
                          size_t text_size)
{
    return worker_decode_refused(p, len, text, text_size);
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
    return wire_encode(out, WORKER_JOIN, join_fields, m);
}

int worker_decode_join(const void *p, size_t len, struct worker_join *m)
{
    return wire_decode("join", p, len, join_fields, m, NULL);
}

int worker_encode_segment(struct hb_buf *out, const struct worker_segment *m)
{
    return wire_encode(out, WORKER_SEGMENT, segment_fields, m);
}

int worker_decode_segment(const void *p, size_t len, struct worker_segment *m)
{
    return wire_decode("segment", p, len, segment_fields, m, NULL);
}

/* Writes a whole frame of `bytes` bytes to out. */
static void write_frame(unsigned char *out, size_t bytes, uint8_t type,
                        const struct wire_field *fields, const void *m)
{
    char memory[WORKER_STALLED_BYTES + 1]; /* hb_buf's final 0 */
    struct hb_buf b = {memory, 0, 0, sizeof(memory)};

    wire_encode(&b, type, fields, m);
    assert(b.data == memory && b.len == bytes);
    memcpy(out, memory, bytes);
}

void worker_write_stalled(unsigned char out[WORKER_STALLED_BYTES],
                          const struct worker_stalled *m)
{
    write_frame(out, WORKER_STALLED_BYTES, WORKER_STALLED, stalled_fields, m);
}

void worker_write_blames(unsigned char out[WORKER_BLAMES_BYTES], uint32_t rank)
{
    write_frame(out, WORKER_BLAMES_BYTES, WORKER_BLAMES, u31_fields, &rank);
}

void worker_write_late(unsigned char out[WORKER_LATE_BYTES], uint32_t ms)
{
    write_frame(out, WORKER_LATE_BYTES, WORKER_LATE, u31_fields, &ms);
}

void worker_write_no_answer(unsigned char out[WORKER_NO_ANSWER_BYTES],
                            const struct worker_no_answer *m)
{
    write_frame(out, WORKER_NO_ANSWER_BYTES, WORKER_NO_ANSWER, no_answer_fields,
                m);
}

int worker_decode_blames(const void *p, size_t len, uint32_t *rank)
{
    return wire_decode("blames", p, len, u31_fields, rank, NULL);
}

int worker_decode_late(const void *p, size_t len, uint32_t *ms)
{
    return wire_decode("late", p, len, u31_fields, ms, NULL);
}

int worker_decode_no_answer(const void *p, size_t len,
                            struct worker_no_answer *m)
{
    return wire_decode("no answer", p, len, no_answer_fields, m, NULL);
}

int worker_decode_stalled(const void *p, size_t len, struct worker_stalled *m)
{
    return wire_decode("stalled", p, len, stalled_fields, m, NULL);
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
    return wire_encode(out, WORKER_LEAVE, leave_fields, &epoch);
}

int worker_decode_leave(const void *p, size_t len, uint32_t *epoch)
{
    return wire_decode("leave", p, len, leave_fields, epoch, NULL);
}
