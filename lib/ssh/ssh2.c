/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SSH sessions on the loop, and the plug-in's exported table; see ssh2.h.
 *
 * While a task (ssh2_impl.h) makes the connection, only an async handle is in
 * use here.  Then the session belongs to the loop: libssh2 is called from on_io
 * alone, so that data that it has already received is not left in its buffers.
 * Every turn reads both streams until nothing is left, within a budget (the
 * channel does not end while its stderr is unread), then writes.
 *
 * on_close runs when all handles are closed, which happens when the shell has
 * ended, or after exit_wait_ms.
 */
#include "lib/ssh/ssh2_impl.h"

#include "lib/base/alloc.h"
#include "lib/transport/transport_impl.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 << 10,
    TURN_BYTES = 512 << 10, /* received per turn of the loop */
    RAW_MAX = 256 << 10,    /* encrypted, not yet sent */
    /* How long an ended stream waits for the exit status that explains it. */
    STATUS_WAIT_MS = 2000,
    ALIVE_S = 60, /* so that routers do not drop an idle connection */
};

struct ssh2 {
    struct transport base;
    const char *host;
    const struct hb_log *log;
    struct transport_events events;
    void *arg;
    int exit_wait_ms;

    uv_async_t async;
    uv_timer_t timer;
    uv_poll_t io;
    int handles;            /* not yet closed */
    int polls;              /* io is one of them */
    int polled;             /* for these events */
    struct ssh2_task *task; /* NULL once the session is ours */
    const char *stage;      /* last reported */
    struct ssh2_session *session;
    struct hb_buf out;
    int drains;       /* on_drain is due */
    int blocked;      /* the channel takes no more until something is read */
    int closing;      /* transport_close was called */
    int shut;         /* our direction is shut down */
    int ended;        /* the host closed its direction */
    int end_reported; /* on_end was called */
    int done;         /* no more input will come */
    int gone;         /* handles are being closed */
};

static struct ssh2 *ssh2_of(struct transport *t)
{
    return (struct ssh2 *)t;
}

/* ---- Closing ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct ssh2 *t = handle->data;
    struct transport_events events = t->events;
    void *arg = t->arg;

    if (--t->handles > 0)
        return;
    ssh2_session_free(t->session);
    hb_buf_free(&t->out);
    hb_free(t);
    events.on_close(arg);
}

/* Disconnects, without waiting if the socket is not writable. */
static void say_goodbye(struct ssh2_session *s)
{
    if (s->closed)
        return;
    s->budget = 0;
    libssh2_session_disconnect(s->lib, "done");
    ssh2_session_flush(s);
}

static void ssh2_release(struct ssh2 *t)
{
    if (t->gone)
        return;
    t->gone = 1;
    if (t->session)
        say_goodbye(t->session);
    if (t->polls)
        uv_close((uv_handle_t *)&t->io, on_handle_closed);
    uv_close((uv_handle_t *)&t->async, on_handle_closed);
    uv_close((uv_handle_t *)&t->timer, on_handle_closed);
}

/* ---- The end of the stream ---- */

static void tell_end(struct ssh2 *t, const struct hb_error *err)
{
    if (t->end_reported || t->closing)
        return;
    t->end_reported = 1;
    uv_timer_stop(&t->timer);
    t->events.on_end(t->arg, err);
}

/* Reports the end of the stream, with the shell's exit if it is known. */
static void explain_end(struct ssh2 *t)
{
    struct ssh2_session *s = t->session;
    struct hb_error err = HB_ERROR_INIT;
    const char *name;
    char *signal = NULL;
    int code = libssh2_channel_get_exit_status(s->channel);

    libssh2_channel_get_exit_signal(s->channel, &signal, NULL, NULL, NULL, NULL,
                                    NULL);
    /* An agent's guardian passes on its signal as 128 + n. */
    name = code > 128 ? sigabbrev_np(code - 128) : NULL;
    if (signal)
        hb_error_set(&err, HVD_EPEER, "it was killed by signal SIG%.20s",
                     signal);
    else if (name)
        hb_error_set(&err, HVD_EPEER, "it was killed by signal %d (SIG%s)",
                     code - 128, name);
    else if (code)
        hb_error_set(&err, HVD_EPEER, "it exited with code %d", code);
    libssh2_free(s->lib, signal);
    tell_end(t, err.status ? &err : NULL);
}

