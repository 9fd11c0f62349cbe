/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct route.  route.c: life; route_serve.c: the listener;
 * route_dial.c: one call to another's; route_try.c: REACH; route_measure.c:
 * MEASURE.  A connection is freed by its close callback; what it belonged to
 * may be gone by then.
 */
#ifndef HVD_AGENT_ROUTE_IMPL_H
#define HVD_AGENT_ROUTE_IMPL_H

#include "lib/agent/route.h"
#include "lib/agent/route_auth.h"

enum { ROUTE_READ_BYTES = 64 << 10, ROUTE_ECHO_BYTES = 8 };

struct route_served; /* a connection to the listener */
struct route_trial;  /* a REACH in progress */
struct route_timing; /* a MEASURE in progress */

struct route {
    uv_loop_t *loop;
    route_on_result *on_result;
    void *arg;
    unsigned char token[CONTROL_TOKEN_BYTES];
    int host; /* this one's index */
    int closed;

    int listening;
    uv_tcp_t listener;
    uv_timer_t patience; /* looks for those who take too long */
    struct route_served *oldest, *newest;
    int served_count;

    struct route_trial *trial;
    struct route_timing *timing;

    char scratch[ROUTE_READ_BYTES]; /* what is read and not kept */
};

/* ---- route_serve.c ---- */

int route_serve(struct route *r, int *port, struct hb_error *err);
void route_serve_close(struct route *r);

/* ---- route_dial.c ---- */

struct route_dial {
    uv_tcp_t tcp;
    uv_connect_t connecting;
    uv_write_t writing;
    uv_shutdown_t shutdown; /* the owner's */
    const struct route *route;
    struct route_call call;
    unsigned char out[ROUTE_CALL_BYTES];
    unsigned char in[ROUTE_ANSWER_BYTES];
    size_t got;
    uint64_t sent_ns;
    int rtt_us; /* from the call to its answer */
    int closed;
    /* Once: 0 when that host answered; it is then the owner's to read from
     * and write to.  Negative: it did not.  Either way the owner closes. */
    void (*on_answer)(struct route_dial *d, int rc);
    void *arg;
};

/* NULL when it fails at once: there is no callback. */
struct route_dial *route_dial_open(struct route *r,
                                   const struct route_call *call,
                                   const struct hb_netaddr *address, int port,
                                   void (*on_answer)(struct route_dial *, int),
                                   void *arg);
void route_dial_close(struct route_dial *d); /* NULL is fine */

/* ---- route_try.c, route_measure.c ---- */

void route_try_start(struct route *r, const struct control_route_probe *m);
void route_try_close(struct route *r);
void route_measure_start(struct route *r, const struct control_route_probe *m);
void route_measure_close(struct route *r);

#endif
