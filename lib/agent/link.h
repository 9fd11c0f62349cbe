/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of the control connection: frames in, frames out, over two
 * descriptors (the agent's stdin and stdout) on the loop.
 *
 * What is appended to link->out is written once per turn of the loop, so the
 * frames of one turn cost one write.  The owner stops producing output while
 * link_full; control frames are few and always accepted, so they never wait
 * behind more than LINK_HIGH_BYTES and one frame.
 *
 * SIGPIPE must be blocked or ignored by the owner.
 */
#ifndef HVD_AGENT_LINK_H
#define HVD_AGENT_LINK_H

#include "lib/protocol/frame.h"

#include <uv.h>

enum { LINK_HIGH_BYTES = 64 << 10, LINK_READ_BYTES = 16 << 10 };

struct link_events {
    /* A frame has come; its payload is borrowed until the return.  A negative
     * return (with err set) ends the connection. */
    int (*on_frame)(void *arg, const struct frame *f, struct hb_error *err);
    /* The peer sends no more, and may still read: what is appended to out is
     * written, as far as possible without blocking.  Then the connection ends,
     * unless it has been closed. */
    void (*on_eof)(void *arg);
    /* Called once: the peer has gone (err NULL), or broke the protocol. */
    void (*on_end)(void *arg, const struct hb_error *err);
    /* Everything queued has been written. */
    void (*on_flushed)(void *arg);
};

struct link {
    uv_loop_t *loop;
    struct link_events events;
    void *arg;
    int in_fd, out_fd;
    uv_poll_t in_poll, out_poll;
    uv_prepare_t prepare;
    struct hb_buf in, out; /* owner appends frames to out */
    int ended, closed, writing;
};

struct link_options {
    uv_loop_t *loop;
    int in_fd, out_fd;
    struct link_events events;
    void *arg; /* of the events */
};

/* Starts reading.  0, or negative if a descriptor cannot be polled (a regular
 * file). */
int link_init(struct link *l, const struct link_options *options,
              struct hb_error *err);
/* Closes the handles, not the descriptors.  The loop must run once more before
 * link_fini releases the memory. */
void link_close(struct link *l);
void link_fini(struct link *l);

/* Writes what is queued, as far as possible without blocking. */
void link_flush(struct link *l);
int link_full(const struct link *l);

#endif