static void on_status_timer(uv_timer_t *timer)
{
    explain_end(timer->data);
}

static void on_exit_timer(uv_timer_t *timer)
{
    struct ssh2 *t = timer->data;

    hb_log(t->log, HB_LOG_DEBUG,
           "host %s: the shell did not end; dropping the connection", t->host);
    ssh2_release(t);
}

static void connection_lost(struct ssh2 *t)
{
    struct hb_error err = HB_ERROR_INIT;
    struct ssh2_session *s = t->session;

    t->ended = 1;
    hb_buf_clear(&t->out);
    uv_poll_stop(&t->io);
    if (s->sys_errno)
        hb_error_set(&err, HVD_ECLOSED, "the ssh connection to it was lost: %s",
                     strerror(s->sys_errno));
    else if (s->closed)
        hb_error_set(&err, HVD_ECLOSED, "the ssh connection to it was lost");
    else
        hb_error_set(&err, HVD_EPROTO, "the ssh connection to it failed: %s",
                     ssh2_session_error(s));
    t->done = 1;
    tell_end(t, &err);
    if (t->closing)
        ssh2_release(t);
}

/* Waits for the exit status or reports the end, when all output is read. */
static void stream_ended(struct ssh2 *t)
{
    int rc = libssh2_channel_wait_closed(t->session->channel);

    if (rc == LIBSSH2_ERROR_EAGAIN && !t->session->closed) {
        if (!t->ended && !t->closing)
            uv_timer_start(&t->timer, on_status_timer, STATUS_WAIT_MS, 0);
        t->ended = 1;
        hb_buf_clear(&t->out);
        return;
    }
    if (rc != 0) {
        connection_lost(t);
        return;
    }
    t->ended = 1;
    hb_buf_clear(&t->out);
    uv_poll_stop(&t->io);
    explain_end(t);
    t->done = 1;
    if (t->closing)
        ssh2_release(t);
}

/* ---- Turns ---- */

/* Reads one piece of a stream: its length, 0 if there is none, negative if the
 * connection is lost. */
static int read_piece(struct ssh2 *t, int stream)
{
    char bytes[READ_BYTES];
    ssize_t n = libssh2_channel_read_ex(t->session->channel, stream, bytes,
                                        sizeof(bytes));

    if (n == LIBSSH2_ERROR_EAGAIN)
        return 0;
    if (n > 0 && stream == SSH_EXTENDED_DATA_STDERR)
        t->events.on_stderr(t->arg, bytes, (size_t)n);
    else if (n > 0 && !t->closing)
        t->events.on_read(t->arg, bytes, (size_t)n);
    return (int)n;
}

/* Reads until both are empty: data left in libssh2 does not make the socket
 * readable. */
static int read_streams(struct ssh2 *t)
{
    int out, err;

    do {
        out = read_piece(t, 0);
        if (out < 0)
            return out;
        err = read_piece(t, SSH_EXTENDED_DATA_STDERR);
        if (err < 0)
            return err;
    } while (out > 0 || err > 0);
    return 0;
}

/* Writes what the channel takes: 1 if something was written.  When all is
 * written and the transport is closing, sends end of file. */
static int write_stream(struct ssh2 *t)
{
    struct ssh2_session *s = t->session;
    int some = 0;

    while (hb_buf_len(&t->out) > 0 && hb_buf_len(&s->out) < RAW_MAX) {
        ssize_t n = libssh2_channel_write(s->channel, hb_buf_data(&t->out),
                                          hb_buf_len(&t->out));
        if (n == 0 || n == LIBSSH2_ERROR_EAGAIN) {
            t->blocked = 1;
            break;
        }
        if (n < 0)
            return (int)n;
        hb_buf_consume(&t->out, (size_t)n);
        some = 1;
    }
    if (t->closing && !t->shut && hb_buf_len(&t->out) == 0) {
        int rc = libssh2_channel_send_eof(s->channel);
        t->shut = rc != LIBSSH2_ERROR_EAGAIN;
        t->blocked |= !t->shut;
    }
    return some;
}

