/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: the messages into which hvdrun and its agents, and agents and
 * workers, divide a byte stream.  Pure: bytes in, frames out, no I/O.
 *
 *     offset 0  u32  magic 0x68764431 ("hvD1")
 *            4  u8   protocol version (FRAME_VERSION)
 *            5  u8   type (enum of the conversation: control.h, worker.h)
 *            6  u16  reserved, 0
 *            8  u32  payload length in bytes
 *           12       payload
 *
 * All integers are big-endian.  A payload longer than the decoder's limit, a
 * wrong magic or a wrong version ends the connection: the rest of the stream
 * cannot be trusted.
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

/* Appends one frame to out: 0, -HVD_ENOMEM, or -HVD_EINVAL if it is too
 * long. */
int frame_encode(struct hb_buf *out, uint8_t type, const void *payload,
                 size_t len);

/* Writes the header only, for callers that write the payload themselves. */
void frame_header(unsigned char out[FRAME_HEADER_BYTES], uint8_t type,
                  size_t len);

/* Reserves a whole frame and appends its header; the caller then appends
 * exactly len bytes of payload, which cannot fail.  Returns as frame_encode. */
int frame_begin(struct hb_buf *out, uint8_t type, size_t len);

/*
 * Finds the frame at the front of `in`.  Returns
 * - 1 and *f, valid until `in` changes; then call frame_done to consume it,
 * - 0: more bytes are needed,
 * - -HVD_EPROTO with a line in err.
 *
 * `max_payload` is the largest payload accepted.
 */
int frame_decode(const struct hb_buf *in, size_t max_payload, struct frame *f,
                 struct hb_error *err);
void frame_done(struct hb_buf *in, const struct frame *f);

/*
 * Skips what a login shell printed before the first magic.  Moves at most
 * `max_noise` bytes, over all calls, from `in` to `noise`.  Returns
 * - 1: `in` now begins with the magic,
 * - 0: more bytes are needed,
 * - -HVD_EPROTO: max_noise bytes came without a magic,
 * - -HVD_ENOMEM.
 */
int frame_sync(struct hb_buf *in, struct hb_buf *noise, size_t max_noise);

#endif
