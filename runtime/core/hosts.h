/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the ranks on other hosts: who they are, where they listen, and
 * this rank's connections to those of its lane (runtime/plane/map.h).
 *
 * Every rank listens, contributes {host, port} to a fence of the epoch, and
 * so learns all others'; those without a lane then close their listener
 * again, the others connect their lane.  A process set does the same later,
 * with connections of its own; there the world's engine takes the place of
 * the fence.
 *
 * HVD_FORCE_TCP=1: every rank is a host of its own, also where it shares one
 * with others, so that everything goes over TCP.
 */
#ifndef HVD_CORE_HOSTS_H
#define HVD_CORE_HOSTS_H

#include "runtime/core/agent_client.h"
#include "runtime/plane/map.h"
#include "runtime/plane/tcp.h"

struct hvd__hosts {
    struct hvd__agent *agent; /* borrowed */
    struct hvd__map map;
    struct hvd__tcp *tcp; /* NULL: this rank has no lane; who makes a plane of
                             it owns it */
    /* Of a world, for its process sets. */
    uint32_t rank;
    struct tcp_auth auth;
    char (*addresses)[WORKER_ADDRESS_MAX]; /* [map.hosts] */
    uint32_t subsets; /* tried so far, on all ranks alike */
};

/* Whether HVD_FORCE_TCP asks for TCP on one host: 1, 0, -HVD_EINVAL. */
int hvd__hosts_forced(struct hb_error *err);

/* 0, or as hvd__agent_fence and hvd__tcp_open, with err set and nothing
 * held. */
int hvd__hosts_join(struct hvd__hosts *h, struct hvd__agent *agent,
                    const struct worker_welcome *w, uint32_t epoch,
                    uint64_t deadline_ns, struct hb_error *err);

/* Some ranks of a world that is on several hosts. */
struct hvd__subset {
    struct hvd__hosts *world;
    const int *ranks; /* n of the world, ascending; the same everywhere */
    int n;
    uint64_t deadline_ns;
    /* An allgather over the world: `len` bytes of each rank, by rank, into
     * all; NULL: they are not wanted.  0, or negative with err set, and then
     * on every rank. */
    int (*exchange)(void *arg, const void *mine, size_t len, void *all,
                    struct hb_error *err);
    void *arg;
};

/* On how many of the world's hosts those ranks are; with 1, they need no
 * hosts. */
int hvd__subset_hosts(const struct hvd__subset *s);

/*
 * Connects the ranks of a subset on several hosts.  Every rank of the world
 * calls it, member or not, in the same order: it exchanges once.  h->map is
 * of the members, numbered 0 .. n - 1, and on members only; h does not need
 * the world's any more.
 *
 * 0, or negative with err set and nothing held: what exchange gave; on all
 * ranks alike when one of them could not listen; as hvd__tcp_open on those
 * whose connections failed, while others may have succeeded.
 */
int hvd__hosts_subset(struct hvd__hosts *h, const struct hvd__subset *s,
                      struct hb_error *err);

/* For planes, with the struct hvd__hosts as arg: whether the job is over,
 * and the name of a world rank's host. */
int hvd__hosts_lost(void *arg, struct hb_error *err);
const char *hvd__hosts_name(void *arg, uint32_t rank);

void hvd__hosts_fini(struct hvd__hosts *h); /* idempotent; not h->tcp */

#endif
