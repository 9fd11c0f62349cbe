/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MEASURE: for each target in turn, round trips of a few bytes, then a burst in
 * one direction.  The rate is what the other end counted, divided by the time
 * until its count came back.
 *
 * Writes of the burst can end after the struct route_timing: they refer to the
 * connection, which outlives them, and check whether it is closed.
 */
#include "lib/agent/route/route_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    BURST_WRITES = 4, /* at a time, of */
    BURST_CHUNK = 256 << 10,
    COUNT_BYTES = 8,
};

struct burst_write {
    uv_write_t req; /* first */
    struct route_dial *dial;
};

struct route_timing {
    struct route *route;
    uv_timer_t timer;
    uint64_t timeout_ms;
    struct control_route_target *targets; /* one address each */
    int target_count, at;
    struct control_route_result result;

    struct route_dial *dial;
    unsigned char in[COUNT_BYTES]; /* an echo, or a count */
    size_t got;
    int samples[ROUTE_ECHOES], sample_count;
    uint64_t began_ns; /* of this round trip or burst */
    int64_t sent_bytes;
    /* of the burst: writes in progress, and whether the last was issued */
    int writes_open, all_sent;
};

/* ---- The end ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct route_timing *t = handle->data;

    for (int i = 0; i < t->target_count; i++)
        hb_free(t->targets[i].addresses);
    hb_free(t->targets);
    control_route_result_fini(&t->result);
    hb_free(t);
}

static void hang_up(struct route_timing *t)
{
    route_dial_close(t->dial);
    t->dial = NULL;
    t->got = 0;
}

void route_measure_close(struct route *r)
{
    struct route_timing *t = r->timing;

    r->timing = NULL;
    hang_up(t);
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

static void finish(struct route_timing *t)
{
    struct route *r = t->route;

    route_measure_close(r);
    r->on_result(r->arg, &t->result);
}

static void on_timeout(uv_timer_t *timer)
{
    finish(timer->data);
}

/* ---- One connection ---- */

static void on_echo_answer(struct route_dial *d, int rc);

static int dial(struct route_timing *t, enum route_mode mode,
                void (*on_answer)(struct route_dial *, int))
{
    const struct control_route_target *to = &t->targets[t->at];
    const struct route_call call = {mode, t->route->host, to->host};

    hang_up(t);
    t->dial = route_dial_open(t->route, &call, &to->addresses[0], to->port,
                              on_answer, t);
    return t->dial ? 0 : -HVD_ECLOSED;
}

static void begin_target(struct route_timing *t)
{
    t->sample_count = 0;
    while (t->at < t->target_count && dial(t, ROUTE_MODE_ECHO, on_echo_answer))
        t->at++;
    if (t->at == t->target_count)
        finish(t);
}

static void end_target(struct route_timing *t)
{
    hang_up(t);
    t->at++;
    begin_target(t);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct route_dial *d = handle->data;
    struct route_timing *t = d->arg;

    (void)suggested;
    *buf =
        uv_buf_init((char *)t->in + t->got, (unsigned)(COUNT_BYTES - t->got));
}

/* ---- The burst ---- */

static void on_count(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct route_dial *d = stream->data;
    struct route_timing *t = d->arg;
    uint64_t bytes = 0, ns = hb_now_ns() - t->began_ns;

    (void)buf;
    if (n < 0) {
        end_target(t);
        return;
    }
    t->got += (size_t)n;
    if (t->got < COUNT_BYTES)
        return;
    for (int i = 0; i < COUNT_BYTES; i++)
        bytes = bytes << 8 | t->in[i];
    if ((int64_t)bytes == t->sent_bytes)
        t->result.answers[t->result.count - 1].bytes_per_s =
            (int64_t)((double)bytes * 1e9 / (double)(ns ? ns : 1));
    end_target(t);
}

static void send_more(struct route_timing *t);

static void on_written(uv_write_t *req, int status)
{
    struct burst_write *w = (struct burst_write *)req;
    struct route_dial *d = w->dial;
    struct route_timing *t = d->arg;

    hb_free(w);
    if (d->closed)
        return;
    t->writes_open--;
    if (status < 0)
        end_target(t);
    else
        send_more(t);
}

/* Ignores a failed shutdown: it shows as the end of the reading. */
static void on_shutdown(uv_shutdown_t *req, int status)
{
    (void)req;
    (void)status;
}

