/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe listener.  Anybody can connect to it, so the number of connections
 * and their time are bounded; route_talk.h bounds what is said and read.
 * Answers are so short that a connection whose socket does not take one at once
 * is closed.
 */
#include "lib/agent/route/route_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 256,
    PATIENCE_MS = 250,
    ACCEPTS_AT_ONCE = 64,
    HOLD_MS = 2, /* delay after that many */
};

struct route_served {
    uv_tcp_t tcp;
    struct route *route;
    struct route_served *older, *newer;
    uint64_t deadline_ns;
    struct route_talk talk;
};

static uint64_t after_ms(uint64_t ms)
{
    return hb_now_ns() + ms * 1000000;
}

/* ---- The end of a connection ---- */

static void on_closed(uv_handle_t *handle)
{
    hb_free(handle->data);
}

static void hang_up(struct route_served *s)
{
    struct route *r = s->route;

    *(s->older ? &s->older->newer : &r->oldest) = s->newer;
    *(s->newer ? &s->newer->older : &r->newest) = s->older;
    r->served_count--;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

static void on_patience(uv_timer_t *timer)
{
    struct route *r = timer->data;
    uint64_t now = hb_now_ns();
    struct route_served *s = r->oldest, *next;

    for (; s; s = next) {
        next = s->newer;
        if (now >= s->deadline_ns)
            hang_up(s);
    }
    if (r->served_count == 0)
        uv_timer_stop(timer);
}

/* ---- The conversation ---- */

/* Sends bytes; 0, or negative if they do not fit into the socket at once. */
static int say(void *arg, const void *bytes, size_t len)
{
    struct route_served *s = arg;
    uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)len);

    return uv_try_write((uv_stream_t *)&s->tcp, &buf, 1) == (int)len ? 0 : -1;
}

/* Handles received bytes; 0, or negative to hang up. */
static int take(struct route_served *s, const char *bytes, size_t len)
{
    int proved = s->talk.proved;
    int rc = route_talk_take(&s->talk, bytes, len);

    if (s->talk.proved && !proved)
        s->deadline_ns = after_ms(ROUTE_SERVE_MS);
    return rc;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct route_served *s = handle->data;

    (void)suggested;
    *buf = uv_buf_init(s->route->scratch, sizeof(s->route->scratch));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct route_served *s = stream->data;

    if (n == 0)
        return;
    if (n == UV_EOF)
        route_talk_end(&s->talk);
    if (n < 0 || take(s, buf->base, (size_t)n) < 0)
        hang_up(s);
}

/* ---- Accepting ---- */

/* Closes the oldest connection that has not proved the token: honest callers
 * need only milliseconds. */
static void make_room(struct route *r)
{
    struct route_served *s = r->oldest;

    while (s && s->talk.proved)
        s = s->newer;
    if (s)
        hang_up(s);
}

static void take_connection(struct route *r)
{
    uv_stream_t *listener = (uv_stream_t *)&r->listener;
    struct route_served *s;
    int rc;

    if (r->served_count >= ROUTE_SERVED_MAX)
        make_room(r);
    s = hb_xcalloc(1, sizeof(*s));
    s->route = r;
    s->talk = (struct route_talk){
        .token = r->token, .host = r->host, .say = say, .arg = s};
    s->deadline_ns = after_ms(ROUTE_CALL_MS);
    rc = uv_tcp_init(r->loop, &s->tcp);
    assert(rc == 0); /* it makes no socket yet */
    (void)rc;
    s->tcp.data = s;
    if (uv_accept(listener, (uv_stream_t *)&s->tcp) < 0 ||
        r->served_count >= ROUTE_SERVED_MAX ||
        uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read) < 0) {
        uv_close((uv_handle_t *)&s->tcp, on_closed);
        return;
    }
    (void)uv_tcp_nodelay(&s->tcp, 1); /* only makes answers quicker */
    s->older = r->newest;
    *(s->older ? &s->older->newer : &r->oldest) = s;
    r->newest = s;
    if (r->served_count++ == 0)
        uv_timer_start(&r->patience, on_patience, PATIENCE_MS, PATIENCE_MS);
}

static void on_hold_over(uv_timer_t *timer)
{
    take_connection(timer->data);
}

/* Takes a connection, or after ACCEPTS_AT_ONCE in a turn lets it wait for
 * HOLD_MS: libuv accepts as long as there are connections, and runs no other
 * handle meanwhile, until one is left untaken.  uv_now does not advance while
 * libuv accepts. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct route *r = listener->data;

    if (status < 0)
        return;
    if (r->turn_ms != uv_now(r->loop)) {
        r->turn_ms = uv_now(r->loop);
        r->turn_count = 0;
    }
    if (++r->turn_count > ACCEPTS_AT_ONCE)
        uv_timer_start(&r->hold, on_hold_over, HOLD_MS, 0);
    else
        take_connection(r);
}

/* ---- Opening and closing ---- */

/* Binds [::]:0 for both families; 0.0.0.0:0 where there is no IPv6.  Returns a
 * descriptor, or -1 with errno set. */
static int bind_any(uint8_t family)
{
    const struct hb_netaddr any = {.family = family};
    struct sockaddr_storage sa;
    socklen_t len = hb_netaddr_to_sockaddr(&any, 0, &sa);
    int fd =
        socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int off = 0, e;

    if (fd < 0)
        return -1;
    if (family == 6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (const struct sockaddr *)&sa, len) == 0)
        return fd;
    e = errno;
    close(fd);
    errno = e;
    return -1;
}

static int port_of(const uv_tcp_t *tcp)
{
    struct sockaddr_storage sa;
    int len = sizeof(sa);

    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&sa, &len) < 0)
        return 0;
    return ntohs(sa.ss_family == AF_INET6
                     ? ((struct sockaddr_in6 *)&sa)->sin6_port
                     : ((struct sockaddr_in *)&sa)->sin_port);
}

int route_serve(struct route *r, int *port, struct hb_error *err)
{
    int fd = bind_any(6), rc;

    if (fd < 0)
        fd = bind_any(4);
    if (fd < 0)
        return hb_error_sys(err, errno, "cannot open a probe listener");
    uv_tcp_init(r->loop, &r->listener);
    uv_timer_init(r->loop, &r->patience);
    uv_timer_init(r->loop, &r->hold);
    r->listener.data = r->patience.data = r->hold.data = r;
    rc = uv_tcp_open(&r->listener, fd);
    if (rc < 0)
        close(fd);
    else
        rc = uv_listen((uv_stream_t *)&r->listener, BACKLOG, on_connection);
    r->listening = 1;
    if (rc < 0)
        return hb_error_sys(err, -rc, "cannot open a probe listener");
    *port = port_of(&r->listener);
    return 0;
}

void route_serve_close(struct route *r)
{
    while (r->oldest)
        hang_up(r->oldest);
    uv_close((uv_handle_t *)&r->listener, NULL);
    uv_close((uv_handle_t *)&r->patience, NULL);
    uv_close((uv_handle_t *)&r->hold, NULL);
}
