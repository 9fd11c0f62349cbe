/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: see engine.h for who may do what.
 */
#include "runtime/core/sched/engine_impl.h"

#include "lib/base/sys/clock.h"
#include "runtime/core/sched/record.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    TURN_YIELDS = 64, /* before a waiter sleeps for its turn */
    HOLD_YIELDS = 64, /* before the engine thread takes over */
    SMALL_BYTES = 16 << 10,
    /* How long to wait for a predicted request to be issued: a caller that
     * waits can hardly issue it itself, but another thread could. */
    HOLD_CALLER_NS = 20 * 1000,
    HOLD_THREAD_NS = 5 * 1000 * 1000,
};

/* ---- Handing over -------------------------------------------------- */

static void wake_thread_locked(struct hvd__engine *e)
{
    if (!e->thread_idle)
        return;
    e->thread_idle = 0;
    pthread_cond_signal(&e->work);
}

/* Wakes the engine thread if requests are queued, no thread waits and none
 * drives. */
void engine_pass_on(struct hvd__engine *e)
{
    if (atomic_load(&e->queued) == 0 || atomic_load(&e->waiters) > 0 ||
        atomic_load(&e->driver) != HVD__DRIVER_NONE)
        return;
    pthread_mutex_lock(&e->lock);
    wake_thread_locked(e);
    pthread_mutex_unlock(&e->lock);
}

void engine_wake_waiters(struct hvd__engine *e)
{
    if (atomic_load(&e->sleepers) == 0)
        return;
    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->turn);
    pthread_mutex_unlock(&e->lock);
}

static int somebody_waits(struct hvd__engine *e)
{
    return atomic_load(&e->waiters) > 0 || atomic_load(&e->stopping);
}

/* ---- Driving ------------------------------------------------------- */

int engine_supports(const struct hvd__engine *e, const struct hvd__op *op,
                    struct hb_error *err)
{
    const struct hvd__plane *plane = e->plane;

    if (plane->ops->supports(plane, op))
        return 0;
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "plane %s cannot carry out this %s", plane->ops->name,
                        collective_name(op->kind));
}

/* Lets the engine thread sleep until more than `issued` requests have been
 * issued, another thread waits, or HOLD_THREAD_NS is over. */
static void hold(struct hvd__engine *e, uint64_t issued)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += HOLD_THREAD_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&e->lock);
    e->thread_idle =
        issued == atomic_load(&e->controller.issued) && !somebody_waits(e);
    while (e->thread_idle &&
           pthread_cond_clockwait(&e->work, &e->lock, CLOCK_MONOTONIC,
                                  &until) == 0)
        ;
    e->thread_idle = 0;
    pthread_mutex_unlock(&e->lock);
}

/* Waits a step; `alone` is the request carried out without the queue, or
 * NULL. */
void engine_pause(struct hvd__engine *e, const struct hvd_request *alone,
                  uint64_t until_ns)
{
    uint64_t look_ns = e->stall.look_ns;

    if (hvd__context.watches_itself && look_ns &&
        (!until_ns || look_ns < until_ns))
        until_ns = look_ns;
    e->plane->ops->pause(e->plane, until_ns);
    hvd__stall_paused(e, alone);
}

/* Drives the queue until `req` is done (NULL: until it is empty), or
 * hb_now_ns() has reached until_ns (0: no limit).  Returns early when give_way,
 * if not NULL, says so: without `req`, after any step; with it, only when it
 * would have to wait.  The calling thread is the driver. */
static void drive_queue(struct hvd__engine *e, const struct hvd_request *req,
                        uint64_t until_ns,
                        int (*give_way)(struct hvd__engine *))
{
    int is_thread = atomic_load(&e->driver) == HVD__DRIVER_THREAD;
    uint64_t limit = is_thread ? HOLD_THREAD_NS : HOLD_CALLER_NS;

    while ((!req || !hvd__request_done(req)) && !atomic_load(&e->stopping) &&
           !hb_is_over(until_ns)) {
        uint64_t issued = atomic_load(&e->controller.issued);
        enum hvd__step step = hvd__controller_step(&e->controller, limit);

        if (step == HVD__STEP_IDLE)
            return;
        if (step == HVD__STEP_DONE ? !req && give_way && give_way(e)
                                   : give_way && give_way(e))
            return;
        if (step == HVD__STEP_HOLD && is_thread)
            hold(e, issued);
        else if (step == HVD__STEP_HOLD)
            sched_yield();
        else if (step != HVD__STEP_DONE)
            engine_pause(e, NULL, until_ns);
    }
}

static int always(struct hvd__engine *e)
{
    (void)e;
    return 1;
}

