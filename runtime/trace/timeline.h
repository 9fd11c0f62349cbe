/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline: a Chrome trace (a JSON array, one event per line) of what this
 * process does in all process sets.
 *
 * Drivers add one record per request and one per operation of a plane.  The
 * timeline's own thread turns records into events and writes them; it sleeps
 * while there is nothing to write.  Adding a record costs a mutex, a look-up
 * and a copy.  When the ring is full the record is dropped and counted, and the
 * file says so.  Without a timeline, the cost is the relaxed load of
 * hvd__timeline_on.
 *
 * The file is valid JSON as soon as open has returned, even when the process is
 * killed: each write replaces the closing bracket by events and a bracket,
 * never crosses a page, and a page is copied whole.  Only when the bracket
 * itself moves to the next page are there two copies, of one byte each.
 *
 * Lanes: each tensor name of a set is a "process" as in Horovod's timelines,
 * and so is each plane.  pid 0 carries the time of the start on the wall clock
 * and on CLOCK_MONOTONIC, by which timelines of several ranks can be put on one
 * clock.  Source: the Trace Event Format; Horovod's timeline.
 *
 * Who calls what:
 *
 *   hvd_init, after the knobs    hvd__timeline_knobs_read, then open if there
 *                                is a path
 *   hvd_timeline_start, _stop    open with the caller's path, close
 *   hvd_shutdown, and at exit    close
 *   where a request is issued    if (hvd__timeline_on())
 *                                    req->issued_ns = hb_now_ns();
 *   begin of an operation        if (hvd__timeline_on()) began = hb_now_ns();
 *   end of it, for each request  if (hvd__timeline_on()) add(REQUEST)
 *   once                         if (hvd__timeline_on()) add(OPERATION), with
 *                                the fused operation
 *   for each request             if it was traced from its begin,
 *                                add(ACTIVITY), for packing
 *                                (MEMCPY_IN_FUSION_BUFFER) and unpacking
 *                                (MEMCPY_OUT_FUSION_BUFFER)
 */
#ifndef HVD_TRACE_TIMELINE_H
#define HVD_TRACE_TIMELINE_H

#include "runtime/plane/op.h"

#include <stdatomic.h>

/* What HVD_TIMELINE or HOROVOD_TIMELINE, and HVD_TIMELINE_MARK_CYCLES ask
 * for. */
struct hvd__timeline_knobs {
    char *path; /* this rank's file, heap; NULL: it writes no timeline */
    unsigned flags;
};

/* Reads HVD_TIMELINE, the file of each rank without ".RANK", or if that is not
 * set HOROVOD_TIMELINE, the file of rank 0 alone; and HVD_TIMELINE_MARK_CYCLES.
 * DYNAMIC gives no path, since the program will call hvd_timeline_start.
 * Returns 0, -HVD_EINVAL (a knob), -HVD_ENOMEM. */
int hvd__timeline_knobs_read(struct hvd__timeline_knobs *k, int rank,
                             struct hb_error *err);
void hvd__timeline_knobs_fini(struct hvd__timeline_knobs *k);

/* Returns `path` with ".RANK" before the last dot of the file's name, or at its
 * end: heap memory, or NULL. */
char *hvd__timeline_path(const char *path, int rank);

enum hvd__timeline_what {
    HVD__TIMELINE_REQUEST,   /* on the lane of the tensor's name */
    HVD__TIMELINE_OPERATION, /* on the lane of the plane; marks the cycle */
    HVD__TIMELINE_ACTIVITY,  /* on the lane of the name: began .. done */
};

/* Times are on hb_now_ns's clock.  0: unknown, and the spans that begin or end
 * with it are left out.
 *
 *   issued .. agreed  NEGOTIATE_ALLREDUCE and so on; without agreed_ns, up
 *                     to began
 *   issued .. began   QUEUE, inside it
 *   agreed .. done    ALLREDUCE; without agreed_ns, from began */
struct hvd__timeline_event {
    enum hvd__timeline_what what;
    const struct hvd__op *op; /* kind, name, dtype, count, algorithm */
    const char *plane;        /* "shm"; constant */
    const char *activity;     /* "MEMCPY_IN_FUSION_BUFFER"; constant */
    int set;
    uint32_t fused; /* requests in the operation */
    uint64_t issued_ns, began_ns, agreed_ns, done_ns;
    int status; /* 0 or negative */
    /* Activities: the row of the lane; and how much of the time was spent, if
     * not all, else 0. */
    uint32_t row;
    uint64_t busy_ns;
};

/* The first row for packing and unpacking; requests use the rows before. */
enum { HVD__TIMELINE_COPY_ROW = 16 };

/* The rank that writes the timeline. */
struct hvd__timeline_owner {
    int rank, size;
    const char *host;   /* NULL or "": unknown */
    _Atomic int *is_on; /* out: whether a timeline runs */
};

/* Flags of a timeline that the environment asks for. */
enum {
    /* A second hvd_init of the process continues the file of the first. */
    HVD__TIMELINE_GO_ON = 1 << 8,
    /* So does another program of the same rank: the agent has already sent a
     * part of the file, and continues from there. */
    HVD__TIMELINE_OF_AGENT = 1 << 9,
};

/* Starts a timeline.  Returns 0, or with err set -HVD_EINVAL (one is running),
 * -HVD_ESYSTEM, -HVD_ENOENT, -HVD_EPERM, -HVD_ENOMEM. */
int hvd__timeline_open(const char *path, unsigned flags,
                       const struct hvd__timeline_owner *owner,
                       struct hb_error *err);

/* Writes the remaining records and ends the timeline.  Returns 0, also when
 * none runs, or -HVD_ESYSTEM with err set: the file is valid but incomplete. */
int hvd__timeline_close(struct hb_error *err);

/* Adds a record with copies of what `e` points to.  Any thread; never blocks
 * for long. */
void hvd__timeline_add(const struct hvd__timeline_event *e);

#endif
