/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hb_buf and struct hb_reader; see buf.h.
 *
 * Growing allocates anew and copies the live bytes, so consumed space in
 * front never travels along.  Live bytes move down inside the same memory
 * only when at least as many were consumed since, which keeps the cost of
 * a byte constant.
 */
#include "lib/base/buf.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MIN_CAPACITY = 64 };

static char *tail(const struct hb_buf *b)
{
    return b->data + b->off + b->len;
}

/* Wipes the memory, because buffers may have held secrets. */
static void release(const struct hb_buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    hb_free(b->data);
}

void hb_buf_free(struct hb_buf *b)
{
    release(b);
    memset(b, 0, sizeof(*b));
}

void hb_buf_clear(struct hb_buf *b)
{
    b->off = 0;
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

int hb_buf_reserve(struct hb_buf *b, size_t more_bytes)
{
    size_t need, cap;
    char *data;

    if (more_bytes > PTRDIFF_MAX - 1 - b->len)
        return -HVD_ENOMEM;
    need = b->len + more_bytes + 1;
    if (b->data && need <= b->cap - b->off)
        return 0;
    if (b->data && need <= b->cap && b->off >= b->len) {
        memmove(b->data, b->data + b->off, b->len + 1);
        b->off = 0;
        return 0;
    }
    cap = b->cap < PTRDIFF_MAX / 2 ? b->cap * 2 : need;
    if (cap < need)
        cap = need;
    if (cap < MIN_CAPACITY)
        cap = MIN_CAPACITY;
    data = hb_malloc(cap);
    if (!data)
        return -HVD_ENOMEM;
    memcpy(data, hb_buf_data(b), b->len);
    data[b->len] = '\0';
    release(b);
    b->data = data;
    b->off = 0;
    b->cap = cap;
    return 0;
}

int hb_buf_append(struct hb_buf *b, const void *p, size_t len)
{
    int rc = hb_buf_reserve(b, len);

    if (rc < 0)
        return rc;
    if (len)
        memcpy(tail(b), p, len);
    b->len += len;
    *tail(b) = '\0';
    return 0;
}

int hb_buf_puts(struct hb_buf *b, const char *s)
{
    return hb_buf_append(b, s, strlen(s));
}

int hb_buf_putc(struct hb_buf *b, char c)
{
    return hb_buf_append(b, &c, 1);
}

int hb_buf_vprintf(struct hb_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    size_t room;
    int len, rc;

    /* At least the final 0 must have room. */
    rc = hb_buf_reserve(b, 0);
    if (rc < 0)
        return rc;
    room = b->cap - b->off - b->len;
    va_copy(again, ap);
    len = vsnprintf(tail(b), room, fmt, ap);
    if (len < 0 || (size_t)len >= room) {
        *tail(b) = '\0';
        rc = len < 0 ? -HVD_ENOMEM : hb_buf_reserve(b, (size_t)len);
        if (rc == 0)
            vsnprintf(tail(b), (size_t)len + 1, fmt, again);
    }
    va_end(again);
    if (rc == 0)
        b->len += (size_t)len;
    return rc;
}

int hb_buf_printf(struct hb_buf *b, const char *fmt, ...)
{
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = hb_buf_vprintf(b, fmt, ap);
    va_end(ap);
    return rc;
}

void hb_buf_consume(struct hb_buf *b, size_t len)
{
    assert(len <= b->len);
    b->off += len;
    b->len -= len;
    if (b->len == 0)
        hb_buf_clear(b);
}

char *hb_buf_detach(struct hb_buf *b)
{
    char *text;

    if (hb_buf_reserve(b, 0) < 0)
        return NULL;
    if (b->off)
        memmove(b->data, b->data + b->off, b->len + 1);
    text = b->data;
    memset(b, 0, sizeof(*b));
    return text;
}

static int put_be(struct hb_buf *b, uint64_t v, size_t bytes)
{
    unsigned char be[8];
    size_t i;

    for (i = 0; i < bytes; i++)
        be[i] = (unsigned char)(v >> (8 * (bytes - 1 - i)));
    return hb_buf_append(b, be, bytes);
}

int hb_buf_put_u8(struct hb_buf *b, uint8_t v)
{
    return put_be(b, v, 1);
}

int hb_buf_put_u16(struct hb_buf *b, uint16_t v)
{
    return put_be(b, v, 2);
}

int hb_buf_put_u32(struct hb_buf *b, uint32_t v)
{
    return put_be(b, v, 4);
}

int hb_buf_put_u64(struct hb_buf *b, uint64_t v)
{
    return put_be(b, v, 8);
}

void hb_reader_init(struct hb_reader *r, const void *p, size_t len)
{
    r->p = p;
    r->left = len;
    r->bad = 0;
}

const void *hb_read_bytes(struct hb_reader *r, size_t len)
{
    const unsigned char *p = r->p;

    if (r->bad || len > r->left) {
        r->bad = 1;
        return NULL;
    }
    /* An empty reader may have no memory at all. */
    if (len == 0)
        return p ? p : (const unsigned char *)"";
    r->p += len;
    r->left -= len;
    return p;
}

void hb_read_text(struct hb_reader *r, size_t len, char *out, size_t size)
{
    const char *p = hb_read_bytes(r, len);

    if (!p || len >= size || memchr(p, '\0', len)) {
        r->bad = 1;
        return;
    }
    memcpy(out, p, len);
    out[len] = '\0';
}

static uint64_t read_be(struct hb_reader *r, size_t bytes)
{
    const unsigned char *p = hb_read_bytes(r, bytes);
    uint64_t v = 0;
    size_t i;

    for (i = 0; p && i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

uint8_t hb_read_u8(struct hb_reader *r)
{
    return (uint8_t)read_be(r, 1);
}

uint16_t hb_read_u16(struct hb_reader *r)
{
    return (uint16_t)read_be(r, 2);
}

uint32_t hb_read_u32(struct hb_reader *r)
{
    return (uint32_t)read_be(r, 4);
}

uint64_t hb_read_u64(struct hb_reader *r)
{
    return read_be(r, 8);
}
