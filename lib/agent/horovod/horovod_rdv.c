/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of Horovod's ranks; see horovod_rdv.h.
 *
 * Horovod makes a connection for each request, tens of thousands of them in one
 * hvd.init() of 64 ranks.  So accept() returns a connection only when its
 * request has arrived (TCP_DEFER_ACCEPT).  Most requests are answered at once;
 * a connection gets a handle of libuv only if it must wait for its socket.
 */
#include "lib/agent/horovod/horovod_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    ACCEPTS_AT_ONCE = 64,
    DEFER_S = 1,
    TICK_MS = 100,
    REQUEST_MS = 3000, /* for a whole request, as in Horovod's own server */
    REPLY_MS = 10000,  /* for the client to take the reply */
    CONNS_PER_RANK = 4,
    CONNS_MORE = 64,
    WARNINGS_MAX = 5,
    WARN_EVERY_MS = 10000,
};

static uint64_t after_ms(uint64_t ms)
{
    return hb_now_ns() + ms * 1000000;
}

/* ---- The end of a connection ---- */

static void conn_free(struct horovod_conn *c)
{
    hb_buf_free(&c->in);
    hb_buf_free(&c->out);
    hb_free(c);
}

static void on_conn_closed(uv_handle_t *handle)
{
    conn_free(handle->data);
}

void horovod_hang_up(struct horovod_conn *c)
{
    struct horovod_rdv *h = c->server;

    horovod_forget(c);
    *(c->older ? &c->older->newer : &h->oldest) = c->newer;
    *(c->newer ? &c->newer->older : &h->newest) = c->older;
    h->conn_count--;
    if (c->polled)
        uv_poll_stop(&c->poll);
    close(c->fd);
    if (c->polled)
        uv_close((uv_handle_t *)&c->poll, on_conn_closed);
    else
        conn_free(c);
}

static void watch_listener(struct horovod_rdv *h);

static void on_tick(uv_timer_t *timer)
{
    struct horovod_rdv *h = timer->data;
    uint64_t now = hb_now_ns();
    struct horovod_conn *c = h->oldest, *newer;

    for (; c; c = newer) {
        newer = c->newer;
        if (now < c->deadline_ns)
            continue;
        if (c->value)
            horovod_hold_over(c);
        else
            horovod_hang_up(c);
    }
    if (h->paused)
        watch_listener(h);
    if (!h->oldest)
        uv_timer_stop(timer);
}

/* ---- Sending ---- */

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct horovod_conn *c = poll->data;
    ssize_t n = status < 0 ? -1
                           : send(c->fd, hb_buf_data(&c->out),
                                  hb_buf_len(&c->out), MSG_NOSIGNAL);

    (void)events;
    if (n < 0 && status == 0 && errno == EAGAIN)
        return;
    if (n > 0)
        hb_buf_consume(&c->out, (size_t)n);
    if (n < 0 || hb_buf_len(&c->out) == 0)
        horovod_hang_up(c);
}

/* Calls `on_event` when the socket is ready: 0 or negative. */
static int watch(struct horovod_conn *c, int events, uv_poll_cb on_event)
{
    if (!c->polled && uv_poll_init(c->server->config.loop, &c->poll, c->fd) < 0)
        return -1;
    c->polled = 1;
    c->poll.data = c;
    return uv_poll_start(&c->poll, events, on_event);
}

void horovod_reply(struct horovod_conn *c, int code, const void *body,
                   size_t len)
{
    char head[HTTP_REPLY_HEAD_MAX];
    struct iovec parts[] = {
        {head, http_reply_head(head, code, len)},
        {(void *)body, len}, /* only read */
    };
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
    size_t sent = n > 0 ? (size_t)n : 0, whole = parts[0].iov_len + len;

    if (sent == whole || (n < 0 && errno != EAGAIN)) {
        horovod_hang_up(c);
        return;
    }
    hb_must(hb_buf_append(&c->out, head, parts[0].iov_len));
    if (len)
        hb_must(hb_buf_append(&c->out, body, len));
    hb_buf_consume(&c->out, sent);
    c->deadline_ns = after_ms(REPLY_MS);
    if (watch(c, UV_WRITABLE, on_writable) < 0)
        horovod_hang_up(c);
}

/* ---- Receiving ---- */

/* Handles the bytes received so far.  Returns whether more are needed. */
static int take(struct horovod_conn *c)
{
    struct http_request *r = &c->request;
    int rc = http_parse(hb_buf_data(&c->in), hb_buf_len(&c->in), r);

    if (rc == 0 || (rc > 0 && hb_buf_len(&c->in) < r->head_len + r->body_len))
        return 1;
    if (c->polled)
        uv_poll_stop(&c->poll);
    if (rc < 0)
        horovod_reply(c, -rc, NULL, 0);
    else
        horovod_serve(c);
    return 0;
}

/* Reads what is there.  Returns whether more is needed; if not, the connection
 * may be closed. */
static int receive(struct horovod_conn *c)
{
    struct horovod_rdv *h = c->server;
    ssize_t n = recv(c->fd, h->scratch, sizeof(h->scratch), 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n <= 0) {
        horovod_hang_up(c);
        return 0;
    }
    hb_must(hb_buf_append(&c->in, h->scratch, (size_t)n));
    return take(c);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    if (status < 0)
        horovod_hang_up(poll->data);
    else
        receive(poll->data);
}

