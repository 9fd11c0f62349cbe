/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's half of the stall inspector: it writes down what it does where
 * its agent can read it (lib/protocol/status.h), and tells the agent when it
 * has waited for longer than HVD_STALL_CHECK_TIME_SECONDS (or
 * HVD_STALL_SHUTDOWN_TIME_SECONDS, if that is less).  hvdrun then asks where
 * all ranks are, and decides.
 *
 * An operation that is issued costs a reading of the coarse clock and some
 * plain stores.  Everything else happens in the driver, after a pause: no
 * thread and no timer is needed, since who waits wakes up now and then
 * anyhow, and who does not wait has nothing to tell.
 *
 * What is launched on a device has nobody who waits in the driver: the plane's
 * own watch calls hvd__stall_device now and then while something is.
 *
 * In a world of one, or without hvdrun, nothing is done at all.
 */
#ifndef HVD_TRACE_STALL_H
#define HVD_TRACE_STALL_H

#include "lib/base/error.h"
#include "lib/protocol/segment.h"
#include "runtime/core/request.h"
#include "runtime/plugins/gpu.h"

struct hvd__engine;
struct hvd__agent;

/* Of one engine. */
struct hvd__stall_watch {
    int set;            /* number of the process set */
    uint64_t look_ns;   /* the driver's: not before that is looked again */
    _Atomic int listed; /* what this engine waits for is in the list */
};

struct hvd__stall_config {
    struct segment_status *status;
    struct hvd__agent *agent; /* lives until hvd__stall_close */
    const struct segment_head *head;
};

/* After the segment is there.  0, or -HVD_EINVAL for a knob with err set. */
int hvd__stall_open(const struct hvd__stall_config *config,
                    struct hb_error *err);
void hvd__stall_close(void); /* before the segment goes; idempotent */

/* This rank is, or is not any more, a member of a process set. */
void hvd__stall_member(int set, int is);

/* What a process set waits for on its device; NULL: nothing any more.  Any
 * thread, with no lock but its own. */
void hvd__stall_device(int set, const struct hvd__gpu_wait *w);
/* Where to count what a set launches; NULL: nobody looks. */
_Atomic uint64_t *hvd__stall_launched(int set);
/* Who keeps this rank waiting, as far as hvdrun knows since then: 1, and it is
 * in err, rank -1 if there is none to be named; 0: it was asked, and has not
 * said it; -1: it was not. */
int hvd__stall_culprit(uint64_t since_ns, struct hb_error *err);

/* NULL: there is nobody to tell. */
extern struct segment_status *_Atomic hvd__stall_status;

static inline struct segment_status *hvd__stall_on(void)
{
    /* Relaxed: set before hvd__alive, which all calls look at. */
    return atomic_load_explicit(&hvd__stall_status, memory_order_relaxed);
}

/* An operation is issued: the first thing that is done with a request.
 * Returns its number for hvd__stall_returned. */
static inline uint64_t hvd__stall_issued(const struct hvd__stall_watch *w,
                                         struct hvd_request *req)
{
    struct segment_status *s = hvd__stall_on();

    if (!s)
        return 0;
    req->stall_ns = status_now_ns();
    return status_call(s, req->stall_ns, req->op.kind, (uint32_t)w->set,
                       req->op.name);
}

/* The call gives control back to the program. */
static inline void hvd__stall_returned(uint64_t number)
{
    struct segment_status *s = hvd__stall_on();

    if (s)
        status_returned(s, number);
}

/* The driver's, after each pause of the plane.  alone: what it carries out
 * without the queue, or NULL.  Takes the engine's lock when there is
 * something to be done. */
void hvd__stall_look(struct hvd__engine *e, const struct hvd_request *alone,
                     struct segment_status *s, uint64_t now_ns);

static inline void hvd__stall_paused(struct hvd__engine *e,
                                     struct hvd__stall_watch *w,
                                     const struct hvd_request *alone)
{
    struct segment_status *s = hvd__stall_on();
    uint64_t now_ns;

    if (!s)
        return;
    now_ns = status_now_ns();
    if (now_ns >= w->look_ns || atomic_load(&s->asked) != s->answered)
        hvd__stall_look(e, alone, s, now_ns);
}

/* Requests were completed: what was told is not true any more.  settle is
 * called under the engine's lock. */
void hvd__stall_settle(struct hvd__engine *e);

static inline int hvd__stall_listed(const struct hvd__stall_watch *w)
{
    /* Relaxed: only a driver sets it, and this is the driver. */
    return atomic_load_explicit(&w->listed, memory_order_relaxed);
}

#endif
