/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's part in finding routes: a listener that other agents of the
 * job try, and the trying of theirs (lib/protocol/control_route.h).
 *
 * Everybody can connect to the listener.  Who has not proved the token
 * within ROUTE_CALL_MS and 64 bytes is hung up on without a word; of those
 * there are at most ROUTE_SERVED_MAX, and when one more comes the oldest
 * goes.  Who has proved it gets what it asked for within limits of time and
 * bytes.
 *
 * All is on the loop.  Callbacks never come from inside a call.
 */
#ifndef HVD_AGENT_ROUTE_H
#define HVD_AGENT_ROUTE_H

#include "lib/protocol/control_route.h"

#include <uv.h>

enum {
    ROUTE_SERVED_MAX = 256,       /* connections to the listener */
    ROUTE_CALL_MS = 2000,         /* from connecting to a proved call */
    ROUTE_SERVE_MS = 10000,       /* from there to the end */
    ROUTE_BURST_MS = 200,         /* of a bandwidth measurement, */
    ROUTE_BURST_BYTES = 32 << 20, /* or this */
    ROUTE_ECHOES = 15,
    /* After the first answer of a host: for its better addresses, whose
     * network may need to find a way first, and for its other ones. */
    ROUTE_BETTER_MS = 50,
    ROUTE_OTHERS_MS = 10,
};

struct route;

/* Called once per route_probe; the result is borrowed. */
typedef void route_on_result(void *arg, const struct control_route_result *m);

struct route *route_new(uv_loop_t *loop, route_on_result *on_result, void *arg);

/* Opens the listener, for IPv4 and IPv6 where there are both. */
int route_listen(struct route *r, const struct control_route_listen *m,
                 int *port, struct hb_error *err);

/* Tries the targets; one probe at a time (-HVD_EPROTO).  A REACH ends when
 * all addresses have answered or failed, or have had the time above; a
 * MEASURE when all is measured; either at the time-out at the latest. */
int route_probe(struct route *r, const struct control_route_probe *m,
                struct hb_error *err);

/* Closes everything; no callback follows.  NULL is fine, and so is a second
 * call.  The memory is released by route_free when the loop has run. */
void route_close(struct route *r);
void route_free(struct route *r);

#endif
