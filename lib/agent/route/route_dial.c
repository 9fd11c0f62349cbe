/* SPDX-License-Identifier: Apache-2.0 */
/* Calling another agent's probe listener; see route_impl.h. */
#include "lib/agent/route/route_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <limits.h>

static void on_closed(uv_handle_t *handle)
{
    hb_free(handle->data);
}

void route_dial_close(struct route_dial *d)
{
    if (!d || d->closed)
        return;
    d->closed = 1;
    uv_close((uv_handle_t *)&d->tcp, on_closed);
}

static void answered(struct route_dial *d, int rc)
{
    uv_read_stop((uv_stream_t *)&d->tcp);
    d->on_answer(d, rc);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct route_dial *d = handle->data;

    (void)suggested;
    *buf = uv_buf_init((char *)d->in + d->got,
                       (unsigned)(ROUTE_ANSWER_BYTES - d->got));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct route_dial *d = stream->data;
    uint64_t us;
    int host;

    (void)buf;
    if (n < 0) {
        answered(d, -HVD_ECLOSED);
        return;
    }
    d->got += (size_t)n;
    if (d->got < ROUTE_ANSWER_BYTES)
        return;
    us = (hb_now_ns() - d->sent_ns) / 1000;
    d->rtt_us = us < INT_MAX ? (int)us : INT_MAX;
    if (route_auth_read_answer(d->route->token, d->out, d->in, &host) < 0 ||
        host != d->call.to)
        answered(d, -HVD_EPERM);
    else
        answered(d, 0);
}

/* Ignores a failed write: it shows as the end of the reading. */
static void on_written(uv_write_t *req, int status)
{
    (void)req;
    (void)status;
}

static void on_connected(uv_connect_t *req, int status)
{
    struct route_dial *d = req->data;
    uv_buf_t call = uv_buf_init((char *)d->out, ROUTE_CALL_BYTES);

    if (d->closed)
        return;
    d->sent_ns = hb_now_ns();
    if (status < 0 ||
        uv_write(&d->writing, (uv_stream_t *)&d->tcp, &call, 1, on_written) <
            0 ||
        uv_read_start((uv_stream_t *)&d->tcp, on_alloc, on_read) < 0)
        d->on_answer(d, -HVD_ECLOSED);
}

struct route_dial *route_dial_open(struct route *r,
                                   const struct route_call *call,
                                   const struct hb_netaddr *address, int port,
                                   void (*on_answer)(struct route_dial *, int),
                                   void *arg)
{
    struct route_dial *d = hb_xcalloc(1, sizeof(*d));
    struct sockaddr_storage sa;
    int rc;

    d->route = r;
    d->call = *call;
    d->on_answer = on_answer;
    d->arg = arg;
    hb_netaddr_to_sockaddr(address, (uint16_t)port, &sa);
    rc = uv_tcp_init_ex(r->loop, &d->tcp, sa.ss_family);
    if (rc < 0) {
        hb_free(d);
        return NULL;
    }
    d->tcp.data = d->connecting.data = d;
    (void)uv_tcp_nodelay(&d->tcp, 1);
    rc = route_auth_call(r->token, call, d->out);
    if (rc == 0)
        rc = uv_tcp_connect(&d->connecting, &d->tcp,
                            (const struct sockaddr *)&sa, on_connected);
    if (rc == 0)
        return d;
    route_dial_close(d);
    return NULL;
}
