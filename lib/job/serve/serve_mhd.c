/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server over libmicrohttpd; see serve_plugin.h.
 *
 * libmicrohttpd has all its sockets in one epoll instance, which the loop
 * watches; MHD_run does what is due and never blocks.  A stream of events that
 * has sent the latest event is suspended until there is another one: its
 * connection then costs nothing, and is not subject to the time limit.
 */
#include "lib/job/serve/serve_plugin.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 32,
    STREAMS_MAX = 16,     /* of these connections */
    MEMORY_MAX = 8 << 10, /* request line and headers of a connection */
    IDLE_S = 10,          /* without progress */
    EVENT_MS = 1000,
    LINGER_MS = 500, /* to send the last event */
    BLOCK_BYTES = 16 << 10,
};

#if MHD_VERSION < 0x00097002
typedef int mhd_result;
#else
typedef enum MHD_Result mhd_result;
#endif

/* The text of an event, shared by the streams that send it. */
struct event {
    int refs;
    struct hb_buf text;
};

struct stream {
    struct serve *serve;
    struct MHD_Connection *connection;
    struct event *event; /* being sent, from `at` on; or NULL */
    size_t at;
    uint64_t number; /* of the last event taken; 0: none */
    int is_suspended;
    struct stream *next, **link;
};

struct serve {
    struct serve_config config;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer; /* when libmicrohttpd is to run at the latest */
    uv_timer_t tick;  /* the next event; or the end of the wait for streams */
    int handles;      /* not yet closed */
    struct stream *streams;
    int stream_count;
    struct event *latest;
    uint64_t number; /* of the latest event */
    int is_closing, is_stopped;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- Events ---- */

static void unref(struct event *e)
{
    if (!e || --e->refs > 0)
        return;
    hb_buf_free(&e->text);
    hb_free(e);
}

static void make_event(struct serve *s)
{
    unref(s->latest);
    s->latest = hb_xcalloc(1, sizeof(*s->latest));
    s->latest->refs = 1;
    s->number++;
    s->config.event(s->config.arg, s->is_closing, &s->latest->text);
}

static void resume_streams(struct serve *s)
{
    for (struct stream *st = s->streams; st; st = st->next) {
        if (st->is_suspended)
            MHD_resume_connection(st->connection);
        st->is_suspended = 0;
    }
}

/* ---- The loop ---- */

static void on_closed(uv_handle_t *handle)
{
    struct serve *s = handle->data;

    if (--s->handles > 0)
        return;
    if (s->closed)
        s->closed(s->closed_arg);
    unref(s->latest);
    hb_free(s);
}

/* Closes all connections.  Not to be called by a callback of libmicrohttpd. */
static void stop(struct serve *s)
{
    s->is_stopped = 1;
    resume_streams(s); /* the daemon must not have suspended ones */
    uv_close((uv_handle_t *)&s->poll, on_closed);
    uv_close((uv_handle_t *)&s->timer, on_closed);
    uv_close((uv_handle_t *)&s->tick, on_closed);
    MHD_stop_daemon(s->daemon);
}

static void on_timer(uv_timer_t *timer);

static unsigned count_connections(const struct serve *s)
{
    return MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
        ->num_connections;
}

/* Runs libmicrohttpd, which handles ready sockets and timeouts. */
static void turn(struct serve *s)
{
    MHD_UNSIGNED_LONG_LONG ms;
    unsigned before;

    /* At its limit of connections, libmicrohttpd stops watching the listening
     * socket.  After connections have ended, it watches the socket again only
     * in the next run. */
    do {
        before = count_connections(s);
        MHD_run(s->daemon);
    } while (count_connections(s) < before);
    if (s->is_closing && !s->streams)
        stop(s);
    else if (MHD_get_timeout(s->daemon, &ms) == MHD_YES)
        uv_timer_start(&s->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&s->timer);
}

static void on_timer(uv_timer_t *timer)
{
    turn(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    turn(poll->data);
}

static void on_tick(uv_timer_t *timer)
{
    struct serve *s = timer->data;

    if (s->is_closing) {
        stop(s);
        return;
    }
    make_event(s);
    resume_streams(s);
    turn(s);
}

/* ---- Streams ---- */

static void drop_event(struct stream *st)
{
    unref(st->event);
    st->event = NULL;
    st->at = 0;
}

/* Takes the latest event, unless the stream has had it. */
static void take_event(struct stream *st)
{
    struct serve *s = st->serve;

    if (st->number == s->number)
        return;
    st->number = s->number;
    st->event = s->latest;
    st->event->refs++;
}

static ssize_t read_stream(void *arg, uint64_t pos, char *out, size_t max)
{
    struct stream *st = arg;
    size_t left;

    (void)pos;
    if (!st->event)
        take_event(st);
    if (!st->event) {
        if (st->serve->is_closing)
            return MHD_CONTENT_READER_END_OF_STREAM;
        st->is_suspended = 1;
        MHD_suspend_connection(st->connection);
        return 0;
    }
    left = hb_buf_len(&st->event->text) - st->at;
    if (max > left)
        max = left;
    memcpy(out, hb_buf_data(&st->event->text) + st->at, max);
    st->at += max;
    if (max == left)
        drop_event(st);
    return (ssize_t)max;
}

static void free_stream(void *arg)
{
    struct stream *st = arg;
    struct serve *s = st->serve;

    *st->link = st->next;
    if (st->next)
        st->next->link = st->link;
    if (--s->stream_count == 0 && !s->is_closing)
        uv_timer_stop(&s->tick);
    drop_event(st);
    hb_free(st);
}

static struct MHD_Response *open_stream(struct serve *s,
                                        struct MHD_Connection *connection)
{
    struct stream *st = hb_xcalloc(1, sizeof(*st));
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, st, free_stream);

    if (!response) {
        hb_free(st);
        return NULL;
    }
    st->serve = s;
    st->connection = connection;
    st->next = s->streams;
    st->link = &s->streams;
    if (st->next)
        st->next->link = &st->next;
    s->streams = st;
    if (s->stream_count++ == 0) {
        make_event(s);
        uv_timer_start(&s->tick, on_tick, EVENT_MS, EVENT_MS);
    }
    return response;
}

/* ---- Requests ---- */

static void add_headers(struct MHD_Response *response,
                        const struct serve_reply *reply)
{
    const struct {
        const char *name, *value;
    } headers[] = {
        {"Content-Type", reply->type},
        {"Content-Security-Policy", reply->policy},
        {"Cache-Control", "no-store"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {reply->status == 401 ? "WWW-Authenticate" : NULL, "Bearer"},
        {reply->status == 405 ? "Allow" : NULL, "GET, HEAD"},
    };

    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        if (headers[i].name)
            (void)MHD_add_response_header(response, headers[i].name,
                                          headers[i].value);
}

/* Makes the response.  A stream that is one too many is refused. */
static struct MHD_Response *make_response(struct serve *s,
                                          struct MHD_Connection *connection,
                                          int is_head,
                                          struct serve_reply *reply)
{
    static char too_many[] = "too many pages are open\n";

    if (reply->is_stream && !is_head && s->stream_count < STREAMS_MAX)
        return open_stream(s, connection);
    if (reply->is_stream && !is_head) {
        reply->status = 503;
        reply->type = "text/plain; charset=utf-8";
        return MHD_create_response_from_buffer(sizeof(too_many) - 1, too_many,
                                               MHD_RESPMEM_PERSISTENT);
    }
    return MHD_create_response_from_buffer(hb_buf_len(&reply->body),
                                           hb_buf_data(&reply->body),
                                           MHD_RESPMEM_MUST_COPY);
}

static mhd_result answer(struct serve *s, struct MHD_Connection *connection,
                         const char *path, const char *method)
{
    const struct serve_request q = {
        .method = method,
        .path = path,
        .authorization = MHD_lookup_connection_value(
            connection, MHD_HEADER_KIND, "Authorization"),
        .token = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND,
                                             "token"),
    };
    struct serve_reply reply = {.body = HB_BUF_INIT};
    struct MHD_Response *response;
    mhd_result rc = MHD_NO;

    s->config.answer(s->config.arg, &q, &reply);
    response =
        make_response(s, connection, strcmp(method, "HEAD") == 0, &reply);
    if (response) {
        add_headers(response, &reply);
        rc = MHD_queue_response(connection, (unsigned)reply.status, response);
        MHD_destroy_response(response);
    }
    hb_buf_free(&reply.body);
    return rc;
}

/* Answers when the headers are there; a request that has a body, which none
 * needs, is refused before, or its connection closed. */
static mhd_result on_request(void *arg, struct MHD_Connection *connection,
                             const char *path, const char *method,
                             const char *version, const char *upload,
                             size_t *upload_len, void **state)
{
    static char headers_seen;

    (void)version;
    (void)upload;
    if (*upload_len > 0)
        return MHD_NO;
    if (!*state) {
        *state = &headers_seen;
        if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
            return MHD_YES;
    }
    return answer(arg, connection, path, method);
}

/* ---- Life ---- */

static struct MHD_Daemon *start_daemon(struct serve *s)
{
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
        MHD_OPTION_LISTEN_SOCKET, s->config.fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_END);
}

