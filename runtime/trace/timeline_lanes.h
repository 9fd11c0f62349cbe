/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes of a timeline: a number for each tensor name of each process set
 * and for each plane, given once.  Under the timeline's lock.
 */
#ifndef HVD_TRACE_TIMELINE_LANES_H
#define HVD_TRACE_TIMELINE_LANES_H

#include <stddef.h>
#include <stdint.h>

enum {
    TIMELINE_LANES_MAX = 1 << 16,
    TIMELINE_TIDS = 16, /* of one lane: what has no name may overlap */
};

struct timeline_lane {
    uint64_t key;
    char *name;
    uint64_t busy_until_ns[TIMELINE_TIDS];
};

/* Lane 0 is the process itself; it also takes what has no room. */
struct timeline_lanes {
    struct timeline_lane *lanes; /* [count]; the first is lane 1 */
    uint32_t *index;             /* [cap]: 0, or a lane */
    size_t count, cap;
};

/* The lane of a key, named when it is new. */
uint32_t timeline_lane(struct timeline_lanes *l, uint64_t key, int set,
                       const char *name);

/* A row of the lane that is free from from_ns on, until to_ns from now on. */
uint32_t timeline_lane_row(struct timeline_lanes *l, uint32_t lane,
                           uint64_t from_ns, uint64_t to_ns);

void timeline_lanes_fini(struct timeline_lanes *l);

#endif
