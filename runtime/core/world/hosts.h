/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the ranks on other hosts: who they are, where they listen, and connects
 * this rank to those of its lane (runtime/plane/hier/map.h).
 *
 * Every rank listens, contributes {host, port} to a fence of the epoch, and so
 * learns those of all others.  Ranks without a lane then close their listener;
 * the others connect their lane.  A process set later does the same with
 * connections of its own, exchanging through the world's engine instead of a
 * fence.
 *
 * HVD_FORCE_TCP=1 makes every rank a host of its own, even where it shares a
 * host with others, so that everything goes over TCP.
 */
#ifndef HVD_CORE_HOSTS_H
#define HVD_CORE_HOSTS_H

#include "runtime/core/world/agent_client.h"
#include "runtime/plane/hier/map.h"
#include "runtime/plane/tcp/tcp.h"

struct hvd__hosts {
    struct hvd__agent *agent; /* borrowed */
    struct hvd__map map;
    struct hvd__tcp *tcp; /* NULL: no lane; the plane made of it frees it */
    /* Set in the world only, for connecting its process sets. */
    uint32_t rank;
    struct tcp_auth auth;
    char (*addresses)[WORKER_ADDRESS_MAX]; /* [map.hosts] */
    uint32_t subsets;    /* sets connected or tried so far; the same on all
                            ranks */
    uint32_t generation; /* of WELCOME */
    uint32_t silence_ms; /* HVD_HEARTBEAT */
};

/* Reads HVD_FORCE_TCP: 1, 0, or -HVD_EINVAL with err set. */
int hvd__hosts_forced(struct hb_error *err);

/* Finds and connects the world's ranks.  Returns 0, or as hvd__agent_fence and
 * hvd__tcp_open, with err set and nothing held. */
int hvd__hosts_join(struct hvd__hosts *h, struct hvd__agent *agent,
                    const struct worker_welcome *w, uint32_t epoch,
                    uint64_t deadline_ns, struct hb_error *err);

/* The members of a process set in a world on several hosts. */
struct hvd__subset {
    struct hvd__hosts *world;
    const int *ranks; /* n world ranks, ascending; the same on all ranks */
    int n;
    uint64_t deadline_ns;
    uint32_t group; /* tells its connections from those of other sets that
                       its members make alone; 0: all ranks make it */
    /* Allgathers `len` bytes of each rank of the world into `all`, by rank; all
     * NULL: takes part but discards the result.  Returns 0, or negative with
     * err set, and then on every rank. */
    int (*exchange)(void *arg, const void *mine, size_t len, void *all,
                    struct hb_error *err);
    void *arg;
};

/* Returns on how many hosts those ranks are; if on 1, they need no hosts. */
int hvd__subset_hosts(const struct hvd__subset *s);

/*
 * Connects the ranks of a subset on several hosts.  Every rank of the world
 * calls it, member or not, in the same order, since it makes one exchange; if
 * `group` is set, only the members.
 * Members get h->map, in which they are numbered 0 .. n - 1.  h does not depend
 * on the world's hosts afterwards.
 *
 * Returns 0, or negative with err set and nothing held:
 *   what exchange returned;
 *   on all ranks alike, the status of a rank that could not listen;
 *   as hvd__tcp_open where connecting failed; other ranks may have succeeded.
 */
int hvd__hosts_subset(struct hvd__hosts *h, const struct hvd__subset *s,
                      struct hb_error *err);

/* Returns, to planes, whether the job is over (0, or negative with err set), or
 * the name of a world rank's host; arg is a struct hvd__hosts. */
int hvd__hosts_lost(void *arg, struct hb_error *err);
const char *hvd__hosts_name(void *arg, uint32_t rank);

void hvd__hosts_fini(struct hvd__hosts *h); /* idempotent; not h->tcp */

#endif
