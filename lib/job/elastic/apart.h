/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which hosts an elastic job gives up when hosts do not reach each
 * other, although hvdrun reaches them.  Pure.
 *
 * Ranks report pairs of hosts.  Hosts are given up one by one until no pair is
 * left: first one that does not answer hvdrun either, then the one that is in
 * most pairs, because its network is probably what is broken; among equals the
 * one with the fewest ranks, then the last of the plan.
 */
#ifndef HVD_JOB_ELASTIC_APART_H
#define HVD_JOB_ELASTIC_APART_H

enum { APART_PAIRS_MAX = 256 }; /* further pairs are dropped */

struct apart_pair {
    int a, b; /* hosts of the plan; a < b */
};

struct apart {
    struct apart_pair pairs[APART_PAIRS_MAX];
    int count;
};

struct apart_host {
    int is_gone;   /* it needs not be given up any more */
    int is_silent; /* it does not answer hvdrun */
    int ranks;     /* number of ranks that live there */
};

/* Adds a pair of different hosts, unless it is there. */
void apart_add(struct apart *p, int a, int b);

/* Removes the pairs of the host that is to be given up next, and those whose
 * hosts are gone.  Returns that host, with *other set to one that it does not
 * reach, or -1 if no pair is left.  `hosts` is indexed by host. */
int apart_choose(struct apart *p, const struct apart_host *hosts, int *other);

#endif
