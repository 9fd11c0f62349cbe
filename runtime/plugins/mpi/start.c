/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting outside of planes: while the world is found and planes are made.
 *
 * A peer may never come, or fail on its way, and MPI would wait for ever.  So
 * calls are begun in their nonblocking form and tested until they are done,
 * the time is over, or a rank that has failed notifies all others.  There is
 * at most one such notice, since nothing can be made after it.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

static int too_late(struct hb_error *err, const char *call)
{
    return hb_error_set(err, HVD_ETIMEOUT,
                        "%s has waited for other ranks as long as "
                        "HVD_START_TIMEOUT allows",
                        call);
}

enum {
    YIELD_NS = 300 * 1000,
    SLEEP_MIN_NS = 50 * 1000,
    SLEEP_MAX_NS = 1000 * 1000,
};

/* ---- MPI_Init_thread ------------------------------------------------------
 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int over, rc;
} init = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *run_init(void *arg)
{
    int level, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);

    (void)arg;
    pthread_mutex_lock(&init.lock);
    init.rc = rc;
    init.over = 1;
    pthread_cond_signal(&init.done);
    pthread_mutex_unlock(&init.lock);
    return NULL;
}

/* Blocks all signals, so that no handler runs in this thread or in threads
 * that MPI makes. */
static int start_thread(void)
{
    pthread_condattr_t by_clock;
    pthread_attr_t detached;
    sigset_t all, given;
    pthread_t thread;
    int e;

    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&init.done, &by_clock);
    pthread_condattr_destroy(&by_clock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &given);
    e = pthread_create(&thread, &detached, run_init, NULL);
    pthread_sigmask(SIG_SETMASK, &given, NULL);
    pthread_attr_destroy(&detached);
    return e;
}

/* Runs MPI_Init_thread in a thread, because it has no nonblocking form.  If it
 * does not return, the thread stays in it until the process ends. */
int mp_init(uint64_t deadline_ns, struct hb_error *err)
{
    const struct timespec until = {(time_t)(deadline_ns / 1000000000),
                                   (long)(deadline_ns % 1000000000)};
    int e = start_thread(), over;

    if (e) {
        mp_world.failed = 1;
        return hb_error_sys(err, e, "a thread for MPI_Init_thread");
    }
    pthread_mutex_lock(&init.lock);
    while (!init.over && e == 0)
        e = pthread_cond_timedwait(&init.done, &init.lock, &until);
    over = init.over;
    pthread_mutex_unlock(&init.lock);
    if (over && init.rc == MPI_SUCCESS)
        return 0;
    mp_world.failed = 1;
    if (over) /* MPI has no error texts before it is initialised */
        return hb_error_set(err, HVD_ESYSTEM, "MPI_Init_thread: error %d",
                            init.rc);
    return too_late(err, "MPI_Init_thread");
}

/* ---- Notices --------------------------------------------------------------
 */

int mp_notices_open(struct hb_error *err)
{
    int rc = MPI_Irecv(&mp_world.notice_in, (int)sizeof(struct mp_why),
                       MPI_BYTE, MPI_ANY_SOURCE, MP_TAG_NOTICE, mp_world.comm,
                       &mp_world.notice_req);

    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Irecv");
}

int mp_withdraw(MPI_Request *req)
{
    if (*req == MPI_REQUEST_NULL)
        return 0;
    if (MPI_Cancel(req) == MPI_SUCCESS &&
        MPI_Wait(req, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        return 0;
    mp_world.failed = 1;
    return -HVD_ESYSTEM;
}

static int check_notice(struct hb_error *err)
{
    MPI_Status status;
    int flag = 0, rc;

    if (mp_world.notice_req == MPI_REQUEST_NULL)
        return 0;
    rc = MPI_Test(&mp_world.notice_req, &flag, &status);
    if (rc != MPI_SUCCESS)
        return mp_error_test(err, -1, rc, "MPI_Test", "MPI_Irecv");
    if (!flag)
        return 0;
    mp_world.notice_req = MPI_REQUEST_NULL;
    mp_peer_failed(&mp_world.broken, status.MPI_SOURCE, &mp_world.notice_in);
    if (err)
        *err = mp_world.broken;
    return mp_world.broken.status;
}

/* Yields, and after a while sleeps, with the lock released. */
static void rest(uint64_t since_ns)
{
    uint64_t waited_ns = hb_now_ns() - since_ns;
    struct timespec nap = {0, SLEEP_MIN_NS};

    if (waited_ns > 100 * (uint64_t)SLEEP_MIN_NS)
        nap.tv_nsec = SLEEP_MAX_NS;
    mp_unlock();
    if (waited_ns < YIELD_NS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
    mp_lock();
}

int mp_await(const struct mp_await *a, MPI_Request *reqs, int n,
             struct hb_error *err)
{
    uint64_t since_ns = hb_now_ns();
    MPI_Status statuses[MP_AWAIT_MOST];
    int flag = 0;

    for (;;) {
        int rc = MPI_Testall(n, reqs, &flag, statuses);

        if (rc != MPI_SUCCESS)
            return mp_error_test(err, a->peer, rc, "MPI_Testall", a->call);
        if (flag)
            return 0;
        rc = check_notice(err);
        if (rc < 0)
            return rc;
        if (hb_now_ns() > a->deadline_ns) {
            mp_world.failed = 1;
            if (a->peer >= 0)
                mp_name_rank(err, a->peer);
            return too_late(err, a->call);
        }
        rest(since_ns);
    }
}

int mp_over(int rc, const struct hb_error *err)
{
    if (rc == 0 || !mp_world.failed || mp_world.broken.status)
        return rc;
    mp_world.broken = *err;
    if (!mp_world.can_tell || rc == -HVD_ETIMEOUT)
        return rc;
    mp_explain(&mp_world.notice_out, err);
    for (int r = 0; r < mp_world.view.size; r++) {
        mp_world.notice_reqs[r] = MPI_REQUEST_NULL;
        if (r != mp_world.view.rank)
            MPI_Isend(&mp_world.notice_out, (int)sizeof(struct mp_why),
                      MPI_BYTE, r, MP_TAG_NOTICE, mp_world.comm,
                      &mp_world.notice_reqs[r]);
    }
    mp_push_out(mp_world.notice_reqs, mp_world.view.size);
    return rc;
}
