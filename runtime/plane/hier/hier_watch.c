/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that watches sockets for a sleeping leader; see hier_watch.h. */
#include "runtime/plane/hier/hier_watch.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void hier_watch_init(struct hier_watch *w, struct hvd__plane *sleeper)
{
    w->sleeper = sleeper;
    w->epoll_fd = w->stop_fd = -1;
    w->armed = w->stopping = 0;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, NULL);
}

/* Sleeps until a socket is readable; holds the lock except while it
 * sleeps.  Ignores events if no longer armed: they belong to an
 * operation in progress. */
static void wait_for_event(struct hier_watch *w)
{
    struct epoll_event e;
    int n;

    pthread_mutex_unlock(&w->lock);
    n = epoll_wait(w->epoll_fd, &e, 1, -1);
    pthread_mutex_lock(&w->lock);
    if (n <= 0 || !w->armed)
        return;
    w->armed = 0;
    w->sleeper->ops->interrupt(w->sleeper);
}

static void *watch_main(void *arg)
{
    struct hier_watch *w = arg;

    pthread_setname_np(pthread_self(), "hvd-watch");
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        if (w->armed)
            wait_for_event(w);
        else
            pthread_cond_wait(&w->change, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int watch_fd(struct hier_watch *w, int fd)
{
    struct epoll_event e = {.events = EPOLLIN};

    return fd < 0 ? 0 : epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static void close_fds(struct hier_watch *w)
{
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    if (w->stop_fd >= 0)
        close(w->stop_fd);
    w->epoll_fd = w->stop_fd = -1;
}

/* Blocks all signals in the thread: they are for the program's own threads. */
static int start_thread(struct hier_watch *w)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? -1 : 0;
}

static int start(struct hier_watch *w, const struct hvd__tcp *t)
{
    int rc = 0;

    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll_fd < 0 || w->stop_fd < 0 || watch_fd(w, w->stop_fd) < 0)
        rc = -1;
    for (int i = 0; i < hvd__tcp_model(t)->members && rc == 0; i++)
        rc = watch_fd(w, hvd__tcp_fd(t, i));
    if (rc == 0)
        rc = start_thread(w);
    if (rc < 0)
        close_fds(w);
    return rc;
}

int hier_watch_arm(struct hier_watch *w, const struct hvd__tcp *t)
{
    if (w->epoll_fd < 0 && start(w, t) < 0)
        return -HVD_ESYSTEM;
    pthread_mutex_lock(&w->lock);
    w->armed = 1;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

void hier_watch_disarm(struct hier_watch *w)
{
    if (w->epoll_fd < 0)
        return;
    pthread_mutex_lock(&w->lock);
    w->armed = 0;
    pthread_mutex_unlock(&w->lock);
}

void hier_watch_fini(struct hier_watch *w)
{
    uint64_t one = 1;

    if (w->epoll_fd >= 0) {
        pthread_mutex_lock(&w->lock);
        w->stopping = 1;
        w->armed = 0;
        pthread_cond_signal(&w->change);
        pthread_mutex_unlock(&w->lock);
        while (write(w->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
        pthread_join(w->thread, NULL);
    }
    close_fds(w);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
}
