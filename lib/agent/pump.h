/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' standard streams: pipes that the agent reads and writes
 * without ever blocking, and without ever holding much.
 *
 * Output is read only while fewer than `window` bytes are
 * unacknowledged and the owner has not called pump_hold; otherwise it
 * stays in the pipes and the writers block.  All output pipes sit in one
 * inner epoll, so holding is one call and no pipe can be forgotten.
 *
 * A stream ends when the last process that holds it closes it, or in
 * pump_finish.  The end of a rank is known from its pidfd, never from
 * here: a grandchild that keeps stdout open delays nothing.
 *
 * SIGPIPE must be blocked or ignored by the owner.
 */
#ifndef HVD_AGENT_PUMP_H
#define HVD_AGENT_PUMP_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/control.h"

#include <uv.h>

struct pump_events {
    /* len 0: that stream has ended */
    void (*on_output)(void *arg, int slot, int stream, const void *bytes,
                      size_t len);
    void (*on_stdin_taken)(void *arg, int slot, uint32_t bytes);
    /* the last output stream has ended */
    void (*on_all_ended)(void *arg);
};

struct pump_out {
    int fd; /* -1: ended, or never opened */
    int slot, stream;
};

struct pump_in {
    int fd, slot;
    int eof; /* close it when what is queued has been written */
    struct hb_buf queue;
    uv_poll_t poll;
    struct pump *pump;
};

struct pump_slot {
    struct pump_out out[2]; /* stdout, stderr */
    struct pump_in *in;     /* NULL: /dev/null, or closed */
    char *tail;             /* last bytes of stderr, oldest first */
    size_t tail_len;
    int tail_cut; /* tail is not all that was written */
};

struct pump {
    uv_loop_t *loop;
    struct pump_events events;
    void *arg;
    struct pump_slot *slots;
    int slot_count;
    int open_outputs;
    int epoll_fd, null_fd;
    uv_poll_t poll;
    uint32_t window;    /* CONTROL_OUTPUT_WINDOW, or what the owner sets */
    uint32_t in_flight; /* output bytes not acknowledged */
    int held, polling, finishing, sinking, discarding;
    char *chunk;
};

/* `p` stays where it is until pump_fini. */
int pump_init(struct pump *p, uv_loop_t *loop, int slot_count,
              const struct pump_events *events, void *arg,
              struct hb_error *err);
/* Closes all descriptors and handles; the loop must run once more before
 * the memory is released with pump_free_memory. */
void pump_close(struct pump *p);
void pump_free_memory(struct pump *p);

/* Makes the pipes of a slot.  child_fds become the child's 0, 1, 2; the
 * caller closes them with pump_close_child when the child runs or not. */
int pump_open(struct pump *p, int slot, int stdin_open, int child_fds[3],
              struct hb_error *err);
void pump_close_child(struct pump *p, int child_fds[3]);

void pump_ack(struct pump *p, uint32_t bytes);
/* The owner's own queue is full: read no output until told. */
void pump_hold(struct pump *p, int held);

/* Bytes for a rank's stdin; len 0 means end of file.  -HVD_EPROTO when the
 * sender exceeds CONTROL_STDIN_WINDOW.  Bytes for a stdin that is closed
 * are taken and dropped. */
int pump_stdin(struct pump *p, int slot, const void *bytes, size_t len);

/* The last lines the rank wrote to stderr, with what is still in the pipe:
 * at most CONTROL_TAIL_BYTES, whole lines, NULs as '?'; a heap string. */
char *pump_tail(struct pump *p, int slot);

/* Nothing of the job lives any more: ends every stream as soon as it has
 * been read empty, though somebody outside the job may hold it. */
void pump_finish(struct pump *p);
/* Nobody wants the output any more, but the ranks shall not notice: it is
 * read and dropped from here on, without events. */
void pump_sink(struct pump *p);
/* Closes all streams, without events. */
void pump_discard(struct pump *p);

#endif
