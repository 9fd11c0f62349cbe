/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process as a transport: its stdin and stdout are one end of a
 * socketpair.
 *
 * A transport has two handles on the loop besides those of its child (child.h);
 * on_close runs when all are closed, which happens when the child has been
 * reaped.  Bytes are read into the stack, so that many transports need no
 * buffers of their own.
 */
#include "lib/transport/command.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/transport/child.h"
#include "lib/transport/transport_impl.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    COMMAND_READ_BYTES = 128 << 10,
    /* How long an ended stream waits for the exit status that explains it. */
    COMMAND_STATUS_WAIT_MS = 2000,
};

struct command {
    struct transport base;
    struct transport_events events;
    void *arg;
    int exit_wait_ms;

    struct child *child; /* NULL once closed */
    int exited, wstatus;
    int fd;
    uv_poll_t io;
    uv_timer_t status_timer;
    int handles; /* not yet closed */
    struct hb_buf out;
    int closing;      /* transport_close was called */
    int shut;         /* our direction is shut down */
    int ended;        /* the child closed its end */
    int end_reported; /* on_end was called */
};

static struct command *command_of(struct transport *t)
{
    return (struct command *)t;
}

/* ---- Closing ---- */

static void command_free(struct command *c)
{
    if (c->fd >= 0)
        close(c->fd);
    hb_buf_free(&c->out);
    hb_free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct command *c = handle->data;
    struct transport_events events = c->events;
    void *arg = c->arg;

    if (--c->handles > 0)
        return;
    command_free(c);
    events.on_close(arg);
}

static void on_child_close(void *arg)
{
    struct command *c = arg;

    c->child = NULL;
    uv_close((uv_handle_t *)&c->io, on_handle_closed);
    uv_close((uv_handle_t *)&c->status_timer, on_handle_closed);
}

/* ---- The stream ---- */

static void on_io(uv_poll_t *io, int status, int events);

static void command_poll(struct command *c)
{
    int events = 0;

    if (!c->ended)
        events |= UV_READABLE;
    if (hb_buf_len(&c->out) > 0)
        events |= UV_WRITABLE;
    if (uv_is_closing((uv_handle_t *)&c->io))
        return;
    if (events)
        uv_poll_start(&c->io, events, on_io);
    else
        uv_poll_stop(&c->io);
}

static void command_shut(struct command *c)
{
    if (!c->closing || c->shut || hb_buf_len(&c->out) > 0)
        return;
    c->shut = 1;
    shutdown(c->fd, SHUT_WR);
}

/* Sends as much as possible at once; returns how much.  On a broken connection,
 * all: the reading side reports its end. */
static size_t command_send(struct command *c, const char *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n =
            send(c->fd, bytes + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            return len;
    }
    return done;
}

static void tell_end(struct command *c, const struct hb_error *err)
{
    if (c->end_reported || c->closing)
        return;
    c->end_reported = 1;
    c->events.on_end(c->arg, err);
}

/* Reports the end of the stream, with the child's exit if it is known.  An
 * agent's guardian passes on a signal of the agent as 128 + n. */
static void explain_end(struct command *c)
{
    struct hb_error err = HB_ERROR_INIT;
    int code = c->exited && WIFEXITED(c->wstatus) ? WEXITSTATUS(c->wstatus) : 0;
    int signo = code > 128 ? code - 128 : 0;
    const char *name;

    if (c->exited && WIFSIGNALED(c->wstatus))
        signo = WTERMSIG(c->wstatus);
    name = signo ? sigabbrev_np(signo) : NULL;
    if (name)
        hb_error_set(&err, HVD_ECLOSED, "it was killed by signal %d (SIG%s)",
                     signo, name);
    else if (code)
        hb_error_set(&err, HVD_ECLOSED, "it exited with code %d", code);
    tell_end(c, err.status ? &err : NULL);
}

static void on_status_timer(uv_timer_t *timer)
{
    explain_end(timer->data);
}

/* Notes the end of the stream; err NULL: it seems orderly. */
static void command_end(struct command *c, const struct hb_error *err)
{
    c->ended = 1;
    hb_buf_clear(&c->out);
    command_poll(c);
    if (err)
        tell_end(c, err);
    else if (c->exited)
        explain_end(c);
    else if (!c->closing)
        uv_timer_start(&c->status_timer, on_status_timer,
                       COMMAND_STATUS_WAIT_MS, 0);
}

static void command_read(struct command *c)
{
    char bytes[COMMAND_READ_BYTES];
    struct hb_error err = HB_ERROR_INIT;
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n > 0) {
        if (!c->closing)
            c->events.on_read(c->arg, bytes, (size_t)n);
    } else if (n == 0 || errno == ECONNRESET) {
        /* reset: the child left input unread, which is not an error */
        command_end(c, NULL);
    } else if (errno != EAGAIN && errno != EINTR) {
        hb_error_sys(&err, errno, "reading from the agent");
        command_end(c, &err);
    }
}