static size_t queued(const struct ssh2 *t)
{
    return hb_buf_len(&t->out) +
           (t->session ? hb_buf_len(&t->session->out) : 0);
}

static void on_io(uv_poll_t *io, int status, int events);

static void ssh2_poll(struct ssh2 *t)
{
    int events = UV_READABLE;

    if (t->gone || t->done || !t->polls)
        return;
    if (hb_buf_len(&t->session->out) > 0 ||
        (!t->blocked && (hb_buf_len(&t->out) > 0 || (t->closing && !t->shut))))
        events |= UV_WRITABLE;
    if (events != t->polled)
        uv_poll_start(&t->io, events, on_io);
    t->polled = events;
}

/* Reads and writes until neither makes progress: either may receive what lets
 * the other continue, and the socket does not become readable again for
 * that. */
static int transfer(struct ssh2 *t)
{
    struct ssh2_session *s = t->session;
    size_t before;
    int rc;

    do {
        before = s->budget;
        rc = read_streams(t);
        t->blocked = 0;
        if (rc == 0)
            rc = write_stream(t);
    } while (rc > 0 || (rc == 0 && s->budget != before));
    ssh2_session_flush(s);
    return rc;
}

static void ssh2_turn(struct ssh2 *t)
{
    struct ssh2_session *s = t->session;
    int rc;

    s->budget = TURN_BYTES;
    ssh2_session_flush(s);
    rc = transfer(t);
    if (t->gone)
        return;
    if (libssh2_channel_eof(s->channel) == 1)
        stream_ended(t);
    else if (rc < 0 || s->closed)
        connection_lost(t);
    if (t->gone || t->done)
        return;
    if (t->drains && queued(t) == 0 && !t->ended) {
        t->drains = 0;
        if (t->events.on_drain && !t->closing)
            t->events.on_drain(t->arg);
    }
    ssh2_poll(t);
}

/* Takes a turn.  libuv reports errors of the socket in status; the read finds
 * them. */
static void on_io(uv_poll_t *io, int status, int events)
{
    struct ssh2 *t = io->data;

    (void)events;
    if (status < 0) /* libuv has stopped it */
        t->polled = 0;
    ssh2_turn(t);
}

/* Keeps the connection alive without asking for an answer: heartbeats are the
 * caller's business. */
static void on_alive_timer(uv_timer_t *timer)
{
    struct ssh2 *t = timer->data;
    int next;

    t->session->budget = 0;
    libssh2_keepalive_send(t->session->lib, &next);
    ssh2_poll(t);
}

/* ---- From task to session ---- */

static void start_session(struct ssh2 *t)
{
    uint64_t alive_ms = ALIVE_S * 1000;
    int rc = uv_poll_init(t->timer.loop, &t->io, t->session->fd);

    assert(rc == 0); /* a socket can be polled */
    (void)rc;
    t->io.data = t;
    t->polls = 1;
    t->handles++;
    libssh2_keepalive_config(t->session->lib, 0, ALIVE_S);
    uv_timer_start(&t->timer, on_alive_timer, alive_ms, alive_ms);
    ssh2_turn(t);
}

static void tell_notes(const struct ssh2 *t, const struct hb_strv *notes)
{
    for (size_t i = 0; i < notes->count; i++)
        hb_log(t->log, (enum hb_log_level)(notes->items[i][0] - '0'),
               "host %s: %s", t->host, notes->items[i] + 1);
}

/* Takes over the session of the task, which has ended. */
static void task_done(struct ssh2 *t)
{
    struct ssh2_task *task = t->task;
    struct hb_error err = task->err;

    t->task = NULL;
    t->session = task->session;
    task->session = NULL;
    tell_notes(t, &task->notes);
    ssh2_task_unref(task);
    if (t->closing) {
        ssh2_release(t);
    } else if (t->session) {
        start_session(t);
    } else {
        t->ended = 1;
        tell_end(t, &err);
    }
}

