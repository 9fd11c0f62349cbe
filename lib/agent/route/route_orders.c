/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun's orders about routes: between HELLO and LAUNCH and, in elastic jobs,
 * when hosts are added. */
#include "lib/agent/agent_impl.h"

#include "lib/agent/port.h"
#include "lib/base/alloc.h"

static void on_result(void *arg, const struct control_route_result *m)
{
    struct agent *a = arg;

    if (a->gone)
        return;
    control_encode_route_result(&a->link.out, m);
    link_flush(&a->link);
}

static void fail(struct agent *a, const struct hb_error *err)
{
    a->failure.exit_code = 125;
    a->failure.text = hb_xstrdup(err->text);
    agent_post(a, AGENT_LAUNCH_FAILED);
}

/* Listens for other hosts' probes; reports a failure of the system as a failed
 * launch. */
static void listen_for(struct agent *a, const struct control_route_listen *m)
{
    struct control_route_port port = {0};
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    /* The loop has run since the one before last was closed. */
    route_close(a->route);
    route_free(a->old_route);
    a->old_route = a->route;
    a->route = route_new(a->config.loop, on_result, a);
    rc = route_listen(a->route, m, &port.port, &err);
    if (rc == 0 && m->reserve_port)
        rc = port_reserve(&a->port_fd, &port.reserved, &err);
    if (rc < 0) {
        fail(a, &err);
        return;
    }
    control_encode_route_port(&a->link.out, &port);
    link_flush(&a->link);
}

int agent_on_route_listen(struct agent *a, const struct frame *f,
                          struct hb_error *err)
{
    struct control_route_listen m;
    int rc = control_decode_route_listen(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (a->job_held ? !a->job.spec.elastic : a->route != NULL)
        rc = hb_error_set(err, HVD_EPROTO, "a second ROUTE_LISTEN");
    else
        listen_for(a, &m);
    control_route_listen_fini(&m);
    return rc;
}

int agent_on_route_probe(struct agent *a, const struct frame *f,
                         struct hb_error *err)
{
    struct control_route_probe m;
    int rc = control_decode_route_probe(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (!a->route)
        rc = hb_error_set(err, HVD_EPROTO, "a ROUTE_PROBE out of order");
    else
        rc = route_probe(a->route, &m, err);
    control_route_probe_fini(&m);
    return rc;
}
