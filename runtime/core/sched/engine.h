/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a process set: decides which thread carries out the set's
 * operations, and when.  The controller decides which operation comes next
 * (controller.h).
 *
 * One thread at a time, the driver, calls the controller and the plane.  A
 * thread that waits becomes the driver if there is none, so a blocking call
 * runs in its own thread from start to end, without a lock and without a
 * wake-up.  The engine thread, started by the first asynchronous operation,
 * drives only while operations are queued and no thread waits; otherwise it
 * sleeps.
 *
 * `driver`, `queued`, `waiters` and `sleepers` are sequentially consistent on
 * purpose: each side of a hand-over writes one of them and then reads another
 * (release the driver, look for work; add work, look for a driver).  `lock`
 * protects the links of the queue.
 *
 * The object is never freed, since a request may be waited for after close.
 */
#ifndef HVD_CORE_ENGINE_H
#define HVD_CORE_ENGINE_H

#include "runtime/core/sched/controller.h"
#include "runtime/trace/stall.h"

#include <pthread.h>

enum { HVD__EVEN_MAX = 64 }; /* largest set whose alltoall is cached */

enum hvd__driver {
    HVD__DRIVER_NONE,
    HVD__DRIVER_CALLER,
    HVD__DRIVER_THREAD, /* the engine thread: gives way to waiters */
};

/* Cache of the last blocking call, for programs that repeat one call.  Turning
 * arguments into an operation takes 21 ns: a third of an allreduce of 8 bytes
 * in a world of one (61 ns, or 40 ns with the cache), and more than a fifth of
 * the 90 ns that README.md gives for two ranks.  Calls that alternate between
 * buffers gain nothing.  Only the driver uses it, except for hint. */
struct hvd__again {
    _Atomic(const void *) hint; /* given.sendbuf; NULL: no req */
    struct hvd__given given;
    struct hvd_request req;
    size_t even[HVD__EVEN_MAX]; /* storage of req's sendcounts, for alltoall */
};

struct hvd__engine {
    struct hvd__plane *plane;
    struct hvd__controller controller;
    struct hvd__stall_watch stall;
    struct hvd__again again;
    _Atomic int driver;        /* enum hvd__driver */
    _Atomic unsigned queued;   /* requests in the queue */
    _Atomic unsigned waiters;  /* threads inside hvd__engine_wait */
    _Atomic unsigned sleepers; /* threads that sleep on `turn` */
    _Atomic int stopping;
    /* Device memory: for the engine, an operation is done once launched. */
    _Atomic unsigned holders;   /* threads that use the plane without driving */
    _Atomic uint64_t opened;    /* calls of hvd__engine_open so far */
    _Atomic int drained;        /* closed, and no launch is in progress */
    uint64_t launched;          /* number of the last launch; the driver's */
    struct hb_error launch_err; /* its outcome; set before drained */

    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t turn;  /* a request is done or the driver stepped back */
    pthread_cond_t work;  /* for the engine thread */
    struct hvd_request *head, *tail;
    struct hvd_request *last_unnamed;
    struct hb_error why; /* why the engine was stopped */
    int cpu;             /* core for the engine thread, or -1: any */
    int thread_started;
    int thread_idle; /* sleeps on `work` and was not woken yet */
    pthread_t thread;
};

/* clang-format off */
#define HVD__ENGINE_INIT \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER, \
      .work = PTHREAD_COND_INITIALIZER }
/* clang-format on */

/* Opens the engine on `plane`, which the caller keeps and frees after close.
 * ranks: the set's n world ranks, ascending, copied; this rank is ranks[me].
 * Returns 0 or -HVD_ENOMEM. */
int hvd__engine_open(struct hvd__engine *e, struct hvd__plane *plane,
                     const int *ranks, int n, int me);

/* Stops the engine: on return no thread drives it, new calls fail with `why`,
 * and the engine thread has ended.  Unfinished requests stay queued until
 * hvd__engine_close fails them. */
