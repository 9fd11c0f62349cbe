/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the ranks on other hosts: who they are, where they listen, and
 * this rank's connections to those of its lane (runtime/plane/map.h).
 *
 * Every rank listens, contributes {host, port} to a fence of the epoch, and
 * so learns all others'; those without a lane then close their listener
 * again, the others connect their lane.
 */
#ifndef HVD_CORE_HOSTS_H
#define HVD_CORE_HOSTS_H

#include "runtime/core/agent_client.h"
#include "runtime/plane/map.h"
#include "runtime/plane/tcp.h"

struct hvd__hosts {
    struct hvd__agent *agent; /* borrowed */
    struct hvd__map map;
    struct hvd__tcp *tcp; /* NULL: this rank has no lane */
};

/* 0, or as hvd__agent_fence and hvd__tcp_open, with err set and nothing
 * held. */
int hvd__hosts_join(struct hvd__hosts *h, struct hvd__agent *agent,
                    const struct worker_welcome *w, uint32_t epoch,
                    uint64_t deadline_ns, struct hb_error *err);
/* For planes, with the struct hvd__hosts as arg: whether the job is over,
 * and the name of a rank's host. */
int hvd__hosts_lost(void *arg, struct hb_error *err);
const char *hvd__hosts_name(void *arg, uint32_t rank);

void hvd__hosts_fini(struct hvd__hosts *h); /* idempotent; not h->tcp */

#endif
