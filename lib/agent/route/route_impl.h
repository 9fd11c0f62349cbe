/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The internals of struct route.  route.c: life cycle; route_serve.c: listener;
 * route_talk.c: what it answers; route_dial.c: one outgoing call; route_try.c:
 * REACH; route_measure.c: MEASURE.  A connection is freed by its close
 * callback, when its owner may be gone.
 */
#ifndef HVD_AGENT_ROUTE_IMPL_H
#define HVD_AGENT_ROUTE_IMPL_H

#include "lib/agent/route/route.h"
#include "lib/agent/route/route_talk.h"

enum { ROUTE_READ_BYTES = 64 << 10 };

struct route_served; /* a connection to the listener */
struct route_trial;  /* a REACH in progress */
struct route_timing; /* a MEASURE in progress */

struct route {
    uv_loop_t *loop;
    route_on_result *on_result;
    void *arg;
    unsigned char token[CONTROL_TOKEN_BYTES];
    int host; /* this host's index */
    int closed;

    int listening;
    uv_tcp_t listener;
    uv_timer_t patience; /* closes served connections that take too long */
    struct route_served *oldest, *newest;
    int served_count;
    /* loop time of the current turn, and how many were accepted in it */
    uint64_t turn_ms;
    int turn_count;
    uv_timer_t hold; /* delays the next accept while a connection is pending */

    struct route_trial *trial;
    struct route_timing *timing;

    char scratch[ROUTE_READ_BYTES]; /* for bytes that are read and not kept */
};

/* ---- route_serve.c ---- */

int route_serve(struct route *r, int *port, struct hb_error *err);
void route_serve_close(struct route *r);

/* ---- route_dial.c ---- */

struct route_dial {
    uv_tcp_t tcp;
    uv_connect_t connecting;
    uv_write_t writing;
    uv_shutdown_t shutdown; /* used by the owner */
    const struct route *route;
    struct route_call call;
    unsigned char out[ROUTE_CALL_BYTES];
    unsigned char in[ROUTE_ANSWER_BYTES];
    size_t got;
    uint64_t sent_ns;
    int rtt_us; /* from the call to its answer */
    int closed;
    /* Called once.  0: the host answered, and the connection is the owner's to
     * read and write.  Negative: it did not.  In both cases the owner
     * closes. */
    void (*on_answer)(struct route_dial *d, int rc);
    void *arg;
};

/* Calls another host's listener.  NULL if that fails at once: no callback
 * follows. */
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