void hvd__engine_halt(struct hvd__engine *e, const struct hb_error *why);

/* Halts the engine, if that was not done, and completes all unfinished requests
 * with `why`.  Returns when no thread uses the plane any more.  The
 * controller's counters stay readable. */
void hvd__engine_close(struct hvd__engine *e, const struct hb_error *why);

/* Carries out `req`, a blocking operation without a name, after all requests
 * already queued, and returns its status.  The caller owns req, has initialised
 * it and set its signature; it is done on return. */
int hvd__engine_run(struct hvd__engine *e, struct hvd_request *req);

/* Compares all arguments with the cached call and, if they are equal and the
 * engine is idle, runs it: the slow path of hvd__engine_again. */
int hvd__engine_run_again(struct hvd__engine *e, const struct hvd__given *given,
                          struct hvd_request *req, size_t *even, int *rc);

/* Repeats the cached blocking call if `given` equals its arguments and the
 * engine is idle.  Returns 1 with the call's status in *rc, or 0 if nothing was
 * done.  req and even ([HVD__EVEN_MAX]) are the caller's uninitialised memory:
 * a call that does not succeed at once is copied there and ended from there,
 * and req->err tells its failure. */
static inline int hvd__engine_again(struct hvd__engine *e,
                                    const struct hvd__given *given,
                                    struct hvd_request *req, size_t *even,
                                    int *rc)
{
    const void *hint =
        atomic_load_explicit(&e->again.hint, memory_order_relaxed);

    return hint && hint == given->sendbuf &&
           hvd__engine_run_again(e, given, req, even, rc);
}

/* Queues `req`.  Returns 0, or with err set and req still the caller's:
 *   -HVD_EDUPNAME     an operation of that name is in flight
 *   -HVD_EUNSUPPORTED the plane cannot carry it out
 *   -HVD_EINVAL       a join while something is in flight, or anything
 *                     after a join
 *   -HVD_ENOMEM       no memory
 *   -HVD_ESYSTEM      the engine thread cannot be started
 *   the status of `why` once the engine was halted */
int hvd__engine_submit(struct hvd__engine *e, struct hvd_request *req,
                       struct hb_error *err);

/* Waits until `req` is done, on the device too, or hb_now_ns() has reached
 * until_ns (0: no limit).  Returns 1 if it is done, with req->err set, else
 * 0. */
int hvd__engine_wait(struct hvd__engine *e, struct hvd_request *req,
                     uint64_t until_ns);

/* Drives the engine as far as possible without blocking.  Returns 1 when req is
 * done, on the device too, else 0. */
int hvd__engine_test(struct hvd__engine *e, struct hvd_request *req);

/* Waits until `req` is done or launched.  If launched, makes all later work on
 * `stream` wait for it. */
void hvd__engine_wait_on_stream(struct hvd__engine *e, struct hvd_request *req,
                                void *stream);

/* Waits for all launched operations.  Called after close and before the plane
 * is freed. */
void hvd__engine_drain(struct hvd__engine *e);

/* Asks the plane whether the job is over, if no thread drives and no operation
 * has begun; a driver would see it anyway.  Returns 0, or negative with err
 * set.  Any thread, while the plane exists; never blocks. */
int hvd__engine_look(struct hvd__engine *e, struct hb_error *err);

/* ---- For the controller ------------------------------------------------ */

/* Marks n requests as only launched, by the launches of `op`. */
void hvd__engine_launched(struct hvd__engine *e, struct hvd_request **reqs,
                          size_t n, const struct hvd__op *op);
/* Takes n requests off the queue and completes them with status rc. */
void hvd__engine_complete(struct hvd__engine *e, struct hvd_request **reqs,
                          size_t n, int rc);
/* Completes all queued requests with `err`. */
void hvd__engine_fail_all(struct hvd__engine *e, const struct hb_error *err);

#endif
