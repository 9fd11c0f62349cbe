/* SPDX-License-Identifier: Apache-2.0 */
/* Frames; see frame.h.  Linked into libhvd: libc only. */
#include "lib/protocol/frame.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

static const unsigned char magic_bytes[4] = {
    (FRAME_MAGIC >> 24) & 0xff,
    (FRAME_MAGIC >> 16) & 0xff,
    (FRAME_MAGIC >> 8) & 0xff,
    FRAME_MAGIC & 0xff,
};

void frame_header(unsigned char out[FRAME_HEADER_BYTES], uint8_t type,
                  size_t len)
{
    memcpy(out, magic_bytes, sizeof(magic_bytes));
    out[4] = FRAME_VERSION;
    out[5] = type;
    out[6] = 0;
    out[7] = 0;
    out[8] = (unsigned char)(len >> 24);
    out[9] = (unsigned char)(len >> 16);
    out[10] = (unsigned char)(len >> 8);
    out[11] = (unsigned char)len;
}

int frame_begin(struct hb_buf *out, uint8_t type, size_t len)
{
    unsigned char header[FRAME_HEADER_BYTES];
    int rc;

    if (len > FRAME_PAYLOAD_MAX)
        return -HVD_EINVAL;
    rc = hb_buf_reserve(out, sizeof(header) + len);
    if (rc < 0)
        return rc;
    frame_header(header, type, len);
    return hb_buf_append(out, header, sizeof(header));
}

int frame_encode(struct hb_buf *out, uint8_t type, const void *payload,
                 size_t len)
{
    int rc = frame_begin(out, type, len);

    if (rc < 0)
        return rc;
    return hb_buf_append(out, payload, len);
}

/* Checks that the bytes so far are those of the magic. */
static int check_magic(const unsigned char *p, size_t len, struct hb_error *err)
{
    char seen[4] = "....";
    size_t i;

    if (len > sizeof(magic_bytes))
        len = sizeof(magic_bytes);
    /* Not by memcmp: an empty buffer's data is a string of one byte, and gcc
     * with sanitizers does not see that its length is 0. */
    for (i = 0; i < len && p[i] == magic_bytes[i];)
        i++;
    if (i == len)
        return 0;
    for (i = 0; i < len; i++) {
        if (isprint(p[i]))
            seen[i] = (char)p[i];
    }
    return hb_error_set(err, HVD_EPROTO,
                        "the peer does not speak hvdrun's protocol "
                        "(it sent \"%.*s\"); is something else printing "
                        "on the connection?",
                        (int)len, seen);
}

int frame_decode(const struct hb_buf *in, size_t max_payload, struct frame *f,
                 struct hb_error *err)
{
    const unsigned char *p = (const unsigned char *)hb_buf_data(in);
    size_t have = hb_buf_len(in), len;
    int rc = check_magic(p, have, err);

    if (rc < 0 || have < FRAME_HEADER_BYTES)
        return rc;
    if (p[4] != FRAME_VERSION)
        return hb_error_set(err, HVD_EPROTO,
                            "the peer speaks protocol version %d, this "
                            "build version %d; use one build everywhere",
                            p[4], FRAME_VERSION);
    if (p[6] != 0 || p[7] != 0)
        return hb_error_set(err, HVD_EPROTO,
                            "a frame's reserved bytes are not 0; the "
                            "stream is damaged");
    len = (size_t)p[8] << 24 | (size_t)p[9] << 16 | (size_t)p[10] << 8 | p[11];
    if (len > max_payload)
        return hb_error_set(err, HVD_EPROTO,
                            "a frame of type %d announces %zu bytes, more "
                            "than the %zu accepted here",
                            p[5], len, max_payload);
    if (have - FRAME_HEADER_BYTES < len)
        return 0;
    f->type = p[5];
    f->payload = p + FRAME_HEADER_BYTES;
    f->len = len;
    return 1;
}

void frame_done(struct hb_buf *in, const struct frame *f)
{
    assert(f->payload == hb_buf_data(in) + FRAME_HEADER_BYTES);
    hb_buf_consume(in, FRAME_HEADER_BYTES + f->len);
}

/* Returns how many of the last bytes may be the beginning of the magic. */
static size_t partial_magic(const char *p, size_t len)
{
    size_t n = len < 3 ? len : 3;

    while (n > 0 && memcmp(p + len - n, magic_bytes, n) != 0)
        n--;
    return n;
}

int frame_sync(struct hb_buf *in, struct hb_buf *noise, size_t max_noise)
{
    const char *p = hb_buf_data(in);
    size_t len = hb_buf_len(in);
    size_t room = max_noise - hb_buf_len(noise), skip;
    const char *found = memmem(p, len, magic_bytes, sizeof(magic_bytes));
    int too_much, rc;

    skip = found ? (size_t)(found - p) : len - partial_magic(p, len);
    too_much = hb_buf_len(noise) > max_noise || skip > room;
    if (hb_buf_len(noise) > max_noise)
        skip = 0;
    else if (too_much)
        skip = room;
    rc = hb_buf_append(noise, p, skip);
    if (rc < 0)
        return rc;
    hb_buf_consume(in, skip);
    if (too_much)
        return -HVD_EPROTO;
    return found != NULL;
}