static void command_flush(struct command *c)
{
    size_t n = command_send(c, hb_buf_data(&c->out), hb_buf_len(&c->out));

    hb_buf_consume(&c->out, n);
    command_shut(c);
    if (hb_buf_len(&c->out) > 0)
        return;
    command_poll(c);
    if (c->events.on_drain && !c->closing)
        c->events.on_drain(c->arg);
}

static void on_io(uv_poll_t *io, int status, int events)
{
    struct command *c = io->data;

    if (status < 0)
        events = UV_READABLE; /* the read reports the error */
    if ((events & UV_WRITABLE) && hb_buf_len(&c->out) > 0)
        command_flush(c);
    if ((events & UV_READABLE) && !c->ended)
        command_read(c);
    /* libuv stops a poll on error, but what the child sent before it reset the
     * connection is still to be read. */
    if (status < 0 && !c->ended)
        command_poll(c);
}

static int command_write(struct transport *t, const void *bytes, size_t len)
{
    struct command *c = command_of(t);
    size_t done = 0;

    if (c->closing || c->ended)
        return -HVD_ECLOSED;
    if (hb_buf_len(&c->out) == 0)
        done = command_send(c, bytes, len);
    if (done == len)
        return 0;
    if (hb_buf_append(&c->out, (const char *)bytes + done, len - done) < 0)
        return -HVD_ENOMEM;
    command_poll(c);
    return 0;
}

static size_t command_write_queued(const struct transport *t)
{
    return hb_buf_len(&((const struct command *)t)->out);
}

/* ---- The child ---- */

static void on_child_stderr(void *arg, const char *bytes, size_t len)
{
    struct command *c = arg;

    c->events.on_stderr(c->arg, bytes, len);
}

/* Notes how the child ended.  Output of the child may still be unread, so the
 * end is reported only when the stream has ended, too. */
static void on_child_exit(void *arg, int wstatus)
{
    struct command *c = arg;

    c->exited = 1;
    c->wstatus = wstatus;
    if (c->ended)
        explain_end(c);
}

static void command_close(struct transport *t)
{
    struct command *c = command_of(t);

    if (c->closing)
        return;
    c->closing = 1;
    uv_timer_stop(&c->status_timer);
    command_shut(c);
    child_close(c->child, c->exit_wait_ms);
}

/* Closes as transport_close, but kills the child at once. */
static void command_cancel(struct transport *t)
{
    struct command *c = command_of(t);

    hb_buf_clear(&c->out);
    command_poll(c);
    command_close(t);
    if (c->child)
        child_close(c->child, 0);
}

int command_status(const struct transport *t)
{
    const struct command *c = (const struct command *)t;

    return c->exited ? c->wstatus : -1;
}

/* ---- Opening ---- */

static const struct transport_ops command_ops = {
    .write = command_write,
    .write_queued = command_write_queued,
    .close = command_close,
    .cancel = command_cancel,
};

static struct command *command_new(const struct transport_config *config)
{
    struct command *c = hb_xcalloc(1, sizeof(*c));

    c->base.ops = &command_ops;
    c->events = config->events;
    c->arg = config->arg;
    c->exit_wait_ms = config->exit_wait_ms;
    c->fd = -1;
    return c;
}

static void init_handles(struct command *c, uv_loop_t *loop)
{
    int rc = uv_poll_init(loop, &c->io, c->fd);

    assert(rc == 0); /* a socket can be polled */
    (void)rc;
    c->io.data = c;
    uv_poll_start(&c->io, UV_READABLE, on_io);
    uv_timer_init(loop, &c->status_timer);
    c->status_timer.data = c;
    c->handles = 2;
}

int command_open(const struct transport_config *config,
                 const struct command_options *options, struct transport **out)
{
    struct command *c = command_new(config);
    struct child_config child = {
        .loop = config->loop,
        .log = config->log,
        .host = config->host,
        .what = options->what,
        .path = options->path,
        .argv = options->argv,
        .nofile = config->nofile,
        .group = options->group,
        .on_stderr = on_child_stderr,
        .on_exit = on_child_exit,
        .on_close = on_child_close,
        .arg = c,
    };
    int pair[2] = {-1, -1};
    int rc = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        rc = -errno;
    else
        rc = child_open(&child, pair[1], &c->child);
    if (pair[1] >= 0)
        close(pair[1]);
    c->fd = pair[0];
    if (rc < 0) {
        command_free(c);
        return rc;
    }
    init_handles(c, config->loop);
    *out = &c->base;
    return 0;
}

int transport_open_command(const struct transport_config *config,
                           char *const argv[], struct transport **out,
                           struct hb_error *err)
{
    struct command_options options = {
        .argv = argv, .what = "command", .group = 1};
    int rc = command_open(config, &options, out);

    if (rc == 0)
        return 0;
    return hb_error_sys(err, -rc, "cannot start %s", argv[0]);
}