/* ---- Accepting ---- */

static void warn_of_stranger(struct horovod_rdv *h, int known, uid_t uid)
{
    uint64_t now = hb_now_ns();
    char who[64];

    if (h->warnings >= WARNINGS_MAX ||
        (h->warned_ns && now - h->warned_ns < WARN_EVERY_MS * 1000000ull))
        return;
    h->warned_ns = now;
    h->warnings++;
    snprintf(who, sizeof(who), known ? "user %lu" : "an unknown user",
             (unsigned long)uid);
    hb_log(h->config.log, HB_LOG_WARNING,
           "Horovod's rendezvous on 127.0.0.1:%d: refused a connection of %s; "
           "it serves user %lu only",
           horovod_rdv_port(h), who, (unsigned long)geteuid());
}

static int is_ours(struct horovod_rdv *h, int fd,
                   const struct sockaddr_in *peer)
{
    uid_t uid = 0;
    int known = peer_uid_find(&h->peers, fd, &h->at, peer, &uid) == 0;

    if (known && uid == geteuid())
        return 1;
    warn_of_stranger(h, known, uid);
    return 0;
}

static void serve(struct horovod_rdv *h, int fd, const struct sockaddr_in *peer)
{
    struct horovod_conn *c;

    if (h->conn_count >= h->conn_max || !is_ours(h, fd, peer)) {
        close(fd);
        return;
    }
    c = hb_xcalloc(1, sizeof(*c));
    c->server = h;
    c->fd = fd;
    c->deadline_ns = after_ms(REQUEST_MS);
    c->older = h->newest;
    *(h->newest ? &h->newest->newer : &h->oldest) = c;
    h->newest = c;
    h->conn_count++;
    if (receive(c) && watch(c, UV_READABLE, on_readable) < 0)
        horovod_hang_up(c);
}

/* Stops accepting until the next tick: there are too many open files. */
static void pause_listener(struct horovod_rdv *h)
{
    if (!h->warned_of_files++)
        hb_log(h->config.log, HB_LOG_WARNING,
               "Horovod's rendezvous: the limit on open files is reached (see "
               "ulimit -n); its ranks must wait");
    uv_poll_stop(&h->poll);
    h->paused = 1;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct horovod_rdv *h = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE && !h->closed; i++) {
        struct sockaddr_in peer;
        socklen_t len = sizeof(peer);
        int fd = accept4(h->fd, (struct sockaddr *)&peer, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            serve(h, fd, &peer);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
            errno == ENOMEM)
            pause_listener(h);
        if (errno != ECONNABORTED && errno != EINTR)
            break;
    }
    if ((h->oldest || h->paused) && !uv_is_active((uv_handle_t *)&h->timer))
        uv_timer_start(&h->timer, on_tick, TICK_MS, TICK_MS);
}

static void watch_listener(struct horovod_rdv *h)
{
    h->paused = 0;
    uv_poll_start(&h->poll, UV_READABLE, on_connection);
}

/* ---- Opening and closing ---- */

/* Makes the listener: its descriptor, or -1 with errno set. */
static int listen_on(struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int defer_s = DEFER_S;

    if (fd < 0)
        return -1;
    *at = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    (void)setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer_s,
                     sizeof(defer_s)); /* only spares wake-ups */
    if (bind(fd, (struct sockaddr *)at, len) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)at, &len) < 0) {
        int why = errno;

        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

int horovod_rdv_open(const struct horovod_rdv_config *config,
                     struct horovod_rdv **out, struct hb_error *err)
{
    struct horovod_rdv *h;
    struct sockaddr_in at;
    int fd = listen_on(&at), rc;

    if (fd < 0)
        return hb_error_sys(err, errno, "cannot listen on 127.0.0.1");
    h = hb_xcalloc(1, sizeof(*h));
    h->config = *config;
    h->fd = fd;
    h->at = at;
    h->peers = (struct peer_uid)PEER_UID_INIT;
    h->conn_max = CONNS_PER_RANK * config->job->rank_count + CONNS_MORE;
    rc = uv_poll_init(config->loop, &h->poll, fd);
    if (rc < 0) {
        close(fd);
        hb_free(h);
        return hb_error_sys(err, -rc, "cannot watch a listener");
    }
    uv_timer_init(config->loop, &h->timer);
    h->poll.data = h->timer.data = h;
    watch_listener(h);
    *out = h;
    return 0;
}

int horovod_rdv_port(const struct horovod_rdv *h)
{
    return ntohs(h->at.sin_port);
}

void horovod_rdv_close(struct horovod_rdv *h)
{
    if (!h || h->closed)
        return;
    h->closed = 1;
    while (h->oldest)
        horovod_hang_up(h->oldest);
    horovod_drop_values(h);
    peer_uid_fini(&h->peers);
    uv_poll_stop(&h->poll);
    close(h->fd);
    uv_close((uv_handle_t *)&h->poll, NULL);
    uv_close((uv_handle_t *)&h->timer, NULL);
}

void horovod_rdv_free(struct horovod_rdv *h)
{
    hb_free(h);
}