static int head_is_small(struct hvd__engine *e)
{
    const struct hvd_request *req;
    int small;

    pthread_mutex_lock(&e->lock);
    req = e->head;
    small = req && req->op.count * req->op.elem_bytes <= SMALL_BYTES;
    pthread_mutex_unlock(&e->lock);
    return small;
}

/* Completes a burst of small operations in the first wait: handing each to the
 * engine thread and back would cost more than doing them.  Begins nothing while
 * stopping: another caller may have left an operation half done. */
static void drive_small(struct hvd__engine *e, uint64_t until_ns)
{
    while (!atomic_load(&e->stopping) && atomic_load(&e->queued) &&
           !hb_is_over(until_ns) && head_is_small(e))
        if (hvd__controller_step(&e->controller, HOLD_CALLER_NS) !=
            HVD__STEP_DONE)
            return;
}

/* ---- The engine thread --------------------------------------------- */

static int has_work(struct hvd__engine *e)
{
    return atomic_load(&e->queued) > 0 && atomic_load(&e->waiters) == 0 &&
           atomic_load(&e->driver) == HVD__DRIVER_NONE;
}

/* Yields a few times: callers often wait right after submitting and then drive
 * themselves, and handing work over costs two thread switches.  Returns whether
 * there is still work. */
static int still_has_work(struct hvd__engine *e)
{
    for (int i = 0; i < HOLD_YIELDS; i++) {
        if (!has_work(e))
            return 0;
        sched_yield();
    }
    return 1;
}

