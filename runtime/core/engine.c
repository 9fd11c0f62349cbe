/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: see engine.h for who may do what.
 */
#include "runtime/core/engine.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

enum {
    TURN_YIELDS = 64, /* before a waiter sleeps for its turn */
    HOLD_YIELDS = 64, /* before the engine thread takes over */
    SMALL_BYTES = 16 << 10,
};

static int try_drive(struct hvd__engine *e, enum hvd__driver who)
{
    int none = HVD__DRIVER_NONE;

    return atomic_load(&e->driver) == HVD__DRIVER_NONE &&
           atomic_compare_exchange_strong(&e->driver, &none, (int)who);
}

/* ---- Handing over -------------------------------------------------- */

static void wake_thread_locked(struct hvd__engine *e)
{
    if (!e->thread_idle)
        return;
    e->thread_idle = 0;
    pthread_cond_signal(&e->work);
}

/* Work is queued, and the last waiter or driver has gone: the engine
 * thread takes over. */
static void pass_on(struct hvd__engine *e)
{
    if (atomic_load(&e->queued) == 0 || atomic_load(&e->waiters) > 0 ||
        atomic_load(&e->driver) != HVD__DRIVER_NONE)
        return;
    pthread_mutex_lock(&e->lock);
    wake_thread_locked(e);
    pthread_mutex_unlock(&e->lock);
}

static void wake_waiters(struct hvd__engine *e)
{
    if (atomic_load(&e->sleepers) == 0)
        return;
    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->turn);
    pthread_mutex_unlock(&e->lock);
}

static void step_back(struct hvd__engine *e)
{
    atomic_store(&e->driver, HVD__DRIVER_NONE);
    wake_waiters(e);
    pass_on(e);
}

/* ---- Driving ------------------------------------------------------- */

/* Sets the outcome; a request that somebody else holds may be freed as
 * soon as `done` is seen. */
static void finish(struct hvd_request *req, int rc)
{
    if (rc < 0 && !req->err.status)
        hb_error_set(&req->err, (enum hvd_status) - rc, "%s",
                     hb_status_text(rc));
    /* Release: pairs with hvd__request_done.  Sleepers are no concern of
     * this store, they look at `done` under the lock. */
    atomic_store_explicit(&req->done, 1, memory_order_release);
}

static int shut_down(struct hvd_request *req)
{
    return hb_error_set(&req->err, HVD_ESHUTDOWN,
                        "%s: hvd_shutdown was called before it completed",
                        hvd__kind_name(req->op.kind));
}

/* Goes on with a request until it is done (1 or negative), or until the
 * plane cannot go on at once and `give_way` says to stop (0). */
static int drive(struct hvd__engine *e, struct hvd_request *req,
                 int (*give_way)(struct hvd__engine *))
{
    struct hvd__plane *plane = e->plane;
    int rc;

    if (!req->started) {
        if (atomic_load(&e->stopping))
            return shut_down(req);
        req->started = 1;
        rc = plane->ops->start(plane, &req->op);
        if (rc < 0)
            return rc;
    }
    for (;;) {
        rc = plane->ops->progress(plane, &req->op);
        if (rc != 0)
            return rc;
        if (atomic_load(&e->stopping))
            return shut_down(req);
        if (give_way && give_way(e))
            return 0;
        plane->ops->pause(plane);
    }
}

/* The plane is there for the driver and, until `stopping`, under the lock;
 * nobody else may look at it. */
static int supported(const struct hvd__engine *e, const struct hvd__op *op,
                     struct hb_error *err)
{
    const struct hvd__plane *plane = e->plane;

    if (plane->ops->supports(plane, op))
        return 0;
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "plane %s cannot carry out this %s", plane->ops->name,
                        hvd__kind_name(op->kind));
}

static struct hvd_request *oldest(struct hvd__engine *e)
{
    struct hvd_request *req;

