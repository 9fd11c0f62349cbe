/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment asks of the library (hvd-env(7)), read once by
 * hvd_init.
 */
#ifndef HVD_CORE_KNOBS_H
#define HVD_CORE_KNOBS_H

#include "lib/base/error.h"
#include "lib/base/log.h"

#include <stddef.h>

struct hvd__knobs {
    size_t fusion_bytes; /* limit of one fused operation; 0: no fusion */
    int fusion_pinned;   /* the user set it: it is not tuned */
    int engine_cpu;      /* core of the engine threads, or -1 */
    int local_gpu;       /* HVD_GPU, or -1 */
    int compares_sites;  /* HVD_CHECK: see plane/site.h */
    struct hb_log log;   /* of this process */
};

/* Reads all knobs into *k.  Returns 0, or -HVD_EINVAL with the knob and its
 * value in err. */
int hvd__knobs_read(struct hvd__knobs *k, int local_rank, struct hb_error *err);

/* Logs, at info level, each of Horovod's knobs that is set but has no effect in
 * this library. */
void hvd__knobs_tell_idle(const struct hvd__knobs *k);

#endif
