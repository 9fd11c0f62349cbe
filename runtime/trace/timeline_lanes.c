/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes by key: a hash table with open addressing, at most half full. */
#include "runtime/trace/timeline_lanes.h"

#include "lib/base/alloc.h"
#include "runtime/plane/op.h"

#include <stdio.h>
#include <string.h>

enum { LANES_MIN = 64 };

static uint32_t *slot_of(const struct timeline_lanes *l, uint64_t key)
{
    size_t at = (size_t)(hvd__mix(key, 0) & (l->cap - 1));

    while (l->index[at] && l->lanes[l->index[at] - 1].key != key)
        at = (at + 1) & (l->cap - 1);
    return &l->index[at];
}

/* Makes room for one more lane, by doubling the table if needed. */
static int make_room(struct timeline_lanes *l)
{
    size_t cap = l->cap ? 2 * l->cap : LANES_MIN;
    struct timeline_lane *lanes;
    uint32_t *index;

    if (2 * (l->count + 1) <= l->cap)
        return 0;
    if (l->count >= TIMELINE_LANES_MAX)
        return -HVD_ENOMEM;
    lanes = hb_realloc_array(l->lanes, cap / 2, sizeof(*lanes));
    if (!lanes)
        return -HVD_ENOMEM;
    l->lanes = lanes;
    index = hb_calloc(cap, sizeof(*index));
    if (!index)
        return -HVD_ENOMEM;
    hb_free(l->index);
    l->index = index;
    l->cap = cap;
    for (uint32_t i = 0; i < l->count; i++)
        *slot_of(l, lanes[i].key) = i + 1;
    return 0;
}

static char *make_name(int set, const char *name)
{
    char text[HVD__NAME_BYTES + 32];

    if (set == 0)
        return hb_strdup(name);
    snprintf(text, sizeof(text), "set %d: %s", set, name);
    return hb_strdup(text);
}

uint32_t timeline_lane(struct timeline_lanes *l, uint64_t key, int set,
                       const char *name)
{
    struct timeline_lane *lane;
    uint32_t *slot;

    key = hvd__mix(key, (uint64_t)set);
    if (l->cap && *(slot = slot_of(l, key)))
        return *slot;
    if (make_room(l) < 0)
        return 0;
    lane = &l->lanes[l->count];
    memset(lane, 0, sizeof(*lane));
    lane->key = key;
    lane->name = make_name(set, name);
    if (!lane->name)
        return 0;
    slot = slot_of(l, key);
    return *slot = (uint32_t)++l->count;
}

uint32_t timeline_lane_row(struct timeline_lanes *l, uint32_t lane,
                           uint64_t from_ns, uint64_t to_ns)
{
    uint64_t *busy;
    uint32_t row = 0;

    if (lane == 0)
        return 0;
    busy = l->lanes[lane - 1].busy_until_ns;
    while (row < TIMELINE_TIDS - 1 && busy[row] > from_ns)
        row++;
    if (to_ns > busy[row])
        busy[row] = to_ns;
    return row;
}

void timeline_lanes_fini(struct timeline_lanes *l)
{
    for (size_t i = 0; i < l->count; i++)
        hb_free(l->lanes[i].name);
    hb_free(l->lanes);
    hb_free(l->index);
    memset(l, 0, sizeof(*l));
}