static void send_more(struct route_timing *t)
{
    static char zeros[BURST_CHUNK];
    uv_stream_t *stream = (uv_stream_t *)&t->dial->tcp;
    uint64_t until = t->began_ns + ROUTE_BURST_MS * UINT64_C(1000000);

    while (t->writes_open < BURST_WRITES && t->sent_bytes < ROUTE_BURST_BYTES &&
           hb_now_ns() < until) {
        struct burst_write *w = hb_xcalloc(1, sizeof(*w));
        uv_buf_t buf = uv_buf_init(zeros, BURST_CHUNK);

        w->dial = t->dial;
        if (uv_write(&w->req, stream, &buf, 1, on_written) < 0) {
            hb_free(w);
            break;
        }
        t->writes_open++;
        t->sent_bytes += BURST_CHUNK;
    }
    if (t->writes_open == 0 && !t->all_sent) {
        t->all_sent = 1;
        uv_shutdown(&t->dial->shutdown, stream, on_shutdown);
    }
}

static void on_sink_answer(struct route_dial *d, int rc)
{
    struct route_timing *t = d->arg;

    if (rc < 0 ||
        uv_read_start((uv_stream_t *)&d->tcp, on_alloc, on_count) < 0) {
        end_target(t);
        return;
    }
    t->sent_bytes = 0;
    t->writes_open = t->all_sent = 0;
    t->began_ns = hb_now_ns();
    send_more(t);
}

/* ---- Round trips ---- */

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static void note_latency(struct route_timing *t)
{
    qsort(t->samples, (size_t)t->sample_count, sizeof(t->samples[0]), by_value);
    t->result.answers[t->result.count++] = (struct control_route_answer){
        .host = t->targets[t->at].host,
        .rtt_us = t->samples[t->sample_count / 2],
    };
}

static int ping(struct route_timing *t)
{
    char bytes[ROUTE_ECHO_BYTES] = "ping";
    uv_buf_t buf = uv_buf_init(bytes, sizeof(bytes));

    t->got = 0;
    t->began_ns = hb_now_ns();
    return uv_try_write((uv_stream_t *)&t->dial->tcp, &buf, 1) ==
                   (int)sizeof(bytes)
               ? 0
               : -HVD_ECLOSED;
}

static void on_echo(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct route_dial *d = stream->data;
    struct route_timing *t = d->arg;
    uint64_t us = (hb_now_ns() - t->began_ns) / 1000;

    (void)buf;
    if (n < 0) {
        end_target(t);
        return;
    }
    t->got += (size_t)n;
    if (t->got < ROUTE_ECHO_BYTES)
        return;
    t->samples[t->sample_count++] = us < INT_MAX ? (int)us : INT_MAX;
    if (t->sample_count < ROUTE_ECHOES) {
        if (ping(t) < 0)
            end_target(t);
        return;
    }
    note_latency(t);
    if (dial(t, ROUTE_MODE_SINK, on_sink_answer) < 0)
        end_target(t);
}

static void on_echo_answer(struct route_dial *d, int rc)
{
    struct route_timing *t = d->arg;

    if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&d->tcp, on_alloc, on_echo);
    if (rc == 0)
        rc = ping(t);
    if (rc < 0)
        end_target(t);
}

/* ---- The start ---- */

static void on_first_turn(uv_timer_t *timer)
{
    struct route_timing *t = timer->data;

    uv_timer_start(&t->timer, on_timeout, t->timeout_ms, 0);
    begin_target(t);
}

void route_measure_start(struct route *r, const struct control_route_probe *m)
{
    struct route_timing *t = hb_xcalloc(1, sizeof(*t));

    t->route = r;
    t->timeout_ms = (uint64_t)m->timeout_ms;
    t->target_count = m->count;
    t->targets = hb_xcalloc((size_t)m->count + 1, sizeof(*t->targets));
    for (int i = 0; i < m->count; i++) {
        t->targets[i] = m->targets[i];
        t->targets[i].addresses = hb_xcalloc(1, sizeof(struct hb_netaddr));
        t->targets[i].addresses[0] = m->targets[i].addresses[0];
    }
    t->result.answers =
        hb_xcalloc((size_t)m->count + 1, sizeof(*t->result.answers));
    uv_timer_init(r->loop, &t->timer);
    t->timer.data = t;
    r->timing = t;
    uv_timer_start(&t->timer, on_first_turn, 0, 0);
}