    pthread_mutex_lock(&e->lock);
    req = e->head;
    pthread_mutex_unlock(&e->lock);
    return req;
}

static void complete_oldest(struct hvd__engine *e, int rc)
{
    struct hvd_request *req;

    pthread_mutex_lock(&e->lock);
    req = e->head;
    e->head = req->next;
    if (!e->head)
        e->tail = NULL;
    atomic_fetch_sub(&e->queued, 1);
    finish(req, rc);
    if (atomic_load(&e->sleepers))
        pthread_cond_broadcast(&e->turn);
    pthread_mutex_unlock(&e->lock);
}

/* Drives the queue until `until` is done (NULL: until it is empty), or as
 * give_way says.  The driver is this thread. */
static void drive_queue(struct hvd__engine *e, const struct hvd_request *until,
                        int (*give_way)(struct hvd__engine *))
{
    struct hvd_request *req;

    while ((!until || !hvd__request_done(until)) && (req = oldest(e))) {
        int rc = drive(e, req, give_way);

        if (rc == 0)
            return;
        complete_oldest(e, rc);
        if (!until && give_way && give_way(e))
            return;
    }
}

static int always(struct hvd__engine *e)
{
    (void)e;
    return 1;
}

/* A burst of small operations ends in the first wait: handing each to the
 * engine thread and back would cost more than doing them. */
static void drive_small(struct hvd__engine *e)
{
    struct hvd_request *req;

    while ((req = oldest(e)) &&
           req->op.count * req->op.elem_bytes <= SMALL_BYTES) {
        int rc = drive(e, req, always);

        if (rc == 0)
            return;
        complete_oldest(e, rc);
    }
}

static int somebody_waits(struct hvd__engine *e)
{
    return atomic_load(&e->waiters) > 0 || atomic_load(&e->stopping);
}

/* ---- The engine thread --------------------------------------------- */

static int has_work(struct hvd__engine *e)
{
    return atomic_load(&e->queued) > 0 && atomic_load(&e->waiters) == 0 &&
           atomic_load(&e->driver) == HVD__DRIVER_NONE;
}

/* Callers often wait right after they submitted, and do the work better:
 * the one that takes it from them and gives it back costs two switches. */
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
        if (still_has_work(e) && try_drive(e, HVD__DRIVER_THREAD)) {
            drive_queue(e, NULL, somebody_waits);
            atomic_store(&e->driver, HVD__DRIVER_NONE);
            wake_waiters(e);
        }
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* The thread takes no signals: they are the program's. */
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

static void append_locked(struct hvd__engine *e, struct hvd_request *req)
{
    req->engine = e;
    if (e->tail)
        e->tail->next = req;
    else
        e->head = req;
    e->tail = req;
    atomic_fetch_add(&e->queued, 1);
}

static int name_in_flight(const struct hvd__engine *e,
                          const struct hvd_request *req)
{
    const struct hvd_request *r;

    if (!req->op.name[0])
        return 0;
    for (r = e->head; r; r = r->next)
        if (r->op.name_hash == req->op.name_hash &&
            strcmp(r->op.name, req->op.name) == 0)
            return 1;
    return 0;
}

int hvd__engine_submit(struct hvd__engine *e, struct hvd_request *req,
                       struct hb_error *err)
{
    int rc;

    pthread_mutex_lock(&e->lock);
    if (atomic_load(&e->stopping))
        rc = hb_error_set(err, HVD_ESHUTDOWN, "hvd_shutdown was called");
    else if (name_in_flight(e, req))
        rc = hb_error_set(err, HVD_EDUPNAME,
                          "%s \"%s\": an operation of that name is in "
                          "flight; wait for it first",
                          hvd__kind_name(req->op.kind), req->op.name);
    else
        rc = supported(e, &req->op, err);
    if (rc == 0)
        rc = start_thread(e, err);
    if (rc == 0)
        append_locked(e, req);
    pthread_mutex_unlock(&e->lock);
    if (rc == 0)
        pass_on(e);
    return rc;
}

