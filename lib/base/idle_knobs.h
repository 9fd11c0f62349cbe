/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Horovod's knobs that are accepted but have no effect in this version.
 *
 * Everything else derives from this table: hvdrun's --help marks the options
 * that set these knobs, libhvd logs those that are set at level info, and tests
 * compare hvdrun(1), hvd-env(7) and the code of libhvd with it.
 */
#ifndef HB_IDLE_KNOBS_H
#define HB_IDLE_KNOBS_H

#include <stddef.h>

struct hb_idle_knob {
    const char *name; /* without HVD_ or HOROVOD_ */
    const char *why;
};

extern const struct hb_idle_knob hb_idle_knobs[];
extern const size_t hb_idle_knobs_count;

/* Returns why the knob has no effect; NULL if it has one. */
const char *hb_idle_knob_why(const char *name);

#endif
