/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct routes: routes.c has the round, routes_result.c what
 * comes of it. */
#ifndef HVD_JOB_ROUTES_IMPL_H
#define HVD_JOB_ROUTES_IMPL_H

#include "lib/job/route_choice.h"
#include "lib/job/route_filter.h"
#include "lib/job/routes.h"

enum routes_phase {
    ROUTES_HELLO, /* until routes_begin */
    ROUTES_PORTS, /* listeners open */
    ROUTES_REACH, /* hosts try each other */
    ROUTES_MEASURE,
    ROUTES_DONE,
};

struct routes_host {
    char *name, *machine;
    struct control_interfaces interfaces;
    int port;                   /* of its probe listener; 0: not yet */
    int waiting;                /* a ROUTE_RESULT is due */
    int measuring, measured_by; /* -1, or the other end */
};

struct routes {
    struct routes_config config; /* without names */
    struct route_filter filter;
    char *list; /* of the filter, as given */
    unsigned char token[CONTROL_TOKEN_BYTES];
    int has_token, reserved_port;
    enum routes_phase phase;
    struct routes_host *hosts;
    struct route_choice choice;
    unsigned char *to_measure; /* [host * host_count + host] */
};

#endif
