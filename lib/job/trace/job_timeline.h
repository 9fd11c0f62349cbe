/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges the timelines of all ranks into one file, on one clock.
 *
 * What a rank's agent sends is split into lines, one event each; an event is
 * put on hvdrun's clock, gets a process id of its own, and is written at once.
 * At most one line per rank is kept in memory, and the file is valid at any
 * moment (lib/base/sys/trace_file.h).  Lines that are not events are left out
 * and counted.
 *
 * A rank's first event says when its timeline began by its host's monotonic
 * clock; the caller passes in that clock's offset from ours, measured on the
 * control connection (offset.h).
 *
 * Process ids: rank << TIMELINE_PID_BITS, plus the rank's own number of the
 * lane; names get "[rank] " in front.
 */
#ifndef HVD_JOB_TIMELINE_H
#define HVD_JOB_TIMELINE_H

#include "lib/base/error.h"
#include "lib/base/sys/trace_file.h"
#include "lib/job/trace/offset.h"

enum {
    TIMELINE_PID_BITS = 17,
    /* a longer one is not an event */
    TIMELINE_LINE_MAX = 2 * HB_TRACE_ELEMENT_MAX,
    TIMELINE_RANK_MAX = 1 << 30, /* bytes per rank; the rest is left out */
    TIMELINE_ALL_MAX_GIB = 16,   /* of all ranks */
};

struct timeline_rank {
    int rank;
    int has_shift;               /* shift_ns is known */
    int64_t shift_ns;            /* to be added to the rank's times */
    uint64_t events, bad, bytes; /* bytes: accepted */
    int is_cut;                  /* later bytes were left out */
    size_t len;                  /* of line */
    char *line;                  /* incomplete; NULL before the first byte */
};

struct timeline {
    struct hb_trace_file file;
    uint64_t origin_ns; /* our monotonic clock at time 0 */
    uint64_t wall_ns;   /* the wall clock at time 0 */
    uint64_t bytes;     /* accepted, of all ranks */
    uint64_t rank_max;  /* TIMELINE_RANK_MAX, or less in tests */
    uint64_t all_max;   /* TIMELINE_ALL_MAX_GIB, in bytes; less in tests */
};

/* Creates or replaces the file.  0, or negative with err set. */
int timeline_open(struct timeline *t, const char *path, struct hb_error *err);
/* Closes the file: 0, or the errno of the first failed write. */
int timeline_close(struct timeline *t);
/* Writes what is buffered; 1 if nothing was lost so far. */
int timeline_flush(struct timeline *t);

/* Takes bytes of a rank's timeline.  clock: its host's; NULL: ours. */
void timeline_feed(struct timeline *t, struct timeline_rank *r,
                   const struct offset *clock, const void *bytes, size_t len);
/* Takes the rank's last line, and frees its memory. */
void timeline_end(struct timeline *t, struct timeline_rank *r,
                  const struct offset *clock);
/* Returns 1 if part of the rank's timeline was left out as too much. */
int timeline_is_cut(const struct timeline_rank *r);
void timeline_rank_fini(struct timeline_rank *r);

#endif
