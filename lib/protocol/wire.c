/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the fields of binary messages; see wire.h. */
#include "lib/protocol/wire.h"

#include "lib/protocol/frame.h"

#include <string.h>

/* Returns the value of a number, or the length of a text. */
static uint64_t load(const struct wire_field *f, const void *m)
{
    const char *member = (const char *)m + f->at;
    uint32_t v32;
    uint64_t v64;

    if (f->is_text)
        return strnlen(member, f->size - 1);
    if (f->size == sizeof(v32)) {
        memcpy(&v32, member, sizeof(v32));
        return v32;
    }
    memcpy(&v64, member, sizeof(v64));
    return v64;
}

static void store(const struct wire_field *f, void *m, uint64_t v)
{
    uint32_t v32 = (uint32_t)v;

    memcpy((char *)m + f->at,
           f->size == sizeof(v32) ? (void *)&v32 : (void *)&v, f->size);
}

size_t wire_bytes(const struct wire_field *fields, const void *m)
{
    size_t bytes = 0;

    for (const struct wire_field *f = fields; f->name; f++)
        bytes += f->width + (f->is_text ? (size_t)load(f, m) : 0);
    return bytes;
}

void wire_put(struct hb_buf *out, const struct wire_field *fields,
              const void *m)
{
    for (const struct wire_field *f = fields; f->name; f++) {
        uint64_t v = load(f, m);
        unsigned char bytes[8];

        for (unsigned i = 0; i < f->width; i++)
            bytes[i] = (unsigned char)(v >> 8 * (f->width - 1 - i));
        hb_buf_append(out, bytes, f->width);
        if (f->is_text)
            hb_buf_append(out, (const char *)m + f->at, (size_t)v);
    }
}

const char *wire_take(struct hb_reader *r, const struct wire_field *fields,
                      void *m)
{
    for (const struct wire_field *f = fields; f->name; f++) {
        const unsigned char *p = hb_read_bytes(r, f->width);
        uint64_t v = 0;

        if (!p)
            return NULL;
        for (unsigned i = 0; i < f->width; i++)
            v = v << 8 | p[i];
        if (f->is_text) {
            hb_read_text(r, (size_t)v, (char *)m + f->at, f->size);
        } else if (v < f->min || v > f->max) {
            r->bad = 1;
            return f->name;
        } else if (m) {
            store(f, m, v);
        }
    }
    return NULL;
}

int wire_encode(struct hb_buf *out, uint8_t type,
                const struct wire_field *fields, const void *m)
{
    int rc = frame_begin(out, type, wire_bytes(fields, m));

    if (rc == 0)
        wire_put(out, fields, m);
    return rc;
}

int wire_decode(const char *what, const void *p, size_t len,
                const struct wire_field *fields, void *m, struct hb_error *err)
{
    struct hb_reader r;
    const char *name;

    hb_reader_init(&r, p, len);
    name = wire_take(&r, fields, NULL);
    if (name)
        return hb_error_set(err, HVD_EPROTO, "%s: field '%s' is out of range",
                            what, name);
    if (r.bad || r.left)
        return hb_error_set(err, HVD_EPROTO, "%s: wrong length", what);
    hb_reader_init(&r, p, len);
    wire_take(&r, fields, m);
    return 0;
}
