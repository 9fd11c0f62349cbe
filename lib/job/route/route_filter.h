/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --network-interfaces: which addresses of a host may be used.
 *
 * A list of names ("eth0"), networks ("10.1.0.0/16", "fd00::/8") and addresses,
 * separated by commas.  One list serves all hosts, whose interface names may
 * differ: an address may be used if any item matches it.  Pure.
 */
#ifndef HVD_JOB_ROUTE_FILTER_H
#define HVD_JOB_ROUTE_FILTER_H

#include "lib/protocol/control/control_route.h"

struct route_filter_item {
    char *name; /* NULL: a network */
    struct hb_netaddr net;
    int prefix;
};

struct route_filter {
    struct route_filter_item *items;
    int count; /* 0: all addresses match */
};

/* Parses `list`; NULL gives a filter that matches everything.  0, or
 * -HVD_EINVAL with err set and *f empty. */
int route_filter_parse(const char *list, struct route_filter *f,
                       struct hb_error *err);
void route_filter_fini(struct route_filter *f);
int route_filter_match(const struct route_filter *f,
                       const struct control_interface *i);

#endif
