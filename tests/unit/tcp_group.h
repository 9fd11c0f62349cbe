/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP group for tests: forks the members, each with a listener made
 * beforehand, and runs a body in each; without agent and shared memory.
 */
#ifndef TESTS_UNIT_TCP_GROUP_H
#define TESTS_UNIT_TCP_GROUP_H

#include "runtime/plane/tcp/tcp.h"
#include "tests/unit/forked.h"

#include <stdatomic.h>
#include <stdint.h>

enum { TCP_GROUP_MAX = 64 };

struct tcp_group {
    int n;
    /* Runs in member `me`; returns 0 if all is well. */
    int (*body)(struct tcp_group *g, int me);
    void *arg;
    int listeners[TCP_GROUP_MAX];
    struct hvd__tcp_peer peers[TCP_GROUP_MAX];
    char hosts[TCP_GROUP_MAX][16];
    struct tcp_auth auth;
    _Atomic int *flags; /* TCP_GROUP_MAX shared numbers */
    int wait_status[TCP_GROUP_MAX];
};

/* Returns the number of members that did not end with 0. */
int tcp_group_run(struct tcp_group *g);

/* In a member: returns its configuration, without deadline and agent. */
struct hvd__tcp_config tcp_group_config(const struct tcp_group *g, int me);
/* Waits until `members` members have reached a flag; does not use the group. */
void tcp_group_meet(struct tcp_group *g, int flag, int members);
/* Connects a member to the group within limit_ms. */
int tcp_group_open(struct tcp_group *g, int me, int limit_ms,
                   struct hvd__tcp **t, struct hb_error *err);

/* Begins an exchange of one byte with each member. */
void tcp_group_exchange(const struct tcp_group *g, struct hvd__tcp *t);
/* Progresses the group's operation until it is over. */
int tcp_group_finish(struct hvd__tcp *t, struct hb_error *err);

#endif
