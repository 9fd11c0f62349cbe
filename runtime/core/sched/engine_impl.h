/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the engine: what its files share; see engine.h. */
#ifndef HVD_CORE_ENGINE_IMPL_H
#define HVD_CORE_ENGINE_IMPL_H

#include "runtime/core/sched/engine.h"

/* ---- engine.c ------------------------------------------------------------ */

/* Wakes the engine thread if requests are queued, no thread waits and none
 * drives. */
void engine_pass_on(struct hvd__engine *e);
void engine_wake_waiters(struct hvd__engine *e);

/* Returns 0, or -HVD_EUNSUPPORTED if the plane cannot carry out `op`.  For the
 * driver, or under the lock while `stopping` is not set: at other times the
 * plane may be gone. */
int engine_supports(const struct hvd__engine *e, const struct hvd__op *op,
                    struct hb_error *err);

/* Pauses the driver once, not beyond until_ns on hb_now_ns's clock (0: no
 * limit).  `alone` is the request that is carried out without the queue, or
 * NULL. */
void engine_pause(struct hvd__engine *e, const struct hvd_request *alone,
                  uint64_t until_ns);

/* Wakes a driver that waits for new requests, after one was queued; under the
 * lock. */
void engine_tell_driver(struct hvd__engine *e);
/* Sets *err to the reason for which the engine was halted; under the lock. */
int engine_stopped(const struct hvd__engine *e, const struct hvd_request *req,
                   struct hb_error *err);

/* Waits until `req` is done for the engine, or hb_now_ns() has reached until_ns
 * (0: no limit).  Returns whether it is done; it may be only launched. */
int engine_wait(struct hvd__engine *e, struct hvd_request *req,
                uint64_t until_ns);

/* Drives the engine as far as possible without blocking.  Returns whether the
 * engine is done with req; it may be only launched. */
int engine_test(struct hvd__engine *e, struct hvd_request *req);

/* ---- engine_queue.c ------------------------------------------------------ */

/* Sets req->entry: the plan's entry of the tensor's name, or plan->joining for
 * a join; under the lock.  Returns 0, or negative with err set if the name is
 * in flight, or a join and other operations would be in flight at once. */
int engine_find_entry(struct hvd__engine *e, struct hvd_request *req,
                      struct hb_error *err);
/* Appends `req`, whose entry is set, to the queue; under the lock. */
void engine_append_locked(struct hvd__engine *e, struct hvd_request *req);

/* Completes `req`, which is in no queue, with status rc, and tells its owner,
 * who may free it as soon as `done` is set.  Called without the lock, since the
 * owner's function is called. */
void engine_finish(struct hvd__engine *e, struct hvd_request *req, int rc);

/* ---- engine_stall.c ------------------------------------------------------ */

/* Notes that `req` is issued; called first of all.  Returns the call's number
 * for hvd__stall_returned. */
static inline uint64_t hvd__stall_issued(const struct hvd__stall_watch *w,
                                         struct hvd_request *req)
{
    struct segment_status *s = hvd__stall_on();

    if ((!s && !hvd__context.watches_itself) || w->set < 0)
        return 0;
    req->stall_ns = status_now_ns();
    if (!s)
        return 0;
    return status_call(s, req->stall_ns, req->op.kind, (uint32_t)w->set,
                       req->op.name);
}

/* Updates the stall inspector's list of what the engine waits for, and tells
 * the agent of a long wait.  The driver calls it through hvd__stall_paused
 * after each pause of the plane.  `alone` is the request that is carried out
 * without the queue, or NULL.  Takes the engine's lock. */
void hvd__stall_look(struct hvd__engine *e, const struct hvd_request *alone,
                     struct segment_status *s, uint64_t now_ns);

/* Reports a long wait of the engine, and gives up after the limit; called
 * instead of hvd__stall_look in a world of MPI. */
void hvd__stall_look_alone(struct hvd__engine *e,
                           const struct hvd_request *alone, uint64_t now_ns);

static inline void hvd__stall_paused(struct hvd__engine *e,
                                     const struct hvd_request *alone)
{
    struct segment_status *s = hvd__stall_on();
    uint64_t now_ns;

    if ((!s && !hvd__context.watches_itself) || e->stall.set < 0)
        return;
    now_ns = status_now_ns();
    if (!s) {
        if (now_ns >= e->stall.look_ns)
            hvd__stall_look_alone(e, alone, now_ns);
        return;
    }
    if (now_ns >= e->stall.look_ns || atomic_load(&s->asked) != s->answered)
        hvd__stall_look(e, alone, s, now_ns);
}

/* Updates the list after requests were completed.  Called under the engine's
 * lock if hvd__stall_listed. */
void hvd__stall_settle(struct hvd__engine *e);

/* ---- Who drives ---------------------------------------------------------- */

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
