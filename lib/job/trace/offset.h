/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offset of another host's clock from ours, from questions and answers on
 * its control connection.  Pure.
 *
 * An answer that took t to come is right to within t/2; the most precise one is
 * kept.  Precision decreases with age, because two clocks may drift apart by
 * OFFSET_DRIFT_PPM.
 */
#ifndef HVD_JOB_OFFSET_H
#define HVD_JOB_OFFSET_H

#include <stdint.h>

enum { OFFSET_DRIFT_PPM = 100 };

struct offset {
    int known;
    int64_t ahead_ns;  /* their clock minus ours */
    uint64_t error_ns; /* bound on the error when it was measured */
    uint64_t at_ns;    /* when, by our clock */
};

/* Adds a sample: asked at sent_ns and answered at now_ns, by our clock, when
 * theirs read theirs_ns. */
void offset_add(struct offset *o, uint64_t sent_ns, uint64_t theirs_ns,
                uint64_t now_ns);

/* Converts theirs_ns to our clock; never later than now_ns, which is also the
 * result while the offset is unknown. */
uint64_t offset_ours(const struct offset *o, uint64_t theirs_ns,
                     uint64_t now_ns);

#endif
