/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over which addresses the hosts of a job, or of a survey, reach each other.
 *
 * Agents report their interfaces in HELLO and try each other's addresses
 * (lib/protocol/control/control_route.h); what connected decides, never a name
 * (route_choice.h).  The owner of the connections passes messages in and sends
 * frames out; nothing here waits or reads.  One round:
 *
 *     routes_new
 *     routes_hello     for each host's HELLO         sends ROUTE_LISTEN
 *     routes_begin     after the last HELLO          sends ROUTE_PROBE
 *     routes_frame     for ROUTE_PORT, ROUTE_RESULT
 *     routes_finish    once one of these returned 1
 *
 * routes_absent leaves out a host that went away, where the owner continues
 * without it.  Agents bound their own time, so a round ends unless a host stops
 * answering.
 */
#ifndef HVD_JOB_ROUTES_H
#define HVD_JOB_ROUTES_H

#include "lib/base/strv.h"
#include "lib/protocol/control/control.h"

struct routes;

struct routes_config {
    int host_count;
    const char *const *names; /* [host_count]; copied */
    /* --network-interfaces: names and CIDRs, comma-separated; or NULL */
    const char *network_interfaces;
    /* 1: also measures latency and bandwidth, of disjoint pairs at a time; for
     * doctor.  All pairs are tried then, and a pair without a route is not a
     * failure. */
    int measure;
    int reserve_port; /* keep a MASTER_PORT on host 0 */
    /* Sends a frame to that host's agent.  It reports failures elsewhere. */
    void (*send)(void *arg, int host, const struct hb_buf *frame);
    void *arg;
};

/* Creates *out.  0, or -HVD_EINVAL with err set for a malformed
 * network_interfaces. */
int routes_new(const struct routes_config *config, struct routes **out,
               struct hb_error *err);
void routes_free(struct routes *r); /* NULL is fine */

/* Checks network_interfaces.  0, or -HVD_EINVAL with err set. */
int routes_check_networks(const char *network_interfaces, struct hb_error *err);

/* Takes what a host has sent, begins the round, or notes that a host is absent.
 * Each returns
 * - 1: the round is complete (do not call them any more),
 * - 0: it is not,
 * - negative with err set: routes_begin -HVD_EINVAL if network_interfaces
 *   matches nothing on a host; routes_hello -HVD_ESYSTEM if there is no
 *   randomness, -HVD_EPROTO for a second HELLO; routes_frame -HVD_EPROTO if an
 *   agent breaks the protocol. */
int routes_hello(struct routes *r, int host, const struct control_hello *m,
                 struct hb_error *err);
int routes_begin(struct routes *r, struct hb_error *err);
int routes_frame(struct routes *r, int host, const struct frame *f,
                 struct hb_error *err);
int routes_absent(struct routes *r, int host);

/* Returns how many hosts have not answered; *first is the first of them or
 * -1. */
int routes_waiting(const struct routes *r, int *first);

/* Chooses the routes.  0, or -HVD_ENOENT with a line in err that names both
 * hosts and the addresses tried, if a pair has no route (never when
 * measuring). */
int routes_finish(struct routes *r, struct hb_error *err);

/* Returns, after routes_finish has failed, the host of the pair in question
 * that `may_leave` allows to be left out (routes_absent; then routes_finish may
 * be called again), or -1.  If it may be either, the one that fails more often.
 */
int routes_culprit(const struct routes *r,
                   int (*may_leave)(void *arg, int host), void *arg);

/* ---- After routes_finish ---- */

/* Appends LAUNCH.peers of `host`: for each host, the address to reach it by.
 * Its own entry is the address to listen on: the one that all others use, or ""
 * (any address) if they use several. */
int routes_peers(const struct routes *r, int host, struct hb_strv *peers);

/* Returns whether routes_peers gives both hosts the same. */
int routes_same_peers(const struct routes *r, int a, int b);

/* Adds to `env`, of a rank on that host, what follows from the choice:
 * MASTER_ADDR and MASTER_PORT (several hosts), HOROVOD_GLOO_IFACE,
 * NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME; not those that the user has set in
 * `common`, the environment of all ranks. */
int routes_env(const struct routes *r, int host, const struct hb_strv *common,
               struct hb_strv *env);

struct routes_pair {
    int reached;      /* 1: connects; 0: does not; -1: not tried */
    int same_machine; /* one machine: nothing was measured */
    struct hb_netaddr address;
    const char *name;    /* of the interface on `to`; borrowed */
    int rtt_us;          /* median; 0: unknown */
    int64_t bytes_per_s; /* 0: unknown */
};

/* Describes the route from host `from` to host `to`. */
void routes_pair(const struct routes *r, int from, int to,
                 struct routes_pair *out);

#endif
