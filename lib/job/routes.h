/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over which addresses the hosts of a job, or of a survey, reach each other.
 *
 * Agents report their interfaces in HELLO and try each other's addresses
 * (lib/protocol/control_route.h); what connected decides, never a name
 * (route_choice.h).  One round: the owner of the connections hands in what
 * agents say and sends what it is given; nothing here waits or reads.
 *
 *     routes_new
 *     routes_hello     for each host's HELLO         sends ROUTE_LISTEN
 *     routes_begin     when all have said it         sends ROUTE_PROBE
 *     routes_frame     for ROUTE_PORT, ROUTE_RESULT
 *     routes_finish    once one of these gave 1
 *
 * A host that went away is told by routes_absent, where that does not end
 * everything: its pairs are left out.  Agents bound their own time, so a
 * round ends unless a host stops answering.
 */
#ifndef HVD_JOB_ROUTES_H
#define HVD_JOB_ROUTES_H

#include "lib/base/strv.h"
#include "lib/protocol/control.h"

struct routes;

struct routes_config {
    int host_count;
    const char *const *names; /* [host_count]; copied */
    /* --network-interfaces: names and CIDRs, comma-separated; or NULL */
    const char *network_interfaces;
    /* 1: also the latency and the bandwidth of every pair, measured between
     * disjoint pairs at a time; for doctor.  All pairs are tried, then, and
     * those that cannot reach each other are no failure. */
    int measure;
    int reserve_port; /* keep a MASTER_PORT on host 0 */
    /* A frame for that host's agent.  Failures are told elsewhere. */
    void (*send)(void *arg, int host, const struct hb_buf *frame);
    void *arg;
};

/* 0, or -HVD_EINVAL for a list of networks that is none, with err set. */
int routes_new(const struct routes_config *config, struct routes **out,
               struct hb_error *err);
void routes_free(struct routes *r); /* NULL is fine */

/* 0, or -HVD_EINVAL with err set for a list of networks that is none. */
int routes_check_networks(const char *network_interfaces, struct hb_error *err);

/* These return 1 when the round is complete, which may be at once, 0 when
 * not yet, and negative with err set: routes_begin -HVD_EINVAL when the list
 * of networks matches nothing on a host, -HVD_ESYSTEM for want of
 * randomness; routes_frame -HVD_EPROTO when an agent breaks the protocol.
 * After 1 they are not called any more. */
int routes_hello(struct routes *r, int host, const struct control_hello *m,
                 struct hb_error *err);
int routes_begin(struct routes *r, struct hb_error *err);
int routes_frame(struct routes *r, int host, const struct frame *f,
                 struct hb_error *err);
int routes_absent(struct routes *r, int host);

/* How many hosts' answers are awaited, and the first of them or -1. */
int routes_waiting(const struct routes *r, int *first);

/* Chooses.  0, or -HVD_ENOENT with err set (one line that names both hosts
 * and what was tried) when a pair has no way; never that when measuring. */
int routes_finish(struct routes *r, struct hb_error *err);

/* ---- After routes_finish ---- */

/* LAUNCH.peers of that host: index is the host to reach.  Its own entry is
 * where to listen: the address that all others use, "" when they use
 * several: listen on any.  Appends host_count strings. */
int routes_peers(const struct routes *r, int host, struct hb_strv *peers);

/* Adds to `env`, a rank's of that host, what follows from the choice:
 * MASTER_ADDR and MASTER_PORT (several hosts), HOROVOD_GLOO_IFACE,
 * NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.  What `common`, the environment of
 * all ranks, has already is the user's and stays. */
int routes_env(const struct routes *r, int host, const struct hb_strv *common,
               struct hb_strv *env);

struct routes_pair {
    int reached;      /* 1: connects; 0: does not; -1: not tried */
    int same_machine; /* two names of one: nothing was measured */
    struct hb_netaddr address;
    const char *name;    /* of the interface there; borrowed */
    int rtt_us;          /* median; 0: unknown */
    int64_t bytes_per_s; /* 0: unknown */
};

/* From host `from` to host `to`, for the matrix. */
void routes_pair(const struct routes *r, int from, int to,
                 struct routes_pair *out);

/* That host's interfaces, as it reported them; borrowed. */
const struct control_interfaces *routes_interfaces(const struct routes *r,
                                                   int host);

#endif
