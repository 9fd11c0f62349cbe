/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --dry-run: the plan as a table, the command, and what would fail.
 * Nothing is started.
 */
#ifndef HVDRUN_DRYRUN_H
#define HVDRUN_DRYRUN_H

#include "cmd/hvdrun/options/options.h"
#include "lib/agent/machine/cpus.h"
#include "lib/agent/machine/gpu_list.h"
#include "lib/base/buf.h"
#include "lib/hosts/slot_plan.h"

struct dryrun {
    const struct options *options;
    const struct plan *plan;
    const struct hb_strv *env; /* the ranks' common environment: PATH */
    const char *cwd;           /* the ranks' working directory */
    const struct cpus *cpus;   /* this machine's */
    const struct gpu_list *gpus;
};

/* Appends the report.  0 or -HVD_ENOMEM. */
int dryrun_format(const struct dryrun *d, struct hb_buf *out);

/* Formats as dryrun_format, with the cpus and gpus of this machine. */
int dryrun_here(const struct options *options, const struct plan *plan,
                const struct hb_strv *env, const char *cwd, struct hb_buf *out,
                struct hb_error *err);

#endif
