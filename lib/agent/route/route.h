/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's part in finding routes: a listener that the job's other agents
 * connect to, and connecting to theirs (lib/protocol/control/control_route.h).
 *
 * Anybody can connect to the listener.  A caller that has not proved that it
 * knows the token within ROUTE_CALL_MS and 64 bytes is hung up on without a
 * word; there are at most ROUTE_SERVED_MAX of them, and one more displaces the
 * oldest.  A caller that has proved it gets what it asked for, within limits of
 * time and bytes.
 *
 * Everything runs on the loop.  No callback runs inside a call.
 */
#ifndef HVD_AGENT_ROUTE_H
#define HVD_AGENT_ROUTE_H

#include "lib/protocol/control/control_route.h"

#include <uv.h>

enum {
    ROUTE_SERVED_MAX = 256,       /* connections to the listener */
    ROUTE_CALL_MS = 2000,         /* from accept to an authenticated call */
    ROUTE_SERVE_MS = 10000,       /* from then to the end of the connection */
    ROUTE_BURST_MS = 200,         /* limits of a bandwidth measurement: */
    ROUTE_BURST_BYTES = 32 << 20, /* whichever is reached first */
    ROUTE_ECHOES = 15,
    /* Time left after a host's first answer: for its better addresses, whose
     * network may need to find a way first, and for its other addresses. */
    ROUTE_BETTER_MS = 50,
    ROUTE_OTHERS_MS = 10,
};

struct route;

/* Called once per route_probe; `m` is borrowed. */
typedef void route_on_result(void *arg, const struct control_route_result *m);

struct route *route_new(uv_loop_t *loop, route_on_result *on_result, void *arg);

/* Opens the listener, for IPv4 and IPv6 where available.  0 and *port, or
 * negative with err set. */
int route_listen(struct route *r, const struct control_route_listen *m,
                 int *port, struct hb_error *err);

/* Tries the targets.  0, or -HVD_EPROTO while a probe is in progress.  A REACH
 * ends when each address has answered, failed or exceeded the times above, a
 * MEASURE when everything is measured; both at the time-out at the latest. */
int route_probe(struct route *r, const struct control_route_probe *m,
                struct hb_error *err);

/* Closes everything; no callback follows.  `r` may be NULL or closed already.
 * Call route_free after the loop has run. */
void route_close(struct route *r);
void route_free(struct route *r);

#endif