static void *engine_main(void *arg)
{
    struct hvd__engine *e = arg;

    cpu_set_t cpu;

    if (e->cpu >= 0) {
        CPU_ZERO(&cpu);
        CPU_SET((size_t)e->cpu, &cpu);
        /* On failure (a core that this process may not use) it runs
         * anywhere. */
        pthread_setaffinity_np(pthread_self(), sizeof(cpu), &cpu);
    }
    pthread_setname_np(pthread_self(), "hvd-engine");
    pthread_mutex_lock(&e->lock);
    while (!atomic_load(&e->stopping)) {
        if (!has_work(e)) {
            e->thread_idle = 1;
            while (e->thread_idle)
                pthread_cond_wait(&e->work, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        if (still_has_work(e) && engine_try_drive(e, HVD__DRIVER_THREAD)) {
            drive_queue(e, NULL, 0, somebody_waits);
            atomic_store(&e->driver, HVD__DRIVER_NONE);
            engine_wake_waiters(e);
        }
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Blocks all signals in the thread: they are the program's. */
static int start_thread(struct hvd__engine *e, struct hb_error *err)
{
    sigset_t all, before;
    int rc;

    if (e->thread_started)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&e->thread, NULL, engine_main, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return hb_error_sys(err, rc, "start the engine thread");
    e->thread_started = 1;
    return 0;
}

/* ---- Callers ------------------------------------------------------- */

/* Wakes a driver that waits for something new, after a request was queued. */
void engine_tell_driver(struct hvd__engine *e)
{
    if (atomic_load(&e->controller.parked))
        e->plane->ops->interrupt(e->plane);
    if (atomic_load(&e->driver) == HVD__DRIVER_THREAD)
        wake_thread_locked(e);
}

/* Sets *err to the reason for the stop and returns its status; under the
 * lock. */
int engine_stopped(const struct hvd__engine *e, const struct hvd_request *req,
                   struct hb_error *err)
{
    *err = e->why;
    return hb_error_context(err, "%s", collective_name(req->op.kind));
}

int hvd__engine_submit(struct hvd__engine *e, struct hvd_request *req,
                       struct hb_error *err)
{
    uint64_t call = hvd__stall_issued(&e->stall, req);
    int rc;

    hvd__record_issued(&e->controller, req, 0);
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&e->stopping))
        rc = engine_stopped(e, req, err);
    else
        rc = engine_find_entry(e, req, err);
    if (rc == 0)
        rc = engine_supports(e, &req->op, err);
    if (rc == 0)
        rc = start_thread(e, err);
    if (rc == 0) {
        engine_append_locked(e, req);
        engine_tell_driver(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (rc == 0)
        engine_pass_on(e);
    hvd__stall_returned(hvd__stall_on(), call);
    return rc;
}

/* Returns whether the waiter of `req` should go on: req is done, or there is no
 * driver.  While the engine is halted, only the first counts: requests wait for
 * close.  req NULL is hvd__engine_halt, which waits for the driver. */
static int is_turn(const struct hvd__engine *e, const struct hvd_request *req)
{
    if (req && (hvd__request_done(req) || atomic_load(&e->stopping)))
        return hvd__request_done(req);
    return atomic_load(&e->driver) == HVD__DRIVER_NONE;
}

/* Sleeps on `turn`; under the lock.  Returns 0 when hb_now_ns() has reached
 * until_ns (0: no limit). */
static int sleep_for_turn(struct hvd__engine *e, uint64_t until_ns)
{
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / 1000000000),
        .tv_nsec = (long)(until_ns % 1000000000),
    };

    if (!until_ns)
        return pthread_cond_wait(&e->turn, &e->lock) == 0;
    return pthread_cond_clockwait(&e->turn, &e->lock, CLOCK_MONOTONIC,
                                  &until) == 0;
}

/* Waits until is_turn, or hb_now_ns() has reached until_ns (0: no limit), by
 * yielding first, then by sleeping. */
static void wait_for_turn(struct hvd__engine *e, const struct hvd_request *req,
                          uint64_t until_ns)
{
    if (atomic_load(&e->driver) == HVD__DRIVER_THREAD) {
        e->plane->ops->interrupt(e->plane);
        pthread_mutex_lock(&e->lock);
        wake_thread_locked(e);
        pthread_mutex_unlock(&e->lock);
    }
    for (int i = 0; i < TURN_YIELDS; i++) {
        if (is_turn(e, req) || hb_is_over(until_ns))
            return;
        sched_yield();
    }
    pthread_mutex_lock(&e->lock);
    atomic_fetch_add(&e->sleepers, 1);
    while (!is_turn(e, req) && sleep_for_turn(e, until_ns))
        ;
    atomic_fetch_sub(&e->sleepers, 1);
    pthread_mutex_unlock(&e->lock);
}

/* Drives if no other thread does. */
int engine_wait(struct hvd__engine *e, struct hvd_request *req,
                uint64_t until_ns)
{
    if (hvd__request_done(req))
        return 1;
    atomic_fetch_add(&e->waiters, 1);
    while (!hvd__request_done(req) && !hb_is_over(until_ns)) {
        if (!atomic_load(&e->stopping) &&
            engine_try_drive(e, HVD__DRIVER_CALLER)) {
            drive_queue(e, req, until_ns, NULL);
            drive_small(e, until_ns);
            engine_step_back(e);
        } else {
            wait_for_turn(e, req, until_ns);
        }
    }
    atomic_fetch_sub(&e->waiters, 1);
    engine_pass_on(e);
    return hvd__request_done(req);
}

int engine_test(struct hvd__engine *e, struct hvd_request *req)
{
    if (!hvd__request_done(req) && engine_try_drive(e, HVD__DRIVER_CALLER)) {
        drive_queue(e, req, 0, always);
        engine_step_back(e);
    }
    return hvd__request_done(req);
}

/* ---- Life ---------------------------------------------------------- */

int hvd__engine_open(struct hvd__engine *e, struct hvd__plane *plane,
                     const int *ranks, int n, int me)
{
    int rc;

    hvd__controller_fini(&e->controller);
    rc = hvd__controller_init(&e->controller, e, ranks, n, me);
    if (rc < 0)
        return rc;
    e->plane = e->controller.plane = plane;
    e->cpu = -1;
    hb_error_clear(&e->why);
    atomic_fetch_add(&e->opened, 1);
    atomic_store(&e->again.hint, NULL);
    memset(&e->again.given, 0, sizeof(e->again.given));
    atomic_store(&e->drained, 0);
    e->launched = 0;
    atomic_store(&e->stopping, 0);
    return 0;
}

static void join_thread(struct hvd__engine *e)
{
    int started;

    pthread_mutex_lock(&e->lock);
    started = e->thread_started;
    e->thread_started = 0;
    wake_thread_locked(e);
    pthread_mutex_unlock(&e->lock);
    if (started)
        pthread_join(e->thread, NULL);
}

void hvd__engine_halt(struct hvd__engine *e, const struct hb_error *why)
{
    /* Under the lock, so that a submit either sees `stopping` or its request is
     * seen by close. */
    pthread_mutex_lock(&e->lock);
    e->why = *why;
    atomic_store(&e->stopping, 1);
    wake_thread_locked(e);
    pthread_mutex_unlock(&e->lock);
    while (!engine_try_drive(e, HVD__DRIVER_CALLER)) {
        e->plane->ops->interrupt(e->plane);
        wait_for_turn(e, NULL, 0);
    }
    join_thread(e);
}

void hvd__engine_close(struct hvd__engine *e, const struct hb_error *why)
{
    if (!atomic_load(&e->stopping))
        hvd__engine_halt(e, why);
    hvd__controller_abandon(&e->controller);
    hvd__engine_fail_all(e, why);
    atomic_store(&e->driver, HVD__DRIVER_NONE);
    engine_wake_waiters(e);
    /* Their requests are done, so these threads only have to run.  After this
     * no thread uses the plane. */
    while (atomic_load(&e->waiters) || atomic_load(&e->holders))
        sched_yield();
}
