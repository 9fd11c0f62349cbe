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
    size_t fusion_bytes; /* of one fused operation; 0: none is fused */
    int fusion_pinned;   /* the user gave it: it is not tuned */
    int engine_cpu;      /* core of the engine threads, or -1 */
    int local_gpu;       /* HVD_GPU, or -1 */
    struct hb_log log;   /* of this process */
};

/* 0, or -HVD_EINVAL with the knob and its value in err. */
int hvd__knobs_read(struct hvd__knobs *k, int local_rank, struct hb_error *err);

/* A line, at info, for each knob of Horovod's that is set and has nothing to
 * tune here. */
void hvd__knobs_tell_idle(const struct hvd__knobs *k);

#endif
