/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's half of the stall inspector.  It lists what the rank waits for in
 * memory that its agent reads (lib/protocol/status.h), and tells the agent when
 * the rank has waited for longer than HVD_STALL_CHECK_TIME_SECONDS (or
 * HVD_STALL_SHUTDOWN_TIME_SECONDS, if that is less).  hvdrun then asks where
 * all ranks are, and decides.
 *
 * Issuing an operation costs a reading of the coarse clock and some plain
 * stores.  All else happens in the driver, after a pause.  No thread or timer
 * is needed: a rank that waits wakes up now and then anyhow, and one that does
 * not wait has nothing to report.
 *
 * No driver waits for operations launched on a device.  For these, the plane's
 * watch calls hvd__stall_device now and then.
 *
 * Nothing is done in a world of one.  In a world of MPI, which hvdrun does not
 * watch, the ranks report long waits themselves (core/sched/engine_stall.c).
 */
#ifndef HVD_TRACE_STALL_H
#define HVD_TRACE_STALL_H

#include "lib/base/error.h"
#include "lib/protocol/segment.h"
#include "lib/protocol/status.h"
#include "runtime/plane/device_op.h"

/* The watch of one engine. */
struct hvd__stall_watch {
    int set;            /* number of the process set */
    uint64_t look_ns;   /* time of the next look; the driver's */
    _Atomic int listed; /* requests of this engine are in the list */
    /* In a world of MPI, the last wait that this rank has seen: the number of
     * the operation or negotiation, when the wait was first seen (0: there is
     * none), how long it had lasted at the last warning, and the member that
     * has not begun the operation (-1: the members have begun different ones).
     */
    uint64_t number, since_ns, warned_ns;
    int whom;
};

/* How long operations may wait, in milliseconds; 0: for ever. */
struct hvd__stall_limits {
    uint32_t warning_ms, shutdown_ms;
};
/* Reads the knobs; both limits are 0 if the stall check is off.  Returns 0, or
 * -HVD_EINVAL for a knob with err set. */
int hvd__stall_limits(struct hvd__stall_limits *l, struct hb_error *err);

struct hvd__stall_config {
    const struct segment_head *head;
    /* Sends a frame to the agent, or drops it.  Called by any thread until
     * hvd__stall_close. */
    void (*say)(void *arg, const void *frame, size_t len);
    void *say_arg;
};

/* An operation that a process set waits for. */
struct hvd__stall_wait {
    uint64_t since_ns, key; /* key: the same on all ranks */
    enum hvd__kind kind;
    const char *name; /* copied */
};

/* All that the engine of a process set waits for. */
struct hvd__stall_waits {
    int set;
    uint32_t asked;    /* status->asked before this was made */
    uint32_t pending;  /* requests, listed or not */
    uint64_t since_ns; /* since when others keep the set waiting; 0: they do
                          not */
    int count;
    struct hvd__stall_wait waits[STATUS_WAITS_MAX]; /* the oldest ones */
};

/* Starts the stall inspector; called when the segment is mapped.  Returns 0, or
 * -HVD_EINVAL for a knob with err set. */
int hvd__stall_open(const struct hvd__stall_config *config,
                    struct hb_error *err);
void hvd__stall_close(void); /* before the segment goes; idempotent */

/* As the number of a process set: it is not watched, since its members alone
 * know of it. */
enum { HVD__STALL_UNWATCHED = -1 };

/* `s` is the status of this rank.  If it is NULL, there is no inspector, and
 * these functions do nothing. */

/* Notes that this rank is, or no longer is, a member of a process set. */
void hvd__stall_member(struct segment_status *s, int set, int is);

/* Lists what a process set waits for on its device; w NULL: nothing any more.
 * Any thread; takes no lock but its own. */
void hvd__stall_device(struct segment_status *s, int set,
                       const struct hvd__gpu_wait *w);
/* Returns the counter of a set's launches, or NULL if nobody reads it. */
_Atomic uint64_t *hvd__stall_launched(struct segment_status *s, int set);
/* Asks which rank keeps this one waiting, by hvdrun's reports since since_ns:
 *    1  err tells it; err->rank is -1 if no rank can be named
 *    0  the agent was told of the wait, but no report has come
 *   -1  the agent was not told */
int hvd__stall_culprit(uint64_t since_ns, struct hb_error *err);

/* Publishes how many operations of a process set this rank has carried out. */
static inline void hvd__stall_carried_out(struct segment_status *s, int set,
                                          uint64_t count)
{
    if (s && set >= 0)
        status_put(&s->carried_out[set], count);
}

/* Notes that the call of that number returns to the program; 0: none. */
static inline void hvd__stall_returned(struct segment_status *s,
                                       uint64_t number)
{
    if (s && number)
        status_returned(s, number);
}

/* Replaces what is listed of a process set by `w`, publishes the list, and
 * tells the agent when a long wait begins or ends.  Returns the wait after
 * which the agent is told; 0: it never is.  The driver calls it. */
uint64_t hvd__stall_publish(const struct hvd__stall_waits *w,
                            struct segment_status *s, uint64_t now_ns);

static inline int hvd__stall_listed(const struct hvd__stall_watch *w)
{
    /* Relaxed: only a driver sets it, and this is the driver. */
    return atomic_load_explicit(&w->listed, memory_order_relaxed);
}

#endif
