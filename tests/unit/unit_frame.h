/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of messages: reads what an encoder wrote. */
#ifndef TESTS_UNIT_FRAME_H
#define TESTS_UNIT_FRAME_H

#include "lib/protocol/frame.h"
#include "tests/unit/unit.h"

/* Returns the only frame in b, which must be of that type; borrowed from b. */
static inline struct frame only_frame(const struct hb_buf *b, int type)
{
    struct frame f;

    ck_assert_int_eq(frame_decode(b, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, type);
    ck_assert_uint_eq(f.len + FRAME_HEADER_BYTES, hb_buf_len(b));
    return f;
}

/* Returns a string of all 255 bytes that a C string may hold. */
static inline const char *all_bytes(void)
{
    static char s[256];
    int i;

    for (i = 0; i < 255; i++)
        s[i] = (char)(i + 1);
    return s;
}

#endif
