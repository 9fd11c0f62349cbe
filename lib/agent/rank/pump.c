/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' standard streams; see pump.h. */
#include "lib/agent/rank/pump.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_PER_ROUND = 64 };

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- Output ---- */

static int paused(const struct pump *p)
{
    return p->held || p->in_flight >= p->window;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void update_poll(struct pump *p)
{
    int want = !paused(p) && p->open_outputs > 0;

    if (want == p->polling)
        return;
    p->polling = want;
    if (want)
        uv_poll_start(&p->poll, UV_READABLE, on_readable);
    else
        uv_poll_stop(&p->poll);
}

static void end_output(struct pump *p, struct pump_out *o)
{
    close_fd(&o->fd); /* close removes it from the epoll, too */
    p->open_outputs--;
    if (!p->discarding && !p->sinking)
        p->events.on_output(p->arg, o->slot, o->stream, NULL, 0);
    if (p->open_outputs == 0 && !p->discarding)
        p->events.on_all_ended(p->arg);
}

/* Keeps the last CONTROL_TAIL_BYTES of a rank's stderr. */
static void tail_append(struct pump_slot *s, const char *bytes, size_t len)
{
    const size_t max = CONTROL_TAIL_BYTES;
    size_t drop;

    if (!s->tail)
        s->tail = hb_xmalloc(max);
    if (len > max) {
        bytes += len - max;
        len = max;
        s->tail_cut = 1;
    }
    drop = s->tail_len + len > max ? s->tail_len + len - max : 0;
    if (drop > 0) {
        s->tail_cut = 1;
        s->tail_len -= drop;
        memmove(s->tail, s->tail + drop, s->tail_len);
    }
    memcpy(s->tail + s->tail_len, bytes, len);
    s->tail_len += len;
}

/* Reads one chunk.  1: there may be more; 0: the pipe is empty for now; -1: the
 * stream has ended and is closed. */
static int read_output(struct pump *p, struct pump_out *o)
{
    size_t want = p->window - p->in_flight;
    ssize_t n;

    if (want > CONTROL_OUTPUT_CHUNK)
        want = CONTROL_OUTPUT_CHUNK;
    if (!p->chunk)
        p->chunk = hb_xmalloc(CONTROL_OUTPUT_CHUNK);
    do
        n = read(o->fd, p->chunk, want);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        end_output(p, o);
        return -1;
    }
    if (p->sinking)
        return 1;
    p->in_flight += (uint32_t)n;
    if (o->stream == 2)
        tail_append(&p->slots[o->slot], p->chunk, (size_t)n);
    p->events.on_output(p->arg, o->slot, o->stream, p->chunk, (size_t)n);
    return 1;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct epoll_event ready[EVENTS_PER_ROUND];
    struct pump *p = poll->data;
    int n;

    (void)status;
    (void)events;
    n = epoll_wait(p->epoll_fd, ready, EVENTS_PER_ROUND, 0);
    for (int i = 0; i < n && !paused(p); i++) {
        struct pump_out *o = ready[i].data.ptr;

        if (o->fd >= 0)
            read_output(p, o);
    }
    update_poll(p);
}

/* Reads until every stream is empty, which ends it, or reading has to pause. */
static void sweep(struct pump *p)
{
    for (int i = 0; i < 2 * p->slot_count && !paused(p); i++) {
        struct pump_out *o = &p->slots[i / 2].out[i % 2];
        int more = o->fd >= 0;

        while (more > 0 && !paused(p))
            more = read_output(p, o);
        if (more == 0 && o->fd >= 0)
            end_output(p, o);
    }
}

void pump_ack(struct pump *p, uint32_t bytes)
{
    p->in_flight -= bytes < p->in_flight ? bytes : p->in_flight;
    if (p->finishing && !p->discarding)
        sweep(p);
    update_poll(p);
}

void pump_hold(struct pump *p, int held)
{
    if (p->held == held)
        return;
    p->held = held;
    if (p->finishing && !p->discarding)
        sweep(p);
    update_poll(p);
}

void pump_finish(struct pump *p)
{
    p->finishing = 1;
    if (!p->discarding)
        sweep(p);
    update_poll(p);
}

void pump_sink(struct pump *p)
{
    p->sinking = 1;
    p->held = 0;
    p->in_flight = 0;
    update_poll(p);
}

