/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of struct routes: routes.c runs the round, routes_result.c uses
 * its results. */
#ifndef HVD_JOB_ROUTES_IMPL_H
#define HVD_JOB_ROUTES_IMPL_H

#include "lib/job/route/route_choice.h"
#include "lib/job/route/route_filter.h"
#include "lib/job/route/routes.h"

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
    int port;                   /* of its probe listener; 0: not known yet */
    int waiting;                /* its ROUTE_RESULT has not come */
    int measuring, measured_by; /* the other host, or -1 */
};

struct routes {
    struct routes_config config; /* config.names is NULL */
    struct route_filter filter;
    char *list; /* network_interfaces as given */
    unsigned char token[CONTROL_TOKEN_BYTES];
    int has_token, reserved_port;
    enum routes_phase phase;
    struct routes_host *hosts;
    struct route_choice choice;
    unsigned char *to_measure; /* [from * host_count + to] */
};

#endif
