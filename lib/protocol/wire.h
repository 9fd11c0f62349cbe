/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of the fields of binary messages, for both directions.  Linked into
 * libhvd: libc only.
 *
 * A table lists fields in their order on the wire, and the members of a struct
 * that they stand for.  Numbers are big-endian; a text has its length before
 * it.
 */
#ifndef HVD_PROTOCOL_WIRE_H
#define HVD_PROTOCOL_WIRE_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

struct wire_field {
    const char *name;
    size_t at, size; /* the member's; a number's size is 4 or 8 */
    uint8_t width;   /* bytes on the wire of the number or the text's length */
    uint8_t is_text; /* an array of char with a final 0, which is not sent */
    uint64_t min, max;
};

#define WIRE_MEMBER(type, member)           \
#member, offsetof(struct type, member), \
        sizeof(((struct type *)NULL)->member)
/* clang-format off */
#define WIRE_NUMBER(type, member, width, min, max) \
    { WIRE_MEMBER(type, member), width, 0, min, max }
#define WIRE_U32(type, member) WIRE_NUMBER(type, member, 4, 0, UINT32_MAX)
#define WIRE_U64(type, member) WIRE_NUMBER(type, member, 8, 0, UINT64_MAX)
#define WIRE_TEXT(type, member, width) \
    { WIRE_MEMBER(type, member), width, 1, 0, 0 }
/* A uint32_t that is no member of a struct. */
#define WIRE_VALUE(name, min, max) { name, 0, 4, 4, 0, min, max }
#define WIRE_END { NULL, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Returns how many bytes wire_put appends. */
size_t wire_bytes(const struct wire_field *fields, const void *m);
/* Appends the fields of the struct at m; cuts texts to their members' sizes.
 * Cannot fail if frame_begin has reserved the bytes. */
void wire_put(struct hb_buf *out, const struct wire_field *fields,
              const void *m);
/* Reads the fields into the struct at m; or only checks them if m is NULL, when
 * no text may be among them.  Sets r->bad if they are malformed.  Returns the
 * name of the number that is not in its range, or NULL. */
const char *wire_take(struct hb_reader *r, const struct wire_field *fields,
                      void *m);

/* Appends a frame of these fields.  Returns as frame_begin. */
int wire_encode(struct hb_buf *out, uint8_t type,
                const struct wire_field *fields, const void *m);
/* Decodes a payload of these fields, which are numbers: 0, or -HVD_EPROTO with
 * a line in err that begins with `what`, and *m untouched. */
int wire_decode(const char *what, const void *p, size_t len,
                const struct wire_field *fields, void *m, struct hb_error *err);

#endif
