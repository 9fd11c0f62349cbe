/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of clocks; see offset.h. */
#include "lib/job/trace/offset.h"

void offset_add(struct offset *o, uint64_t sent_ns, uint64_t theirs_ns,
                uint64_t now_ns)
{
    uint64_t error_ns = (now_ns - sent_ns) / 2;
    uint64_t drift_ns = (now_ns - o->at_ns) / 1000000 * OFFSET_DRIFT_PPM;

    if (now_ns < sent_ns || (o->known && error_ns > o->error_ns + drift_ns))
        return;
    o->known = 1;
    o->ahead_ns = (int64_t)(theirs_ns - (sent_ns + error_ns));
    o->error_ns = error_ns;
    o->at_ns = now_ns;
}

uint64_t offset_ours(const struct offset *o, uint64_t theirs_ns,
                     uint64_t now_ns)
{
    uint64_t ours_ns = theirs_ns - (uint64_t)o->ahead_ns;

    /* A signed difference, so that a wrapped result does not look long past. */
    if (!o->known || (int64_t)(now_ns - ours_ns) < 0)
        return now_ns;
    return ours_ns > now_ns ? 0 : ours_ns;
}