static void init_handle(struct serve *s, void *handle)
{
    ((uv_handle_t *)handle)->data = s;
    s->handles++;
}

static int serve_open(const struct serve_config *config, struct serve **out,
                      struct hb_error *err)
{
    struct serve *s = hb_xcalloc(1, sizeof(*s));
    const union MHD_DaemonInfo *info = NULL;
    int rc = -ENOMEM;

    s->config = *config;
    s->daemon = start_daemon(s);
    if (s->daemon)
        info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info)
        rc = uv_poll_init(config->loop, &s->poll, info->epoll_fd);
    if (rc < 0) {
        if (s->daemon) {
            (void)MHD_quiesce_daemon(
                s->daemon); /* the socket is the caller's */
            MHD_stop_daemon(s->daemon);
        }
        hb_free(s);
        return hb_error_sys(err, -rc, "the server of the status");
    }
    uv_timer_init(config->loop, &s->timer);
    uv_timer_init(config->loop, &s->tick);
    init_handle(s, &s->poll);
    init_handle(s, &s->timer);
    init_handle(s, &s->tick);
    uv_poll_start(&s->poll, UV_READABLE, on_poll);
    *out = s;
    return 0;
}

static void serve_close(struct serve *s, void (*closed)(void *arg), void *arg)
{
    int fd;

    if (s->is_closing)
        return;
    s->is_closing = 1;
    s->closed = closed;
    s->closed_arg = arg;
    fd = MHD_quiesce_daemon(s->daemon);
    if (fd >= 0)
        close(fd);
    if (s->streams)
        make_event(s);
    resume_streams(s);
    uv_timer_start(&s->timer, on_timer, 0, 0);
    uv_timer_start(&s->tick, on_tick, LINGER_MS, 0);
}

__attribute__((visibility("default"))) const struct serve_plugin *
serve_plugin(int abi)
{
    static const struct serve_plugin plugin = {serve_open, serve_close};

    return abi == SERVE_PLUGIN_ABI ? &plugin : NULL;
}
