/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the engine: what its files share; see engine.h. */
#ifndef HVD_CORE_ENGINE_IMPL_H
#define HVD_CORE_ENGINE_IMPL_H

#include "runtime/core/engine.h"

/* ---- engine.c ------------------------------------------------------------ */

/* Work is queued, and the last waiter or driver has gone: the engine
 * thread takes over. */
void engine_pass_on(struct hvd__engine *e);
void engine_wake_waiters(struct hvd__engine *e);

/* Sets the outcome; a request that somebody else holds may be freed as
 * soon as `done` is seen. */
void engine_finish(struct hvd__engine *e, struct hvd_request *req, int rc);

/* Whether the plane can carry it out: 0, or -HVD_EUNSUPPORTED.  The plane is
 * there for the driver and, until `stopping`, under the lock; nobody else may
 * look at it. */
int engine_supports(const struct hvd__engine *e, const struct hvd__op *op,
                    struct hb_error *err);

/* A driver's step of waiting.  alone: what it carries out without the queue,
 * or NULL. */
void engine_pause(struct hvd__engine *e, const struct hvd_request *alone);

/* To the queue, under the lock: the entry of its name; the request itself;
 * and then a driver that waits for something new. */
int engine_find_entry(struct hvd__engine *e, struct hvd_request *req,
                      struct hb_error *err);
void engine_append_locked(struct hvd__engine *e, struct hvd_request *req);
void engine_tell_driver(struct hvd__engine *e);
/* Why nothing can be queued any more; under the lock. */
int engine_stopped(const struct hvd__engine *e, const struct hvd_request *req,
                   struct hb_error *err);

/* Until the engine is done with it. */
void engine_wait(struct hvd__engine *e, struct hvd_request *req);

/* ---- engine_launch.c -------------------------------------------------------
 */

/* 1 when it is done on the device too. */
int engine_test_launch(struct hvd__engine *e, struct hvd_request *req);

/* ---- Who drives
 * -------------------------------------------------------------- */

static inline int engine_try_drive(struct hvd__engine *e, enum hvd__driver who)
{
    int none = HVD__DRIVER_NONE;

    return atomic_load(&e->driver) == HVD__DRIVER_NONE &&
           atomic_compare_exchange_strong(&e->driver, &none, (int)who);
}

static inline void engine_step_back(struct hvd__engine *e)
{
    atomic_store(&e->driver, HVD__DRIVER_NONE);
    if (atomic_load(&e->sleepers))
        engine_wake_waiters(e);
    if (atomic_load(&e->queued))
        engine_pass_on(e);
}

#endif
