/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a process set: who carries out its operations, and when;
 * what comes next is the controller's to say (controller.h).
 *
 * One thread at a time, the driver, calls the controller and the plane.  A
 * thread that waits
 * becomes the driver if there is none, so a blocking call runs in its own
 * thread from start to end, without a lock and without a wake-up.  The
 * engine thread, started by the first asynchronous operation, drives only
 * while operations are queued and nobody waits; otherwise it sleeps.
 *
 * `driver`, `queued`, `waiters` and `sleepers` are sequentially consistent
 * on purpose: each side of a hand-over writes one of them and then reads
 * another (release the driver, look for work; add work, look for a
 * driver).  The links of the queue belong to `lock`.
 *
 * The object is never freed: a request may be waited for after close.
 */
#ifndef HVD_CORE_ENGINE_H
#define HVD_CORE_ENGINE_H

#include "runtime/core/controller.h"
#include "runtime/trace/stall.h"

#include <pthread.h>

enum { HVD__EVEN_MAX = 64 }; /* ranks of an alltoall that is remembered */

enum hvd__driver {
    HVD__DRIVER_NONE,
    HVD__DRIVER_CALLER,
    HVD__DRIVER_THREAD, /* the engine thread: gives way to waiters */
};

/* The last blocking call: most calls are like the one before, and what is
 * made of their arguments is a third of a small operation.  The driver's, but
 * for hint. */
struct hvd__again {
    _Atomic(const void *) hint; /* given.sendbuf when req is there */
    struct hvd__given given;
    struct hvd_request req;
    size_t even[HVD__EVEN_MAX]; /* alltoall: req's sendcounts */
};

struct hvd__engine {
    struct hvd__plane *plane;
    struct hvd__controller controller;
    struct hvd__stall_watch stall;
    struct hvd__again again;
    _Atomic int driver;        /* enum hvd__driver */
    _Atomic unsigned queued;   /* requests in the queue */
    _Atomic unsigned waiters;  /* threads inside hvd__engine_wait */
    _Atomic unsigned sleepers; /* of those, the ones in `turn` */
    _Atomic int stopping;
    /* Of device memory: what is done, for the engine, when it was launched. */
    _Atomic unsigned holders;   /* threads that wait for it; none drives */
    _Atomic uint64_t opened;    /* how often the engine was */
    _Atomic int drained;        /* it is closed and nothing is under way */
    uint64_t launched;          /* the last; the driver's */
    struct hb_error launch_err; /* what became of it; before drained */

    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t turn;  /* a request is done or the driver stepped back */
    pthread_cond_t work;  /* for the engine thread */
    struct hvd_request *head, *tail;
    struct hvd_request *last_unnamed;
    struct hb_error why; /* it was stopped */
    int cpu;             /* core of the engine thread, or -1; set after open */
    int thread_started;
    int thread_idle; /* it sleeps in `work` and was not woken yet */
    pthread_t thread;
};

/* clang-format off */
#define HVD__ENGINE_INIT \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER, \
      .work = PTHREAD_COND_INITIALIZER }
/* clang-format on */

/* Takes the plane into use; it stays the caller's, until after close.
 * ranks: of the set, n of the world, ascending, copied; this one is ranks[me].
 * 0 or -HVD_ENOMEM. */
int hvd__engine_open(struct hvd__engine *e, struct hvd__plane *plane,
                     const int *ranks, int n, int me);

/* When it returns nobody goes on with anything, and nobody begins, because of
 * `why`; what is in progress or queued waits for close.  The engine thread has
 * ended. */
void hvd__engine_halt(struct hvd__engine *e, const struct hb_error *why);

/* Stops, if it was not halted: the operation in progress and all queued ones
 * complete with `why`.  The controller's counters stay. */
void hvd__engine_close(struct hvd__engine *e, const struct hb_error *why);

/* Carries out one operation that has no name, after those already queued,
 * and returns its status.  req is the caller's, initialised, its signature
 * set, and done on return. */
int hvd__engine_run(struct hvd__engine *e, struct hvd_request *req);

/* For the next: when it looks like the same. */
int hvd__engine_run_again(struct hvd__engine *e, const struct hvd__given *given,
                          struct hvd_request *req, size_t *even, int *rc);

/* Carries out the same call as the last one, if it is that and nothing else
 * is to be done: 1 and its status in *rc.  req and even (HVD__EVEN_MAX): the
 * caller's memory, for what cannot be carried out at once; its error is
 * there. */
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

/* Queues a request: 0, or -HVD_EDUPNAME, -HVD_EUNSUPPORTED (by the plane),
 * -HVD_EINVAL (a join while something is in flight, or something after it),
 * -HVD_ESHUTDOWN, -HVD_ENOMEM, -HVD_ESYSTEM (no thread) with err set, and
 * then the request is still the caller's. */
int hvd__engine_submit(struct hvd__engine *e, struct hvd_request *req,
                       struct hb_error *err);

/* Until its result is there. */
void hvd__engine_wait(struct hvd__engine *e, struct hvd_request *req);

/* Goes on with the work without blocking; 1 when req is done. */
int hvd__engine_test(struct hvd__engine *e, struct hvd_request *req);

/* Until it was launched at least; the stream's later work comes after it. */
void hvd__engine_wait_on_stream(struct hvd__engine *e, struct hvd_request *req,
                                void *stream);

/* Between close and the end of the plane: waits for what was launched. */
void hvd__engine_drain(struct hvd__engine *e);

/* Any thread, as long as there is the plane: negative with err set when the
 * job is over, as far as can be seen between operations.  Never blocks. */
int hvd__engine_look(struct hvd__engine *e, struct hb_error *err);

/* ---- For the controller ------------------------------------------------ */

/* What was carried out for n requests is only launched. */
void hvd__engine_launched(struct hvd__engine *e, struct hvd_request **reqs,
                          size_t n, uint64_t launch);
/* Takes n requests off the queue and completes them with rc. */
void hvd__engine_complete(struct hvd__engine *e, struct hvd_request **reqs,
                          size_t n, int rc);
/* All of the queue, with that error. */
void hvd__engine_fail_all(struct hvd__engine *e, const struct hb_error *err);

#endif
