/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which hosts an elastic job gives up when hosts do not reach each
 * other, although hvdrun reaches them.  Pure.
 *
 * Ranks report pairs of hosts.  Hosts are given up one by one until no pair is
 * left: first a host that does not answer hvdrun either, then one without which
 * enough ranks are left, then the host that is in most pairs, because its
 * network is probably what is broken; among equals the host with the fewest
 * ranks, then the host that comes last in the plan.
 *
 * Pairs of which the other host was given up earlier count, too.  So a false
 * report can have one other host given up; a second one makes the host that
 * sends it go, unless too few ranks would be left.
 */
#ifndef HVD_JOB_ELASTIC_APART_H
#define HVD_JOB_ELASTIC_APART_H

enum { APART_PAIRS_MAX = 256 }; /* further pairs are dropped */

struct apart_host {
    int is_gone;   /* it need not be given up any more */
    int is_silent; /* it does not answer hvdrun */
    int is_needed; /* without its ranks there are too few */
    int ranks;     /* number of ranks that live there */
};

struct apart_pair {
    int a, b; /* hosts of the plan; a < b */
};

struct apart {
    struct apart_pair pairs[APART_PAIRS_MAX];
    int count;
    int *survived; /* by host: pairs whose other host, not silent, was given up
                    */
};

/* Prepares for hosts below host_cap. */
void apart_init(struct apart *p, int host_cap);
void apart_fini(struct apart *p);

/* Adds a pair of different hosts, unless it is there. */
void apart_add(struct apart *p, int a, int b);

/* Removes the pairs of the host that is to be given up next, and those whose
 * hosts are gone.  Returns that host, with *other set to one that it does not
 * reach, or -1 if no pair is left.  `hosts` is indexed by host. */
int apart_choose(struct apart *p, const struct apart_host *hosts, int *other);

#endif
