/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for local ranks and for connections at once.
 *
 * A leader that has nothing to do until a peer begins something sleeps in
 * shared memory, on a futex, and cannot look at sockets meanwhile.  A thread
 * does that for it: armed, it sleeps in poll on the leader's connections,
 * and when one of them has something, it interrupts the sleeper once.  It is
 * started by the first arming, so most programs never have it, and it holds
 * no data: what came is for the leader to see.
 */
#ifndef HVD_PLANE_HIER_WATCH_H
#define HVD_PLANE_HIER_WATCH_H

#include "runtime/plane/plane.h"
#include "runtime/plane/tcp.h"

#include <pthread.h>

struct hier_watch {
    struct hvd__plane *sleeper; /* borrowed */
    int epoll_fd, stop_fd;      /* -1: not started */
    pthread_t thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t change;
    int armed, stopping;
};

void hier_watch_init(struct hier_watch *w, struct hvd__plane *sleeper);
void hier_watch_fini(struct hier_watch *w); /* ends the thread */

/* 0, or negative when there can be no such thread; t's connections are
 * watched from the first time on. */
int hier_watch_arm(struct hier_watch *w, const struct hvd__tcp *t);
void hier_watch_disarm(struct hier_watch *w);

#endif