void pump_discard(struct pump *p)
{
    p->discarding = 1;
    for (int i = 0; i < 2 * p->slot_count; i++) {
        struct pump_out *o = &p->slots[i / 2].out[i % 2];

        if (o->fd >= 0)
            end_output(p, o);
    }
    update_poll(p);
}

/* ---- stdin ---- */

static void on_in_closed(uv_handle_t *handle)
{
    struct pump_in *in = handle->data;

    close_fd(&in->fd);
    hb_buf_free(&in->queue);
    hb_free(in);
}

static void close_in(struct pump *p, int slot)
{
    struct pump_in *in = p->slots[slot].in;

    if (!in)
        return;
    p->slots[slot].in = NULL;
    /* The reader gets end of file now, not when the loop runs the callback. */
    uv_poll_stop(&in->poll);
    close_fd(&in->fd);
    uv_close((uv_handle_t *)&in->poll, on_in_closed);
}

static void flush_in(struct pump_in *in);

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    flush_in(poll->data);
}

/* Writes queued input to the rank.  EPIPE (the reader has gone) is not an
 * error: its input is dropped. */
static void flush_in(struct pump_in *in)
{
    struct pump *p = in->pump;
    int slot = in->slot, gone = 0;
    size_t taken = 0;

    while (hb_buf_len(&in->queue) > 0 && !gone) {
        ssize_t n =
            write(in->fd, hb_buf_data(&in->queue), hb_buf_len(&in->queue));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        gone = n < 0;
        if (gone)
            n = (ssize_t)hb_buf_len(&in->queue);
        hb_buf_consume(&in->queue, (size_t)n);
        taken += (size_t)n;
    }
    if (hb_buf_len(&in->queue) > 0)
        uv_poll_start(&in->poll, UV_WRITABLE, on_writable);
    else if (gone || in->eof)
        close_in(p, slot);
    else
        uv_poll_stop(&in->poll);
    if (taken > 0)
        p->events.on_stdin_taken(p->arg, slot, (uint32_t)taken);
}

int pump_stdin(struct pump *p, int slot, const void *bytes, size_t len)
{
    struct pump_in *in = p->slots[slot].in;

    if (!in) {
        if (len > 0)
            p->events.on_stdin_taken(p->arg, slot, (uint32_t)len);
        return 0;
    }
    if (hb_buf_len(&in->queue) + len > CONTROL_STDIN_WINDOW)
        return -HVD_EPROTO;
    if (len == 0)
        in->eof = 1;
    else if (hb_buf_append(&in->queue, bytes, len) < 0)
        return -HVD_ENOMEM;
    flush_in(in);
    return 0;
}

/* ---- Opening and closing ---- */

int pump_init(struct pump *p, uv_loop_t *loop, int slot_count,
              const struct pump_events *events, void *arg, struct hb_error *err)
{
    int rc;

    memset(p, 0, sizeof(*p));
    p->loop = loop;
    p->events = *events;
    p->arg = arg;
    p->null_fd = -1;
    p->window = CONTROL_OUTPUT_WINDOW;
    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll_fd < 0)
        return hb_error_sys(err, errno, "epoll");
    rc = uv_poll_init(loop, &p->poll, p->epoll_fd);
    if (rc < 0) {
        close_fd(&p->epoll_fd);
        return hb_error_sys(err, -rc, "epoll");
    }
    p->poll.data = p;
    p->slots = hb_xcalloc((size_t)slot_count, sizeof(*p->slots));
    p->slot_count = slot_count;
    for (int i = 0; i < 2 * slot_count; i++)
        p->slots[i / 2].out[i % 2] = (struct pump_out){-1, i / 2, i % 2 + 1};
    return 0;
}

static int open_out(struct pump *p, struct pump_out *o, int *child_fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = o};
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    *child_fd = fds[1];
    /* Only our end: O_NONBLOCK on the other would affect the worker. */
    if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ||
        epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fds[0], &ev) < 0) {
        close(fds[0]);
        return -1;
    }
    o->fd = fds[0];
    p->open_outputs++;
    return 0;
}

