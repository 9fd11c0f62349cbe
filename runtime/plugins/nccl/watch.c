/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that watches over launches that no other thread may be waiting
 * for.  One per process; it sleeps while nothing is pending.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include <signal.h>
#include <time.h>

enum { TICK_MS = 5, NS_PER_MS = 1000 * 1000, NS_PER_S = 1000 * 1000 * 1000 };

static struct {
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t wake;
    pthread_t thread;
    int runs, stop;
    struct nc_plane *planes;
    _Atomic int asleep; /* sleeps until woken, not just for a tick */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Notes launches that are over, and checks the others for failures and the
 * time limit. */
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
        nc_check(p, nc_ask_job, 0, &err);
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

/* Looks at the planes while launches are pending.  A launcher first counts its
 * launch, then reads `asleep`; this thread sets `asleep`, then looks for
 * launches.  So at least one sees the other. */
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

/* Starts the thread; the caller holds the lock. */
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
    /* Signals are for the program's own threads. */
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
