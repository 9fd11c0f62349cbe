/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection; see link.h. */
#include "lib/agent/link.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void end(struct link *l, const struct hb_error *err)
{
    if (l->ended)
        return;
    l->ended = 1;
    hb_buf_clear(&l->out);
    uv_poll_stop(&l->in_poll);
    uv_poll_stop(&l->out_poll);
    l->events.on_end(l->arg, err);
}

/* ---- Writing ---- */

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    link_flush(poll->data);
}

void link_flush(struct link *l)
{
    size_t before = hb_buf_len(&l->out);

    while (!l->ended && hb_buf_len(&l->out) > 0) {
        ssize_t n = write(l->out_fd, hb_buf_data(&l->out), hb_buf_len(&l->out));

        if (n >= 0)
            hb_buf_consume(&l->out, (size_t)n);
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            end(l, NULL);
    }
    if (l->ended)
        return;
    if (hb_buf_len(&l->out) > 0) {
        uv_poll_start(&l->out_poll, UV_WRITABLE, on_writable);
        l->writing = 1;
    } else if (l->writing) {
        uv_poll_stop(&l->out_poll);
        l->writing = 0;
    }
    if (before > 0 && hb_buf_len(&l->out) == 0)
        l->events.on_flushed(l->arg);
    /* on_flushed may have queued more: it goes out in the next turn. */
    if (!l->ended && !l->writing && hb_buf_len(&l->out) > 0) {
        uv_poll_start(&l->out_poll, UV_WRITABLE, on_writable);
        l->writing = 1;
    }
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct link *l = prepare->data;

    if (hb_buf_len(&l->out) > 0 && !l->writing)
        link_flush(l);
}

int link_full(const struct link *l)
{
    return hb_buf_len(&l->out) >= LINK_HIGH_BYTES;
}

/* ---- Reading ---- */

static void decode(struct link *l)
{
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;
    int rc = 0;

    while (!l->ended &&
           (rc = frame_decode(&l->in, FRAME_PAYLOAD_MAX, &f, &err)) > 0) {
        rc = l->events.on_frame(l->arg, &f, &err);
        if (rc < 0)
            break;
        frame_done(&l->in, &f);
    }
    if (rc < 0)
        end(l, &err);
    /* A launch can be large, and holds the job's secret. */
    if (hb_buf_len(&l->in) == 0)
        hb_buf_free(&l->in);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct link *l = poll->data;
    char chunk[LINK_READ_BYTES];
    ssize_t n;

    (void)events;
    /* libuv stops a poll on error; what arrived before it is still read. */
    if (status < 0)
        uv_poll_start(poll, UV_READABLE, on_readable);
    n = read(l->in_fd, chunk, sizeof(chunk));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        l->events.on_eof(l->arg);
        link_flush(l);
        end(l, NULL);
        return;
    }
    if (hb_buf_append(&l->in, chunk, (size_t)n) < 0)
        end(l, NULL);
    explicit_bzero(chunk, (size_t)n);
    decode(l);
}

/* ---- Opening and closing ---- */

int link_init(struct link *l, const struct link_options *options,
              struct hb_error *err)
{
    int rc;

    memset(l, 0, sizeof(*l));
    l->loop = options->loop;
    l->events = options->events;
    l->arg = options->arg;
    l->in_fd = options->in_fd;
    l->out_fd = options->out_fd;
    rc = uv_poll_init(l->loop, &l->in_poll, l->in_fd);
    if (rc < 0)
        return hb_error_sys(err, -rc, "stdin must be a pipe or a socket");
    rc = uv_poll_init(l->loop, &l->out_poll, l->out_fd);
    if (rc < 0) {
        uv_close((uv_handle_t *)&l->in_poll, NULL);
        return hb_error_sys(err, -rc, "stdout must be a pipe or a socket");
    }
    uv_prepare_init(l->loop, &l->prepare);
    l->in_poll.data = l->out_poll.data = l->prepare.data = l;
    uv_poll_start(&l->in_poll, UV_READABLE, on_readable);
    uv_prepare_start(&l->prepare, on_prepare);
    uv_unref((uv_handle_t *)&l->prepare);
    return 0;
}

void link_close(struct link *l)
{
    if (l->closed)
        return;
    l->closed = l->ended = 1;
    uv_close((uv_handle_t *)&l->in_poll, NULL);
    uv_close((uv_handle_t *)&l->out_poll, NULL);
    uv_close((uv_handle_t *)&l->prepare, NULL);
}

void link_fini(struct link *l)
{
    hb_buf_free(&l->in);
    hb_buf_free(&l->out);
}
