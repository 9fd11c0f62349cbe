/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: how hvdrun and its agents, and agents and workers, cut a byte
 * stream into messages.  Pure: bytes in, frames out, no I/O.
 *
 *     offset 0  u32  magic 0x68764431 ("hvD1")
 *            4  u8   protocol version (FRAME_VERSION)
 *            5  u8   type (enum of the conversation: control.h, worker.h)
 *            6  u16  reserved, 0
 *            8  u32  payload length in bytes
 *           12       payload
 *
 * All integers big-endian.  A payload longer than the decoder's limit, a
 * wrong magic or a wrong version ends the conversation: the stream cannot
 * be trusted after it.
 */
#ifndef HVD_PROTOCOL_FRAME_H
#define HVD_PROTOCOL_FRAME_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

enum {
    FRAME_MAGIC = 0x68764431,
    FRAME_VERSION = 1,
    FRAME_HEADER_BYTES = 12,
    FRAME_PAYLOAD_MAX = 16 << 20,
};

struct frame {
    uint8_t type;
    const void *payload; /* borrowed from the decoder's buffer */
    size_t len;
};

/* Appends one frame to out: 0 or -HVD_ENOMEM, -HVD_EINVAL if too long. */
int frame_encode(struct hb_buf *out, uint8_t type, const void *payload,
                 size_t len);

/* Header only, for payloads that the caller writes itself (writev). */
void frame_header(unsigned char out[FRAME_HEADER_BYTES], uint8_t type,
                  size_t len);

/* Makes room for a whole frame and appends its header; the caller then
 * appends exactly len bytes of payload, which cannot fail.  Returns as
 * frame_encode. */
int frame_begin(struct hb_buf *out, uint8_t type, size_t len);

/*
 * Takes one whole frame off the front of `in`.  Returns 1 and fills *f
 * (valid until `in` changes; the caller then consumes f's bytes with
 * frame_done), 0 when more bytes are needed, or -HVD_EPROTO with one line
 * in err.  `max_payload` bounds what this side accepts.
 */
int frame_decode(const struct hb_buf *in, size_t max_payload, struct frame *f,
                 struct hb_error *err);
void frame_done(struct hb_buf *in, const struct frame *f);

/*
 * Skips what a login shell printed before the first magic.  Moves at most
 * `max_noise` bytes, over all calls, from `in` to `noise`.  Returns 1 when
 * `in` now begins with the magic, 0 when more bytes are needed,
 * -HVD_EPROTO when max_noise bytes went by without one, -HVD_ENOMEM.
 */
int frame_sync(struct hb_buf *in, struct hb_buf *noise, size_t max_noise);

#endif