/* Sleeps until req is done (req NULL: not asked) or nobody drives. */
static void wait_for_turn(struct hvd__engine *e, const struct hvd_request *req)
{
    if (atomic_load(&e->driver) == HVD__DRIVER_THREAD)
        e->plane->ops->interrupt(e->plane);
    for (int i = 0; i < TURN_YIELDS; i++) {
        if ((req && hvd__request_done(req)) ||
            atomic_load(&e->driver) == HVD__DRIVER_NONE)
            return;
        sched_yield();
    }
    pthread_mutex_lock(&e->lock);
    atomic_fetch_add(&e->sleepers, 1);
    while (!(req && hvd__request_done(req)) &&
           atomic_load(&e->driver) != HVD__DRIVER_NONE)
        pthread_cond_wait(&e->turn, &e->lock);
    atomic_fetch_sub(&e->sleepers, 1);
    pthread_mutex_unlock(&e->lock);
}

void hvd__engine_wait(struct hvd__engine *e, struct hvd_request *req)
{
    if (hvd__request_done(req))
        return;
    atomic_fetch_add(&e->waiters, 1);
    while (!hvd__request_done(req)) {
        if (try_drive(e, HVD__DRIVER_CALLER)) {
            drive_queue(e, req, NULL);
            drive_small(e);
            step_back(e);
        } else {
            wait_for_turn(e, req);
        }
    }
    atomic_fetch_sub(&e->waiters, 1);
    pass_on(e);
}

int hvd__engine_test(struct hvd__engine *e, struct hvd_request *req)
{
    if (!hvd__request_done(req) && try_drive(e, HVD__DRIVER_CALLER)) {
        drive_queue(e, req, always);
        step_back(e);
    }
    return hvd__request_done(req);
}

/* Behind others: through the queue. */
static int run_queued(struct hvd__engine *e, struct hvd_request *req)
{
    int rc;

    pthread_mutex_lock(&e->lock);
    rc = atomic_load(&e->stopping) ? shut_down(req)
                                   : supported(e, &req->op, &req->err);
    if (rc == 0)
        append_locked(e, req);
    pthread_mutex_unlock(&e->lock);
    if (rc < 0)
        return rc;
    hvd__engine_wait(e, req);
    return req->err.status;
}

int hvd__engine_run(struct hvd__engine *e, struct hvd_request *req)
{
    int rc;

    if (atomic_load(&e->queued) || !try_drive(e, HVD__DRIVER_CALLER))
        return run_queued(e, req);
    /* Something may have been queued before the driver was taken. */
    if (atomic_load(&e->queued) || atomic_load(&e->stopping)) {
        step_back(e);
        return run_queued(e, req);
    }
    rc = supported(e, &req->op, &req->err);
    finish(req, rc < 0 ? rc : drive(e, req, NULL));
    step_back(e);
    return req->err.status;
}

/* ---- Life ---------------------------------------------------------- */

void hvd__engine_open(struct hvd__engine *e, struct hvd__plane *plane)
{
    e->plane = plane;
    atomic_store(&e->stopping, 0);
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

void hvd__engine_close(struct hvd__engine *e)
{
    struct hvd_request *req;

    /* Under the lock, so that a submit sees it or is seen below. */
    pthread_mutex_lock(&e->lock);
    atomic_store(&e->stopping, 1);
    pthread_mutex_unlock(&e->lock);
    while (!try_drive(e, HVD__DRIVER_CALLER)) {
        e->plane->ops->interrupt(e->plane);
        wait_for_turn(e, NULL);
    }
    join_thread(e);
    while ((req = oldest(e)))
        complete_oldest(e, shut_down(req));
    atomic_store(&e->driver, HVD__DRIVER_NONE);
    wake_waiters(e);
    /* Their requests are done, they only have to run: after this nobody
     * looks at the plane. */
    while (atomic_load(&e->waiters))
        sched_yield();
}
