/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes of a timeline: each tensor name of each process set and each plane
 * gets a number, once.  Called under the timeline's lock.
 */
#ifndef HVD_TRACE_TIMELINE_LANES_H
#define HVD_TRACE_TIMELINE_LANES_H

#include <stddef.h>
#include <stdint.h>

enum {
    TIMELINE_LANES_MAX = 1 << 16,
    TIMELINE_TIDS = 16, /* rows of a lane: operations without a name overlap */
};

struct timeline_lane {
    uint64_t key;
    char *name;
    uint64_t busy_until_ns[TIMELINE_TIDS];
};

/* Lane 0 is the process itself; events for which there is no room go there. */
struct timeline_lanes {
    struct timeline_lane *lanes; /* [count]; the first is lane 1 */
    uint32_t *index;             /* [cap]: 0, or a lane */
    size_t count, cap;
};

/* Returns the lane of a key; a new lane gets the name. */
uint32_t timeline_lane(struct timeline_lanes *l, uint64_t key, int set,
                       const char *name);

/* Returns a row of the lane that is free at from_ns, and occupies it until
 * to_ns. */
uint32_t timeline_lane_row(struct timeline_lanes *l, uint32_t lane,
                           uint64_t from_ns, uint64_t to_ns);

void timeline_lanes_fini(struct timeline_lanes *l);

#endif
