/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which address one host uses to reach another.  Pure.
 *
 * What decides is what connected when hosts tried each other: all pairs of
 * up to ROUTE_ALL_PAIRS hosts, above that each host's neighbours in a ring
 * and host 0.  Names of interfaces mean nothing, and an address that several
 * hosts have (docker0, virbr0) never connects to the right one.
 *
 * For each host the best address that everybody who tried it reached; if
 * there is none, the best for each pair.  Best: a real device before a
 * virtual one, then the faster (the slower of both ends counts), then one in
 * a network of the caller's own, then IPv4, then the host's own order.
 * Hosts that are one machine reach each other over loopback and are not
 * tried.
 */
#ifndef HVD_JOB_ROUTE_CHOICE_H
#define HVD_JOB_ROUTE_CHOICE_H

#include "lib/protocol/control_route.h"

enum {
    ROUTE_ALL_PAIRS = 32,     /* hosts */
    ROUTE_RING = 8,           /* neighbours tried when there are more */
    ROUTE_CANDIDATES_MAX = 8, /* addresses tried per pair */
};

/* Host `to`, as tried by another. */
struct route_try {
    int to;
    uint64_t reached; /* bit: index of the interface in `to`'s list */
    int rtt_us;       /* over the last address that answered */
    int64_t bytes_per_s;
};

struct route_host {
    int machine; /* hosts with one number share it; 0: not known */
    const struct control_interfaces *interfaces;
    uint64_t usable; /* bit per interface: up, and the user wants it */
    int absent;      /* the host is gone: neither tries nor is tried */
    struct route_try tries[ROUTE_ALL_PAIRS];
    int try_count;
    /* By route_choose: the interface that everybody reached, or -1, and the
     * one that most did, or -1. */
    int common, popular;
};

struct route_choice {
    struct route_host *hosts;
    int count;
};

/* The hosts that `from` should try, ascending from its neighbour on; returns
 * how many. */
int route_targets(int host_count, int from, int targets[ROUTE_ALL_PAIRS]);

/* What a pair should try, best first, as indexes into to's interfaces. */
int route_candidates(const struct route_choice *c, int from, int to,
                     int candidates[ROUTE_CANDIDATES_MAX]);

int route_same_machine(const struct route_choice *c, int a, int b);
const struct route_try *route_find_try(const struct route_choice *c, int from,
                                       int to);

/* After the tries: fills in common and popular. */
void route_choose(struct route_choice *c);
/* Then: the interface of `to` by which `from` reaches it, or -1.  `from` and
 * `to` may be one: common. */
int route_pick(const struct route_choice *c, int from, int to);

#endif
