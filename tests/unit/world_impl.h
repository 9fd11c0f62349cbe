/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the test world's agent, which plays the agents of all hosts. */
#ifndef TESTS_UNIT_WORLD_IMPL_H
#define TESTS_UNIT_WORLD_IMPL_H

#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "tests/unit/forked.h"
#include "tests/unit/world.h"

#include <sys/types.h>

enum { CONNS_MAX = 4 * WORLD_RANKS_MAX };

struct conn {
    int fd;
    struct hb_buf in;
    int rank;
    uint32_t joined; /* epoch asked for and not yet got, or 0 */
    uint64_t segment_bytes;
    /* fence that it waits for, or "" */
    char scope[WORKER_SCOPE_MAX];
    unsigned char value[WORKER_VALUE_MAX];
    size_t value_len;
};

/* One per host of the world. */
struct host {
    int size;
    int ranks[WORLD_RANKS_MAX];
    struct segment_head *head; /* of the latest epoch */
    uint64_t head_bytes;
};

struct agent {
    struct world *world;
    struct host hosts[WORLD_RANKS_MAX];
    int host_count;
    int listener;
    char address[64]; /* as in HVD_RENDEZVOUS */
    struct conn conns[CONNS_MAX];
    int conn_count;
    pid_t pids[WORLD_RANKS_MAX];
    int pidfds[WORLD_RANKS_MAX];
    int alive;
};

/* Sends a message, with a descriptor unless fd is negative. */
void world_say(const struct conn *c, const struct hb_buf *out, int fd);

/* ---- world_hosts.c: requests in worlds on several hosts only ---- */
void world_answer_routes(const struct agent *a, const struct conn *c);
void world_hear_fence(struct agent *a, struct conn *c, const struct frame *f);

#endif
