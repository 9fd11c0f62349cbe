/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listener's half of a conversation with a caller, without I/O.  Nothing is
 * said to a caller before its call has proved the token, and what it may send
 * afterwards is limited.
 */
#ifndef HVD_AGENT_ROUTE_TALK_H
#define HVD_AGENT_ROUTE_TALK_H

#include "lib/agent/route/route.h"
#include "lib/agent/route/route_auth.h"

enum {
    ROUTE_ECHO_BYTES = 8,
    /* Most bytes of a caller that are echoed, and that are counted: a sender
     * that stops in time may have as much in flight as it has sent. */
    ROUTE_ECHO_MAX_BYTES = 4 * ROUTE_ECHOES * ROUTE_ECHO_BYTES,
    ROUTE_SINK_MAX_BYTES = 2 * ROUTE_BURST_BYTES,
};

struct route_talk {
    const unsigned char *token; /* borrowed */
    int host;                   /* this host's index */
    /* Sends bytes to the caller; 0, or negative to hang up. */
    int (*say)(void *arg, const void *bytes, size_t len);
    void *arg;

    /* Set by the functions below; 0 at the beginning. */
    int proved; /* the caller knows the token */
    enum route_mode mode;
    unsigned char call[ROUTE_CALL_BYTES];
    size_t got;     /* bytes of the call */
    uint64_t bytes; /* echoed or counted */
};

/* Handles received bytes; 0, or negative to hang up. */
int route_talk_take(struct route_talk *t, const char *bytes, size_t len);
/* Handles the end of what the caller sends. */
void route_talk_end(struct route_talk *t);

#endif
