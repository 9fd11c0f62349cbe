/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --dry-run: the plan as a table, the command, and what would fail.
 * Nothing is started.
 */
#ifndef HVDRUN_DRYRUN_H
#define HVDRUN_DRYRUN_H

#include "cmd/hvdrun/options.h"
#include "lib/agent/cpus.h"
#include "lib/agent/gpu.h"
#include "lib/base/buf.h"
#include "lib/hosts/plan.h"

struct dryrun {
    const struct options *options;
    const struct plan *plan;
    const struct hb_strv *env; /* the ranks' common environment: PATH */
    const char *cwd;           /* the ranks' */
    const struct cpus *cpus;   /* of this machine */
    const struct gpu_list *gpus;
};

/* Appends the text.  0 or -HVD_ENOMEM. */
int dryrun_format(const struct dryrun *d, struct hb_buf *out);

/* The same for the machine that this runs on; fills in cpus and gpus. */
int dryrun_here(const struct options *options, const struct plan *plan,
                const struct hb_strv *env, const char *cwd, struct hb_buf *out,
                struct hb_error *err);

#endif
