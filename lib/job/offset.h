/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How another host's clock differs from ours, from questions and answers on
 * its control connection.  Pure.
 *
 * An answer that took t to come is right to t/2, whatever the way there and
 * back; the answer known best is kept.  What is known gets worse with age,
 * for two clocks may drift apart by OFFSET_DRIFT_PPM.
 */
#ifndef HVD_JOB_OFFSET_H
#define HVD_JOB_OFFSET_H

#include <stdint.h>

enum { OFFSET_DRIFT_PPM = 100 };

struct offset {
    int known;
    int64_t ahead_ns;  /* their clock is ahead of ours by this */
    uint64_t error_ns; /* at most, when it was measured */
    uint64_t at_ns;    /* our clock then */
};

/* Asked at sent_ns and answered at now_ns by our clock, with theirs_ns by
 * theirs. */
void offset_add(struct offset *o, uint64_t sent_ns, uint64_t theirs_ns,
                uint64_t now_ns);

/* When that was by our clock; never after now_ns, which is also the answer
 * while nothing is known. */
uint64_t offset_ours(const struct offset *o, uint64_t theirs_ns,
                     uint64_t now_ns);

#endif
