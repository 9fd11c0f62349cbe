/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for local ranks and for connections at once.
 *
 * An idle leader sleeps on a futex in shared memory and cannot watch sockets
 * meanwhile.  A helper thread does that: while armed, it sleeps in epoll on
 * the leader's connections, and when one becomes readable it interrupts the
 * sleeper once.  The thread starts with the first arming, so most programs
 * never have it.  It reads no data; that is left to the leader.
 */
#ifndef HVD_PLANE_HIER_WATCH_H
#define HVD_PLANE_HIER_WATCH_H

#include "runtime/plane/plane.h"
#include "runtime/plane/tcp/tcp.h"

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

/* Arms the thread; the first call starts it, to watch the connections of t.
 * 0, or -HVD_ESYSTEM if it cannot be started. */
int hier_watch_arm(struct hier_watch *w, const struct hvd__tcp *t);
void hier_watch_disarm(struct hier_watch *w);

#endif
