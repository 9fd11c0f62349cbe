/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: carries out operations in the order they were issued.
 *
 * One thread at a time, the driver, calls the plane.  A thread that waits
 * becomes the driver if there is none, so a blocking call runs in its own
 * thread from start to end, without a lock and without a wake-up.  The
 * engine thread, started by the first asynchronous operation, drives only
 * while operations are queued and nobody waits; otherwise it sleeps.
 *
 * `driver`, `queued`, `waiters` and `sleepers` are sequentially consistent
 * on purpose: each side of a hand-over writes one of them and then reads
 * another (release the driver, look for work; add work, look for a
 * driver).  The oldest request belongs to the driver; the links of the
 * queue to `lock`.
 *
 * The object is never freed: a request may be waited for after close.
 */
#ifndef HVD_CORE_ENGINE_H
#define HVD_CORE_ENGINE_H

#include "runtime/core/request.h"
#include "runtime/plane/plane.h"

#include <pthread.h>

enum hvd__driver {
    HVD__DRIVER_NONE,
    HVD__DRIVER_CALLER,
    HVD__DRIVER_THREAD, /* the engine thread: gives way to waiters */
};

struct hvd__engine {
    struct hvd__plane *plane;
    _Atomic int driver;        /* enum hvd__driver */
    _Atomic unsigned queued;   /* requests in the queue */
    _Atomic unsigned waiters;  /* threads inside hvd__engine_wait */
    _Atomic unsigned sleepers; /* of those, the ones in `turn` */
    _Atomic int stopping;

    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t turn;  /* a request is done or the driver stepped back */
    pthread_cond_t work;  /* for the engine thread */
    struct hvd_request *head, *tail;
    int thread_started;
    int thread_idle; /* it sleeps in `work` and was not woken yet */
    pthread_t thread;
};

/* clang-format off */
#define HVD__ENGINE_INIT \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER, \
      .work = PTHREAD_COND_INITIALIZER }
/* clang-format on */

/* Takes the plane into use; it stays the caller's, until after close. */
void hvd__engine_open(struct hvd__engine *e, struct hvd__plane *plane);

/* Stops: the operation in progress and all queued ones complete with
 * HVD_ESHUTDOWN, the engine thread ends. */
void hvd__engine_close(struct hvd__engine *e);

/* Carries out one operation, after those already queued, and returns its
 * status.  req is the caller's, initialised, and done on return. */
int hvd__engine_run(struct hvd__engine *e, struct hvd_request *req);

/* Queues a request: 0, or -HVD_EDUPNAME, -HVD_EUNSUPPORTED (by the plane),
 * -HVD_ESHUTDOWN, -HVD_ESYSTEM (no thread) with err set, and then the
 * request is still the caller's. */
int hvd__engine_submit(struct hvd__engine *e, struct hvd_request *req,
                       struct hb_error *err);

void hvd__engine_wait(struct hvd__engine *e, struct hvd_request *req);

/* Goes on with the work without blocking; 1 when req is done. */
int hvd__engine_test(struct hvd__engine *e, struct hvd_request *req);

#endif
