/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a worker and its agent that concern other hosts: routes and
 * the fence; see worker.h.  Linked into libhvd: libc only.
 *
 * A scope and an address are a u16 length and their bytes, a value a u32 length
 * and its bytes.
 */
#include "lib/protocol/worker.h"

#include <string.h>

static void put_text(struct hb_buf *out, const char *s)
{
    size_t len = strlen(s);

    hb_buf_put_u16(out, (uint16_t)len);
    hb_buf_append(out, s, len);
}

static void read_value(struct hb_reader *r, struct worker_value *v)
{
    v->len = hb_read_u32(r);
    v->value = hb_read_bytes(r, v->len);
    if (v->len > WORKER_VALUE_MAX)
        r->bad = 1;
}

static int scope_is_valid(const char *scope)
{
    size_t len = strnlen(scope, WORKER_SCOPE_MAX);

    return len > 0 && len < WORKER_SCOPE_MAX;
}

/* ---- The fence ------------------------------------------------------- */

int worker_encode_fence(struct hb_buf *out, const char *scope,
                        const void *value, size_t len)
{
    int rc;

    if (!scope_is_valid(scope) || len > WORKER_VALUE_MAX)
        return -HVD_EINVAL;
    rc = frame_begin(out, WORKER_RDV_FENCE, 2 + strlen(scope) + 4 + len);
    if (rc < 0)
        return rc;
    put_text(out, scope);
    hb_buf_put_u32(out, (uint32_t)len);
    hb_buf_append(out, value, len);
    return 0;
}

int worker_decode_fence(const void *p, size_t len, char scope[WORKER_SCOPE_MAX],
                        struct worker_value *v)
{
    struct worker_value got = {0, NULL, 0};
    char name[WORKER_SCOPE_MAX] = "";
    struct hb_reader r;

    hb_reader_init(&r, p, len);
    hb_read_text(&r, hb_read_u16(&r), name, sizeof(name));
    read_value(&r, &got);
    if (r.bad || r.left || !name[0])
        return -HVD_EPROTO;
    memcpy(scope, name, sizeof(name));
    *v = got;
    return 0;
}

int worker_begin_fenced(struct hb_buf *out, const char *scope, uint32_t count,
                        size_t value_bytes)
{
    size_t len = 2 + strlen(scope) + 4 + 8 * (size_t)count + value_bytes;
    int rc;

    if (!scope_is_valid(scope) || len > WORKER_FENCED_MAX)
        return -HVD_EINVAL;
    rc = frame_begin(out, WORKER_RDV_FENCED, len);
    if (rc < 0)
        return rc;
    put_text(out, scope);
    hb_buf_put_u32(out, count);
    return 0;
}

void worker_put_fenced(struct hb_buf *out, uint32_t rank, const void *value,
                       size_t len)
{
    hb_buf_put_u32(out, rank);
    hb_buf_put_u32(out, (uint32_t)len);
    hb_buf_append(out, value, len);
}

int worker_decode_fenced(const void *p, size_t len, const char *scope,
                         uint32_t size, struct worker_value *values)
{
    char name[WORKER_SCOPE_MAX] = "";
    struct hb_reader r;
    uint32_t count;

    hb_reader_init(&r, p, len);
    hb_read_text(&r, hb_read_u16(&r), name, sizeof(name));
    count = hb_read_u32(&r);
    if (r.bad || count != size || strcmp(name, scope) != 0)
        return -HVD_EPROTO;
    for (uint32_t i = 0; i < count && !r.bad; i++) {
        values[i].rank = hb_read_u32(&r);
        read_value(&r, &values[i]);
        if (values[i].rank != i)
            r.bad = 1;
    }
    return r.bad || r.left ? -HVD_EPROTO : 0;
}

/* ---- Routes ---------------------------------------------------------- */

int worker_encode_routes(struct hb_buf *out)
{
    return frame_encode(out, WORKER_ROUTES, NULL, 0);
}

int worker_encode_routes_are(struct hb_buf *out, char *const *addresses,
                             size_t count)
{
    size_t len = 4;
    int rc;

    for (size_t i = 0; i < count; i++) {
        if (strlen(addresses[i]) >= WORKER_ADDRESS_MAX)
            return -HVD_EINVAL;
        len += 2 + strlen(addresses[i]);
    }
    if (len > WORKER_PAYLOAD_MAX)
        return -HVD_EINVAL;
    rc = frame_begin(out, WORKER_ROUTES_ARE, len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        put_text(out, addresses[i]);
    return 0;
}

int worker_decode_routes_are(const void *p, size_t len, uint32_t count,
                             char (*addresses)[WORKER_ADDRESS_MAX])
{
    struct hb_reader r;

    hb_reader_init(&r, p, len);
    if (hb_read_u32(&r) != count)
        return -HVD_EPROTO;
    for (uint32_t i = 0; i < count && !r.bad; i++)
        hb_read_text(&r, hb_read_u16(&r), addresses[i], WORKER_ADDRESS_MAX);
    return r.bad || r.left ? -HVD_EPROTO : 0;
}