static int open_in(struct pump *p, int slot, int *child_fd)
{
    struct pump_in *in;
    int fds[2], rc;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    *child_fd = fds[0];
    in = hb_xcalloc(1, sizeof(*in));
    in->pump = p;
    in->slot = slot;
    in->fd = fds[1];
    rc = uv_poll_init(p->loop, &in->poll, in->fd); /* sets O_NONBLOCK */
    if (rc < 0) {
        close(fds[1]);
        hb_free(in);
        errno = -rc;
        return -1;
    }
    in->poll.data = in;
    p->slots[slot].in = in;
    return 0;
}

static int open_null(struct pump *p, int *child_fd)
{
    if (p->null_fd < 0)
        p->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    *child_fd = p->null_fd;
    return p->null_fd < 0 ? -1 : 0;
}

int pump_open(struct pump *p, int slot, int stdin_open, int child_fds[3],
              struct hb_error *err)
{
    struct pump_slot *s = &p->slots[slot];
    int rc, e;

    child_fds[0] = child_fds[1] = child_fds[2] = -1;
    rc = stdin_open ? open_in(p, slot, &child_fds[0])
                    : open_null(p, &child_fds[0]);
    if (rc == 0)
        rc = open_out(p, &s->out[0], &child_fds[1]);
    if (rc == 0)
        rc = open_out(p, &s->out[1], &child_fds[2]);
    e = errno;
    if (rc < 0) {
        pump_close_child(p, child_fds);
        return hb_error_sys(err, e, "cannot open its pipes%s",
                            e == EMFILE ? " (see ulimit -n)" : "");
    }
    update_poll(p);
    return 0;
}

void pump_close_child(struct pump *p, int child_fds[3])
{
    if (child_fds[0] == p->null_fd)
        child_fds[0] = -1;
    for (int i = 0; i < 3; i++)
        close_fd(&child_fds[i]);
}

void pump_reset(struct pump *p, int slot)
{
    struct pump_slot *s = &p->slots[slot];

    close_in(p, slot);
    for (int i = 0; i < 2; i++)
        if (s->out[i].fd >= 0)
            end_output(p, &s->out[i]);
    s->tail_len = 0;
    s->tail_cut = 0;
}

void pump_close(struct pump *p)
{
    if (p->epoll_fd < 0 || !p->slots)
        return;
    pump_discard(p);
    for (int i = 0; i < p->slot_count; i++)
        close_in(p, i);
    uv_close((uv_handle_t *)&p->poll, NULL);
    close_fd(&p->epoll_fd);
    close_fd(&p->null_fd);
}

void pump_free_memory(struct pump *p)
{
    for (int i = 0; i < p->slot_count; i++)
        hb_free(p->slots[i].tail);
    hb_free(p->slots);
    hb_free(p->chunk);
    p->slots = NULL;
    p->chunk = NULL;
    p->slot_count = 0;
}

/* ---- The tail of stderr ---- */

/* Copies what is still in the pipe without consuming it: output waits for its
 * window, but the report of a death must not. */
static void peek_pipe(int fd, struct pump_slot *copy)
{
    int size = fcntl(fd, F_GETPIPE_SZ), fds[2];
    char part[4096];
    ssize_t n;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    if (size > 0)
        (void)fcntl(fds[1], F_SETPIPE_SZ, size);
    if (tee(fd, fds[1], (size_t)(size > 0 ? size : 65536), SPLICE_F_NONBLOCK) >
        0)
        while ((n = read(fds[0], part, sizeof(part))) > 0)
            tail_append(copy, part, (size_t)n);
    close(fds[0]);
    close(fds[1]);
}

char *pump_tail(struct pump *p, int slot)
{
    struct pump_slot *s = &p->slots[slot];
    struct pump_slot copy = {.tail_cut = s->tail_cut};
    const char *start, *newline;
    char *text;
    size_t len;

    if (s->tail_len > 0)
        tail_append(&copy, s->tail, s->tail_len);
    if (s->out[1].fd >= 0)
        peek_pipe(s->out[1].fd, &copy);
    start = copy.tail;
    len = copy.tail_len;
    newline = copy.tail_cut ? memchr(start, '\n', len) : NULL;
    if (newline && newline + 1 < start + len) {
        len -= (size_t)(newline + 1 - start);
        start = newline + 1;
    }
    text = hb_xmalloc(len + 1);
    for (size_t i = 0; i < len; i++)
        text[i] = start[i] ? start[i] : '?';
    text[len] = '\0';
    hb_free(copy.tail);
    return text;
}
