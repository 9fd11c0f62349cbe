/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which address one host uses to reach another.  Pure.
 *
 * The choice follows what connected when hosts tried each other: all pairs of
 * up to ROUTE_ALL_PAIRS hosts; with more, each host's neighbours in a ring, and
 * host 0.  Names of interfaces mean nothing, and an address that several hosts
 * have (docker0, virbr0) never connects to the right one.
 *
 * A host gets the best address that all who tried it reached; if there is none,
 * the best for each pair.  Best is, in this order: hardware before virtual, the
 * faster (the slower end counts), a network that the caller is in, IPv4, the
 * host's own order.  Hosts on one machine reach each other over loopback and
 * are not tried.
 */
#ifndef HVD_JOB_ROUTE_CHOICE_H
#define HVD_JOB_ROUTE_CHOICE_H

#include "lib/protocol/control/control_route.h"

enum {
    ROUTE_ALL_PAIRS = 32,     /* up to so many hosts, all pairs */
    ROUTE_RING = 8,           /* with more hosts: neighbours tried */
    ROUTE_CANDIDATES_MAX = 8, /* addresses tried per pair */
};

/* The result of trying host `to`. */
struct route_try {
    int to;
    uint64_t reached; /* bit i: reached by interface i of `to` */
    int rtt_us;       /* over the last address that answered */
    int64_t bytes_per_s;
};

struct route_host {
    int machine; /* equal for hosts on one machine; 0: unknown */
    const struct control_interfaces *interfaces;
    uint64_t usable; /* bit i: interface i is up and allowed by the user */
    int absent;      /* the host is gone and takes no part */
    struct route_try tries[ROUTE_ALL_PAIRS];
    int try_count;
    /* Set by route_choose: the best interface that all reached, and the best of
     * those that most reached; -1: none. */
    int common, popular;
};

struct route_choice {
    struct route_host *hosts;
    int count;
};

/* Lists the hosts that `from` should try, ascending from its neighbour on;
 * returns how many. */
int route_targets(int host_count, int from, int targets[ROUTE_ALL_PAIRS]);

/* Lists the interfaces of `to` that `from` should try, best first, as indexes;
 * returns how many. */
int route_candidates(const struct route_choice *c, int from, int to,
                     int candidates[ROUTE_CANDIDATES_MAX]);

int route_same_machine(const struct route_choice *c, int a, int b);
const struct route_try *route_find_try(const struct route_choice *c, int from,
                                       int to);

/* Sets common and popular of each host, after the tries. */
void route_choose(struct route_choice *c);
/* Returns the interface of `to` by which `from` reaches it, or -1, after
 * route_choose.  If `from` is `to`: its common one. */
int route_pick(const struct route_choice *c, int from, int to);

#endif
