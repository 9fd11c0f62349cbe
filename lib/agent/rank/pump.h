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
#include "lib/protocol/control/control.h"

#include <uv.h>

struct pump_events {
    /* len 0: the stream has ended */
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
    int eof; /* close fd when the queue has been written */
    struct hb_buf queue;
    uv_poll_t poll;
    struct pump *pump;
};

struct pump_slot {
    struct pump_out out[2]; /* stdout, stderr */
    struct pump_in *in;     /* NULL: /dev/null, or closed */
    char *tail;             /* last bytes of stderr, oldest first */
    size_t tail_len;
    int tail_cut; /* tail lacks earlier output */
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
    uint32_t in_flight; /* output bytes not yet acknowledged */
    int held, polling, finishing, sinking, discarding;
    char *chunk;
};

/* Initializes `p`, which must not move until pump_free_memory.  0, or negative
 * with err set. */
int pump_init(struct pump *p, uv_loop_t *loop, int slot_count,
              const struct pump_events *events, void *arg,
              struct hb_error *err);
/* Closes all descriptors and handles; the loop must run once more before
 * pump_free_memory. */
void pump_close(struct pump *p);
void pump_free_memory(struct pump *p);

/* Makes the pipes of a slot.  child_fds become the child's 0, 1, 2; the caller
 * closes them with pump_close_child, whether or not the child runs. */
int pump_open(struct pump *p, int slot, int stdin_open, int child_fds[3],
              struct hb_error *err);
void pump_close_child(struct pump *p, int child_fds[3]);
/* Closes what is left of a slot's streams, and forgets its tail, so that the
 * slot can be opened again for another process. */
void pump_reset(struct pump *p, int slot);

void pump_ack(struct pump *p, uint32_t bytes);
/* Stops reading output if `held` is 1, because the owner's own queue is full;
 * goes on if it is 0. */
void pump_hold(struct pump *p, int held);

/* Queues bytes for a rank's stdin; len 0 means end of file.  0, or -HVD_EPROTO
 * if the sender exceeds CONTROL_STDIN_WINDOW.  Bytes for a closed stdin are
 * acknowledged and dropped. */
int pump_stdin(struct pump *p, int slot, const void *bytes, size_t len);

/* Returns the last lines that the rank wrote to stderr, including what is still
 * in the pipe: at most CONTROL_TAIL_BYTES, whole lines, NULs as '?'; heap. */
char *pump_tail(struct pump *p, int slot);

/* Ends every stream as soon as it has been read empty, even if a process
 * outside the job holds it open.  Call it when the job has no live process. */
void pump_finish(struct pump *p);
/* Reads and drops all output from now on, without events: nobody wants it, but
 * the ranks must not notice. */
void pump_sink(struct pump *p);
/* Closes all streams, without events. */
void pump_discard(struct pump *p);

#endif
