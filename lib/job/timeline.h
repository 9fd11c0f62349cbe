/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timelines of all ranks as one file, on one clock.
 *
 * What a rank's agent sends is taken apart into lines, each an event; an
 * event gets hvdrun's clock and a process id of its own, and goes into the
 * file at once: nothing is kept but one line per rank, and the file is valid
 * at any moment (lib/base/trace_file.h).  What is no event is left out and
 * counted.
 *
 * A rank's first event says when its timeline began by its host's monotonic
 * clock; how that differs from ours is measured on the control connection
 * (offset.h), and told by the caller.
 *
 * Process ids: rank << TIMELINE_PID_BITS, plus the rank's own number of the
 * lane; names get "[rank] " in front.
 */
#ifndef HVD_JOB_TIMELINE_H
#define HVD_JOB_TIMELINE_H

#include "lib/base/error.h"
#include "lib/base/trace_file.h"
#include "lib/job/offset.h"

enum {
    TIMELINE_PID_BITS = 17,
    TIMELINE_LINE_MAX = 2 * HB_TRACE_ELEMENT_MAX, /* a longer one is none */
};

struct timeline_rank {
    int rank;
    int begun;        /* shift_ns is known */
    int64_t shift_ns; /* what its times are too small by */
    uint64_t events, bad;
    size_t len; /* of line */
    char *line; /* not yet whole; NULL before the first byte */
};

struct timeline {
    struct hb_trace_file file;
    uint64_t origin_ns; /* time 0, by our monotonic clock */
    uint64_t wall_ns;   /* the same by the wall clock */
};

/* Makes or replaces the file.  0, or negative with err set. */
int timeline_open(struct timeline *t, const char *path, struct hb_error *err);
/* 0, or the errno for which not all of it was written. */
int timeline_close(struct timeline *t);
/* As far as it goes; 1 when nothing was lost. */
int timeline_flush(struct timeline *t);

/* Bytes of a rank's file.  clock: of its host; NULL: ours. */
void timeline_feed(struct timeline *t, struct timeline_rank *r,
                   const struct offset *clock, const void *bytes, size_t len);
/* Its last line. */
void timeline_end(struct timeline *t, struct timeline_rank *r,
                  const struct offset *clock);
void timeline_rank_fini(struct timeline_rank *r);

#endif
