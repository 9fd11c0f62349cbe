/* SPDX-License-Identifier: Apache-2.0 */
/* Runs hvdrun once its options are known: plans, then runs the job or prints
 * the plan. */
#ifndef HVDRUN_RUN_H
#define HVDRUN_RUN_H

#include "cmd/hvdrun/options/options.h"
#include "lib/base/log.h"

enum { EXIT_USAGE = 2 };

/* Runs the job, or prints its plan; returns hvdrun's exit code, after one line
 * on failure. */
int run_job(const struct options *o, const struct hb_log *log);
int run_dry(const struct options *o, const struct hb_log *log);

/* Returns the directory of this program's file; a heap string (hb_free). */
char *run_program_dir(void);

#endif
