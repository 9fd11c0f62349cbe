/* SPDX-License-Identifier: Apache-2.0 */
/* The codec of rendezvous.h. */
#include "lib/protocol/rendezvous.h"

#include "lib/protocol/wire.h"

#include <string.h>

/* The members and the value of a request follow. */
static const struct wire_field request_fields[] = {
    WIRE_U32(rdv_request, id),
    WIRE_NUMBER(rdv_request, op, 1, RDV_PUT, RDV_END_ROUND),
    WIRE_NUMBER(rdv_request, wait, 1, 0, 1),
    WIRE_U64(rdv_request, after),
    WIRE_TEXT(rdv_request, scope, 4),
    WIRE_TEXT(rdv_request, key, 4),
    WIRE_NUMBER(rdv_request, member_count, 4, 0, RDV_MEMBERS_MAX),
    WIRE_END,
};

static int name_ok(const char *s, size_t size)
{
    return strnlen(s, size) < size;
}

static int members_ascend(const struct rdv_request *m)
{
    for (uint32_t i = 1; i < m->member_count; i++)
        if (rdv_member(m, i - 1) >= rdv_member(m, i))
            return 0;
    return m->member_count == 0 ||
           rdv_member(m, m->member_count - 1) <= INT32_MAX;
}

static int request_ok(const struct rdv_request *m)
{
    if (m->op < RDV_PUT || m->op > RDV_END_ROUND)
        return 0;
    if (m->member_count > RDV_MEMBERS_MAX || !members_ascend(m))
        return 0;
    if (m->op == RDV_LEFT)
        return !m->wait && m->member_count == 1;
    if (m->op != RDV_FENCE && m->member_count > 0)
        return 0;
    if (m->op != RDV_GET && m->wait)
        return 0;
    if (m->op != RDV_GET && m->op != RDV_FENCE && m->after)
        return 0;
    if (m->op != RDV_PUT && m->op != RDV_FENCE && m->len > 0)
        return 0;
    return 1;
}

static void put_bytes(struct hb_buf *out, const void *p, size_t len)
{
    hb_buf_put_u32(out, (uint32_t)len);
    if (len)
        hb_buf_append(out, p, len);
}

int rdv_encode_request(struct hb_buf *out, uint8_t type,
                       const struct rdv_request *m)
{
    int rc;

    if (!name_ok(m->scope, sizeof(m->scope)) ||
        !name_ok(m->key, sizeof(m->key)) || !request_ok(m) ||
        m->len > FRAME_PAYLOAD_MAX)
        return -HVD_EINVAL;
    rc = frame_begin(out, type,
                     wire_bytes(request_fields, m) +
                         4 * (size_t)m->member_count + 4 + m->len);
    if (rc < 0)
        return rc;
    wire_put(out, request_fields, m);
    if (m->member_count)
        hb_buf_append(out, m->members, 4 * (size_t)m->member_count);
    put_bytes(out, m->value, m->len);
    return 0;
}

static const void *read_value(struct hb_reader *r, size_t max, size_t *len)
{
    uint32_t n = hb_read_u32(r);

    if (n > max)
        r->bad = 1;
    *len = n;
    return hb_read_bytes(r, n);
}

int rdv_decode_request(const void *p, size_t len, size_t value_max,
                       struct rdv_request *m)
{
    struct hb_reader r;

    hb_reader_init(&r, p, len);
    wire_take(&r, request_fields, m);
    if (r.bad)
        return -HVD_EPROTO;
    m->members = hb_read_bytes(&r, 4 * (size_t)m->member_count);
    m->value = read_value(&r, value_max, &m->len);
    if (r.bad || r.left || !request_ok(m))
        return -HVD_EPROTO;
    return 0;
}

int rdv_encode_reply(struct hb_buf *out, uint8_t type,
                     const struct rdv_reply *m)
{
    int rc;

    if (m->status < 0 || m->status >= HVD_STATUS_COUNT ||
        m->len > FRAME_PAYLOAD_MAX)
        return -HVD_EINVAL;
    rc = frame_begin(out, type, 4 + 1 + 8 + 4 + m->len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->id);
    hb_buf_put_u8(out, (uint8_t)m->status);
    hb_buf_put_u64(out, m->version);
    put_bytes(out, m->value, m->len);
    return 0;
}

int rdv_decode_reply(const void *p, size_t len, struct rdv_reply *m)
{
    struct hb_reader r;

    hb_reader_init(&r, p, len);
    m->id = hb_read_u32(&r);
    m->status = hb_read_u8(&r);
    m->version = hb_read_u64(&r);
    m->value = read_value(&r, FRAME_PAYLOAD_MAX, &m->len);
    if (r.bad || r.left || m->status >= HVD_STATUS_COUNT)
        return -HVD_EPROTO;
    return 0;
}

int rdv_put_record(struct hb_buf *out, uint32_t rank, const void *value,
                   size_t len)
{
    int rc = hb_buf_reserve(out, 8 + len);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, rank);
    put_bytes(out, value, len);
    return 0;
}

int rdv_next_record(struct hb_reader *r, struct rdv_record *out)
{
    if (r->left == 0 && !r->bad)
        return 0;
    out->rank = hb_read_u32(r);
    out->len = hb_read_u32(r);
    out->value = hb_read_bytes(r, out->len);
    return r->bad || out->rank > INT32_MAX ? -HVD_EPROTO : 1;
}
