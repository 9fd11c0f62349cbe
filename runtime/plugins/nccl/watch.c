/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that watches over what was launched and nobody may be waiting
 * for; one per process, asleep while nothing is under way.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include <signal.h>
#include <time.h>

enum { TICK_MS = 5, NS_PER_MS = 1000 * 1000, NS_PER_S = 1000 * 1000 * 1000 };

static struct {
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    pthread_t thread;
    int runs, stop;
    struct nc_plane *planes;
    _Atomic int asleep; /* until it is woken, not for a tick */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Sees what is over, and to it that nothing lasts for ever. */
static void tick(struct nc_plane *p)
{
    struct hb_error err = HB_ERROR_INIT;
    uint64_t oldest;
    int rc = 1;

    if (nc_enter(&err) < 0)
        return;
    while (rc == 1 && (oldest = nc_launch_pending(p)) != 0)
        rc = nc_launch_test(p, oldest, &err);
    if (rc == 0)
        nc_look(p, nc_ask_job, 0, &err);
    nc_leave();
}

static int any_pending(void)
{
    for (struct nc_plane *p = watch.planes; p; p = p->watched_next)
        if (nc_launch_pending(p))
            return 1;
    return 0;
}

static void sleep_tick(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * NS_PER_MS;
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_nsec -= NS_PER_S;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&watch.wake, &watch.lock, &until);
}

/* Who launches something looks at asleep afterwards, and this thread the other
 * way round: one of both sees what the other has done. */
static void *run(void *arg)
{
    pthread_mutex_lock(&watch.lock);
    while (!watch.stop) {
        atomic_store(&watch.asleep, 1);
        if (!any_pending()) {
            pthread_cond_wait(&watch.wake, &watch.lock);
            continue;
        }
        atomic_store(&watch.asleep, 0);
        for (struct nc_plane *p = watch.planes; p; p = p->watched_next)
            tick(p);
        sleep_tick();
    }
    pthread_mutex_unlock(&watch.lock);
    return arg;
}

void nc_watch_wake(void)
{
    if (!atomic_load(&watch.asleep))
        return;
    pthread_mutex_lock(&watch.lock);
    pthread_cond_signal(&watch.wake);
    pthread_mutex_unlock(&watch.lock);
}

/* The caller holds the lock. */
static int begin(struct hb_error *err)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    int rc;

    if (watch.runs)
        return 0;
    watch.stop = 0;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&watch.wake, &attr);
    pthread_condattr_destroy(&attr);
    /* It takes no signals: they are the program's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&watch.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        pthread_cond_destroy(&watch.wake);
        return hb_error_sys(err, rc, "pthread_create");
    }
    watch.runs = 1;
    return 0;
}

int nc_watch_add(struct nc_plane *p, struct hb_error *err)
{
    int rc;

    pthread_mutex_lock(&watch.lock);
    rc = begin(err);
    if (rc == 0) {
        p->watched_next = watch.planes;
        watch.planes = p;
    }
    pthread_mutex_unlock(&watch.lock);
    return rc;
}

void nc_watch_remove(struct nc_plane *p)
{
    pthread_mutex_lock(&watch.lock);
    for (struct nc_plane **at = &watch.planes; *at; at = &(*at)->watched_next)
        if (*at == p) {
            *at = p->watched_next;
            break;
        }
    pthread_mutex_unlock(&watch.lock);
}

void nc_watch_stop(void)
{
    if (!watch.runs)
        return;
    pthread_mutex_lock(&watch.lock);
    watch.stop = 1;
    pthread_cond_signal(&watch.wake);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watch.thread, NULL);
    pthread_cond_destroy(&watch.wake);
    watch.runs = 0;
}
