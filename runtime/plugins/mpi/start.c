/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting outside of planes: while the world is found and planes are made.
 *
 * A peer may never come, or fail on its way, and MPI would wait for ever.  So
 * calls are begun in their nonblocking form and tested until they are done or
 * the time is over.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

enum {
    YIELD_NS = 300 * 1000,
    SHORT_NAPS_NS = 5 * 1000 * 1000,
    SHORT_NAP_NS = 50 * 1000,
    NAP_NS = 1000 * 1000,
};

static int too_late(struct hb_error *err, const char *call)
{
    mp_world.failed = 1;
    return hb_error_set(err, HVD_ETIMEOUT,
                        "%s has waited for other ranks as long as "
                        "HVD_START_TIMEOUT allows; if a rank has failed, its "
                        "own message says why",
                        call);
}

/* ---- MPI_Init_thread ------------------------------------------------------
 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int returned, rc;
} init = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *run_init(void *arg)
{
    int level, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);

    (void)arg;
    pthread_mutex_lock(&init.lock);
    init.rc = rc;
    init.returned = 1;
    pthread_cond_signal(&init.done);
    pthread_mutex_unlock(&init.lock);
    return NULL;
}

/* Blocks all signals, so that no handler runs in this thread or in threads
 * that MPI makes. */
static int start_thread(void)
{
    pthread_condattr_t by_clock;
    sigset_t all, given;
    pthread_t thread;
    int e;

    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&init.done, &by_clock);
    pthread_condattr_destroy(&by_clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &given);
    e = pthread_create(&thread, NULL, run_init, NULL);
    pthread_sigmask(SIG_SETMASK, &given, NULL);
    if (e == 0)
        pthread_detach(thread);
    return e;
}

/* Runs MPI_Init_thread in a thread, because it has no nonblocking form.  If it
 * does not return, the thread stays in it until the process ends. */
int mp_init(struct hb_error *err)
{
    const struct timespec until = {(time_t)(mp_world.deadline_ns / 1000000000),
                                   (long)(mp_world.deadline_ns % 1000000000)};
    int e = start_thread(), returned;

    if (e) {
        mp_world.failed = 1;
        return hb_error_sys(err, e, "a thread for MPI_Init_thread");
    }
    pthread_mutex_lock(&init.lock);
    while (!init.returned && e == 0)
        e = pthread_cond_timedwait(&init.done, &init.lock, &until);
    returned = init.returned;
    pthread_mutex_unlock(&init.lock);
    if (!returned)
        return too_late(err, "MPI_Init_thread");
    if (init.rc == MPI_SUCCESS)
        return 0;
    mp_world.failed = 1; /* MPI has no error texts before it is initialised */
    return hb_error_set(err, HVD_ESYSTEM, "MPI_Init_thread: error %d", init.rc);
}

/* ---- Other calls ----------------------------------------------------------
 */

/* Yields, and after a while sleeps, with the lock released. */
static void rest(uint64_t since_ns)
{
    uint64_t waited_ns = hb_now_ns() - since_ns;
    const struct timespec nap = {0, waited_ns > SHORT_NAPS_NS ? NAP_NS
                                                              : SHORT_NAP_NS};

    mp_unlock();
    if (waited_ns < YIELD_NS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
    mp_lock();
}

int mp_test_all(MPI_Request *reqs, int n, int *done)
{
    int rc = MPI_SUCCESS;

    *done = 1;
    for (int i = 0; i < n && *done && rc == MPI_SUCCESS; i++)
        rc = MPI_Test(&reqs[i], done, MPI_STATUS_IGNORE);
    return rc;
}

/* Returns negative with err set if a rank of the world is known to have failed,
 * over its plane, if there is one. */
static int find_failed_peer(struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    struct mp_plane *all = mp_world.all;
    int rc = all ? mp_farewells_read(all, &why) : 0;

    if (all && rc == 0)
        rc = mp_can_agree(all, all->carried_out + 1, &why);
    if (rc >= 0 || rc == -HVD_ESHUTDOWN)
        return 0;
    if (err && !err->status)
        *err = why;
    return rc;
}

int mp_await(const char *call, int peer, MPI_Request *reqs, int n,
             struct hb_error *err)
{
    uint64_t since_ns = hb_now_ns();
    int flag = 0;

    for (;;) {
        int rc = mp_test_all(reqs, n, &flag);

        if (rc != MPI_SUCCESS)
            return mp_error_test(err, peer, rc, "MPI_Test", call);
        if (flag)
            return 0;
        rc = find_failed_peer(err);
        if (rc < 0)
            return rc;
        if (hb_now_ns() > mp_world.deadline_ns)
            return too_late(err, call);
        rest(since_ns);
    }
}

int mp_finish(int mpi_rc, const char *call, MPI_Request *req,
              struct hb_error *err)
{
    return mpi_rc == MPI_SUCCESS ? mp_await(call, -1, req, 1, err)
                                 : mp_error_own(err, mpi_rc, call);
}

int mp_keep_failure(int rc, const struct hb_error *err)
{
    if (rc < 0 && mp_world.failed && !mp_world.broken.status)
        mp_world.broken = *err;
    return rc;
}
