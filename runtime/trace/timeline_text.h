/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a timeline as JSON text, one per call, into a bounded
 * buffer; see timeline.h for what they mean.  Pure.
 */
#ifndef HVD_TRACE_TIMELINE_TEXT_H
#define HVD_TRACE_TIMELINE_TEXT_H

#include "lib/base/sys/trace_file.h"
#include "runtime/trace/timeline.h"

enum { TIMELINE_LANE_BYTES = HVD__NAME_BYTES + 64 };

struct timeline_text {
    size_t len;
    char bytes[HB_TRACE_ELEMENT_MAX];
};

/* A record in the ring: an event that borrows nothing; a lane number replaces
 * its name. */
struct timeline_record {
    enum hvd__timeline_what what;
    enum hvd__kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op;
    int set, status;
    uint32_t fused, lane, tid;
    uint64_t count, bytes;
    const char *plane, *algorithm, *activity;
    uint64_t issued_ns, began_ns, agreed_ns, done_ns, busy_ns;
};

/* The metadata of pid 0. */
struct timeline_start {
    struct hvd__timeline_owner owner;
    uint64_t wall_ns, monotonic_ns; /* the same moment */
};

void timeline_text_start(struct timeline_text *t,
                         const struct timeline_start *s);
/* Appends the name of a lane, which is made printable, or its place in the
 * order. */
void timeline_text_lane(struct timeline_text *t, uint32_t lane,
                        const char *name);
void timeline_text_order(struct timeline_text *t, uint32_t lane);
void timeline_text_dropped(struct timeline_text *t, uint64_t at_ns,
                           uint64_t records);
void timeline_text_cycle(struct timeline_text *t, uint64_t at_ns);

/* The spans that a record may have; each has begin <= end, or is left out. */
enum timeline_span {
    TIMELINE_NEGOTIATE,
    TIMELINE_QUEUE,
    TIMELINE_WORK,
    TIMELINE_SPANS
};

/* Writes one span.  Returns 1, or 0 when the record has no such span. */
int timeline_text_span(struct timeline_text *t, const struct timeline_record *r,
                       enum timeline_span span, uint64_t base_ns);

#endif
