/* SPDX-License-Identifier: Apache-2.0 */
/* The life cycle of struct route; see route.h. */
#include "lib/agent/route/route_impl.h"

#include "lib/base/alloc.h"

#include <string.h>

struct route *route_new(uv_loop_t *loop, route_on_result *on_result, void *arg)
{
    struct route *r = hb_xcalloc(1, sizeof(*r));

    r->loop = loop;
    r->on_result = on_result;
    r->arg = arg;
    return r;
}

int route_listen(struct route *r, const struct control_route_listen *m,
                 int *port, struct hb_error *err)
{
    if (r->listening || r->closed)
        return hb_error_set(err, HVD_EPROTO, "a second ROUTE_LISTEN");
    memcpy(r->token, m->token, sizeof(r->token));
    r->host = m->host;
    return route_serve(r, port, err);
}

int route_probe(struct route *r, const struct control_route_probe *m,
                struct hb_error *err)
{
    if (!r->listening || r->closed || r->trial || r->timing)
        return hb_error_set(err, HVD_EPROTO, "a ROUTE_PROBE out of order");
    if (m->what == CONTROL_PROBE_MEASURE)
        route_measure_start(r, m);
    else
        route_try_start(r, m);
    return 0;
}

void route_close(struct route *r)
{
    if (!r || r->closed)
        return;
    r->closed = 1;
    if (r->listening)
        route_serve_close(r);
    if (r->trial)
        route_try_close(r);
    if (r->timing)
        route_measure_close(r);
    explicit_bzero(r->token, sizeof(r->token));
}

void route_free(struct route *r)
{
    hb_free(r);
}