static void on_async(uv_async_t *async)
{
    struct ssh2 *t = async->data;
    const char *stage;

    if (!t->task)
        return;
    if (ssh2_task_look(t->task, &stage) == TASK_DONE) {
        task_done(t);
        return;
    }
    if (stage == t->stage || t->closing)
        return;
    t->stage = stage;
    if (t->events.on_stage)
        t->events.on_stage(t->arg, stage);
}

/* ---- The transport ---- */

static int ssh2_write(struct transport *base, const void *bytes, size_t len)
{
    struct ssh2 *t = ssh2_of(base);

    if (t->closing || t->ended)
        return -HVD_ECLOSED;
    if (hb_buf_append(&t->out, bytes, len) < 0)
        return -HVD_ENOMEM;
    t->drains = 1;
    ssh2_poll(t);
    return 0;
}

static size_t ssh2_write_queued(const struct transport *t)
{
    return queued((const struct ssh2 *)t);
}

static void ssh2_close(struct transport *base)
{
    struct ssh2 *t = ssh2_of(base);

    if (t->closing)
        return;
    t->closing = 1;
    if (t->task) {
        if (ssh2_task_cancel(t->task)) {
            ssh2_task_unref(t->task);
            t->task = NULL;
            ssh2_release(t);
        }
    } else if (!t->session || t->end_reported) {
        ssh2_release(t);
    } else {
        uv_timer_start(&t->timer, on_exit_timer, (uint64_t)t->exit_wait_ms, 0);
        ssh2_poll(t);
    }
}

/* Ends the session from the loop, not at once: the caller may be inside a
 * callback of this session. */
static void ssh2_cancel(struct transport *base)
{
    struct ssh2 *t = ssh2_of(base);

    ssh2_close(base);
    if (!t->gone && !t->task)
        uv_timer_start(&t->timer, on_exit_timer, 0, 0);
}

static const struct transport_ops ssh2_ops = {
    .write = ssh2_write,
    .write_queued = ssh2_write_queued,
    .close = ssh2_close,
    .cancel = ssh2_cancel,
};

static void free_unopened(uv_handle_t *handle)
{
    struct ssh2 *t = handle->data;

    if (--t->handles == 0)
        hb_free(t);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int ssh2_open(struct ssh2_shared *shared,
                     const struct transport_config *config,
                     const struct ssh2_open *open, struct transport **out,
                     struct hb_error *err)
{
    struct ssh2 *t;
    int rc;

    if (ssh2_session_setup() < 0) {
        close_fd(open->fd);
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: libssh2 cannot be initialised");
    }
    t = hb_xcalloc(1, sizeof(*t));
    t->base.ops = &ssh2_ops;
    t->host = config->host;
    t->log = config->log;
    t->events = config->events;
    t->arg = config->arg;
    t->exit_wait_ms = config->exit_wait_ms;
    rc = uv_async_init(config->loop, &t->async, on_async);
    if (rc < 0) {
        close_fd(open->fd);
        hb_free(t);
        return hb_error_sys(err, -rc, "cannot start ssh");
    }
    uv_timer_init(config->loop, &t->timer);
    t->async.data = t->timer.data = t;
    t->handles = 2;
    rc = ssh2_task_start(shared, open->config, open->fd, &t->async, &t->task,
                         err);
    if (rc < 0) {
        uv_close((uv_handle_t *)&t->async, free_unopened);
        uv_close((uv_handle_t *)&t->timer, free_unopened);
        return rc;
    }
    *out = &t->base;
    return 0;
}

__attribute__((visibility("default"))) const struct ssh2_plugin *
ssh2_plugin(int abi)
{
    static const struct ssh2_plugin plugin = {
        .shared_new = ssh2_shared_new,
        .shared_free = ssh2_shared_free,
        .forget_keys = ssh2_shared_forget_keys,
        .open = ssh2_open,
    };

    return abi == SSH2_PLUGIN_ABI ? &plugin : NULL;
}
