/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline: a Chrome trace (a JSON array, one event per line) of what
 * this process's ranks of all process sets do.
 *
 * Drivers hand over one record per request and one per operation of a plane;
 * a thread of its own turns them into events and writes those.  It sleeps
 * while there is nothing to write.  Handing over costs a mutex, a look-up
 * and a copy; a full ring drops the record and counts it, and the file says
 * so.  Off, it costs the relaxed load of hvd__timeline_on.
 *
 * The file is valid JSON from the return of open on, also when the process
 * is killed: a write replaces the closing bracket by events and a bracket,
 * never crosses a page, and a page is copied whole.  Only the bracket's own
 * step to the next page is two copies, of one byte each.
 *
 * Lanes: each tensor name of a set is a "process" as in Horovod's
 * timelines, and so is each plane.  pid 0 carries the start on the wall
 * clock and on CLOCK_MONOTONIC, from which timelines of several ranks can be
 * laid on one clock.  Source: the Trace Event Format; Horovod's timeline.
 *
 * What the engine calls:
 *
 *   hvd_init, after the knobs    hvd__timeline_knobs, then open if it has a
 *                                path
 *   hvd_timeline_start, _stop    open with the caller's path, close
 *   hvd_shutdown, and at exit    close
 *   where a request is issued    if (hvd__timeline_on())
 *                                    req->issued_ns = hb_now_ns();
 *   begin of an operation        if (hvd__timeline_on()) began = hb_now_ns();
 *   run_over, of each request    if (hvd__timeline_on()) add(REQUEST)
 *   run_over, once               if (hvd__timeline_on()) add(OPERATION), with
 *                                the fused operation
 *   around a copy that is no     if (hvd__timeline_on()) add(ACTIVITY)
 *   part of the data's way
 */
#ifndef HVD_TRACE_TIMELINE_H
#define HVD_TRACE_TIMELINE_H

#include "runtime/plane/op.h"

#include <stdatomic.h>

/* What HVD_TIMELINE and HVD_TIMELINE_MARK_CYCLES ask for. */
struct hvd__timeline_knobs {
    char *path; /* of this rank, heap; NULL: none */
    unsigned flags;
};

/* HVD_TIMELINE=DYNAMIC is none: hvd_timeline_start may come.  0, -HVD_EINVAL
 * (a knob), -HVD_ENOMEM. */
int hvd__timeline_knobs_read(struct hvd__timeline_knobs *k, int rank,
                             struct hb_error *err);
void hvd__timeline_knobs_fini(struct hvd__timeline_knobs *k);

/* PATH with ".RANK" before the last dot of the file's name, or at its end;
 * heap memory, or NULL. */
char *hvd__timeline_path(const char *path, int rank);

enum hvd__timeline_what {
    HVD__TIMELINE_REQUEST,   /* on the lane of its name */
    HVD__TIMELINE_OPERATION, /* on the lane of the plane; marks the cycle */
    HVD__TIMELINE_ACTIVITY,  /* on the lane of its name: began .. done */
};

/* Times are hb_now_ns; 0: not known, and then what begins or ends with it is
 * left out.
 *
 *   issued .. agreed  NEGOTIATE_ALLREDUCE and so on; without agreed_ns, up
 *                     to began
 *   issued .. began   in it, QUEUE
 *   agreed .. done    ALLREDUCE; without agreed_ns, from began
 */
struct hvd__timeline_event {
    enum hvd__timeline_what what;
    const struct hvd__op *op; /* kind, name, dtype, count, algorithm */
    const char *plane;        /* "shm"; constant */
    const char *activity;     /* "MEMCPY_IN_FUSION_BUFFER"; constant */
    int set;
    uint32_t fused; /* requests in the operation */
    uint64_t issued_ns, began_ns, agreed_ns, done_ns;
    int status; /* 0 or negative */
};

/* Who writes it. */
struct hvd__timeline_owner {
    int rank, size;
    const char *host; /* NULL or "": not told */
};

extern _Atomic int hvd__timeline_state;

/* Any thread; when it changes, events of a moment may be lost. */
static inline int hvd__timeline_on(void)
{
    /* Relaxed: whoever goes on looks again under the lock. */
    return atomic_load_explicit(&hvd__timeline_state, memory_order_relaxed);
}

/* A flag, of HVD_TIMELINE's: the second hvd_init of a process goes on with
 * the file of the first. */
enum { HVD__TIMELINE_GO_ON = 1 << 8 };

/* Starts one.  0; or with err set -HVD_EINVAL (one is running), -HVD_ESYSTEM,
 * -HVD_ENOENT, -HVD_EPERM, -HVD_ENOMEM. */
int hvd__timeline_open(const char *path, unsigned flags,
                       const struct hvd__timeline_owner *owner,
                       struct hb_error *err);

/* Writes what was handed over and ends it.  0, also when none runs; or with
 * err set -HVD_ESYSTEM: the file is valid and not complete. */
int hvd__timeline_close(struct hb_error *err);

/* Any thread; never blocks for long: copies what it needs. */
void hvd__timeline_add(const struct hvd__timeline_event *e);

#endif
