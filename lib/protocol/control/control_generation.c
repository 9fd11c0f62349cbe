/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about generations; see control_generation.h. */
#include "lib/protocol/control/control.h"

#include "lib/base/alloc.h"

#include <string.h>

int control_encode_ready(struct hb_buf *out, int rank, int ready)
{
    int rc = frame_begin(out, CONTROL_READY, 8);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)rank);
    return hb_buf_put_u32(out, (uint32_t)ready);
}

int control_decode_ready(const void *p, size_t len, int *rank, int *ready,
                         struct hb_error *err)
{
    struct hb_reader r;
    uint32_t got_rank, got_ready;

    hb_reader_init(&r, p, len);
    got_rank = hb_read_u32(&r);
    got_ready = hb_read_u32(&r);
    if (r.bad || r.left)
        return hb_error_set(err, HVD_EPROTO, "ready: wrong length");
    if (got_rank >= CONTROL_RANKS_MAX || got_ready > 1)
        return hb_error_set(err, HVD_EPROTO, "ready: a number is out of range");
    *rank = (int)got_rank;
    *ready = (int)got_ready;
    return 0;
}

int control_encode_notice(struct hb_buf *out, int rank, uint32_t left_ms)
{
    int rc = frame_begin(out, CONTROL_NOTICE, 8);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)rank);
    return hb_buf_put_u32(out, left_ms);
}

int control_decode_notice(const void *p, size_t len, int *rank,
                          uint32_t *left_ms, struct hb_error *err)
{
    struct hb_reader r;
    uint32_t got_rank, got_ms;

    hb_reader_init(&r, p, len);
    got_rank = hb_read_u32(&r);
    got_ms = hb_read_u32(&r);
    if (r.bad || r.left)
        return hb_error_set(err, HVD_EPROTO, "notice: wrong length");
    if (got_rank >= CONTROL_RANKS_MAX ||
        (got_ms > CONTROL_LEFT_MAX_MS && got_ms != CONTROL_LEFT_ANY))
        return hb_error_set(err, HVD_EPROTO,
                            "notice: a number is out of range");
    *rank = (int)got_rank;
    *left_ms = got_ms;
    return 0;
}

int control_encode_going(struct hb_buf *out, uint32_t left_ms, const char *why)
{
    size_t len = strnlen(why, CONTROL_WHY_MAX - 1);
    int rc = frame_begin(out, CONTROL_GOING, 4 + len);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, left_ms);
    return hb_buf_append(out, why, len);
}

int control_decode_going(const void *p, size_t len, uint32_t *left_ms,
                         char why[CONTROL_WHY_MAX], struct hb_error *err)
{
    char text[CONTROL_WHY_MAX] = "";
    struct hb_reader r;
    uint32_t got;

    hb_reader_init(&r, p, len);
    got = hb_read_u32(&r);
    hb_read_text(&r, r.left, text, sizeof(text));
    if (r.bad || (got > CONTROL_LEFT_MAX_MS && got != CONTROL_LEFT_ANY))
        return hb_error_set(err, HVD_EPROTO, "going: malformed");
    *left_ms = got;
    memcpy(why, text, sizeof(text));
    return 0;
}

static int is_valid(const struct control_generation *m)
{
    if (m->number == 0 || m->number > INT32_MAX || m->count < 1 ||
        m->count > CONTROL_RANKS_MAX || m->joined > (uint32_t)m->count ||
        m->removed > CONTROL_RANKS_MAX)
        return 0;
    for (int i = 0; i < m->count; i++)
        if (m->ranks[i] < (i ? m->ranks[i - 1] + 1 : 0) ||
            m->ranks[i] >= CONTROL_RANKS_MAX)
            return 0;
    return 1;
}

int control_encode_generation(struct hb_buf *out,
                              const struct control_generation *m)
{
    size_t why_len = strnlen(m->why, sizeof(m->why));
    int rc;

    if (why_len == sizeof(m->why) || !is_valid(m))
        return -HVD_EINVAL;
    rc = frame_begin(out, CONTROL_GENERATION,
                     16 + 4 * (size_t)m->count + why_len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->number);
    hb_buf_put_u32(out, m->joined);
    hb_buf_put_u32(out, m->removed);
    hb_buf_put_u32(out, (uint32_t)m->count);
    for (int i = 0; i < m->count; i++)
        hb_buf_put_u32(out, (uint32_t)m->ranks[i]);
    return hb_buf_append(out, m->why, why_len);
}

/* Reads the ranks and the text; the caller has read the numbers. */
static int read_rest(struct hb_reader *r, struct control_generation *m)
{
    uint32_t count = hb_read_u32(r);

    if (r->bad || count < 1 || count > CONTROL_RANKS_MAX ||
        r->left < 4 * (size_t)count ||
        r->left - 4 * (size_t)count >= sizeof(m->why))
        return -HVD_EPROTO;
    m->ranks = hb_calloc(count, sizeof(*m->ranks));
    if (!m->ranks)
        return -HVD_ENOMEM;
    m->count = (int)count;
    for (int i = 0; i < m->count; i++) {
        uint32_t rank = hb_read_u32(r);

        m->ranks[i] = rank < CONTROL_RANKS_MAX ? (int)rank : -1;
    }
    hb_read_text(r, r->left, m->why, sizeof(m->why));
    return r->bad || r->left || !is_valid(m) ? -HVD_EPROTO : 0;
}

int control_decode_generation(const void *p, size_t len,
                              struct control_generation *m,
                              struct hb_error *err)
{
    struct hb_reader r;
    int rc;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    m->number = hb_read_u32(&r);
    m->joined = hb_read_u32(&r);
    m->removed = hb_read_u32(&r);
    rc = read_rest(&r, m);
    if (rc == 0)
        return 0;
    control_generation_fini(m);
    return hb_error_set(err, (enum hvd_status) - rc, "generation: %s",
                        rc == -HVD_ENOMEM ? "no memory" : "malformed");
}

void control_generation_fini(struct control_generation *m)
{
    hb_free(m->ranks);
    memset(m, 0, sizeof(*m));
}
