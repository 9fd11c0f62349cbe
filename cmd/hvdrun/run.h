/* SPDX-License-Identifier: Apache-2.0 */
/* What hvdrun does once its options are known: the plan, then the job or
 * the plan's table. */
#ifndef HVDRUN_RUN_H
#define HVDRUN_RUN_H

#include "cmd/hvdrun/options.h"
#include "lib/base/log.h"

enum { EXIT_USAGE = 2 };

/* Each prints one line on failure and returns hvdrun's exit code. */
int run_job(const struct options *o, const struct hb_log *log);
int run_dry(const struct options *o, const struct hb_log *log);

/* The directory of this program's file; a heap string (hb_free). */
char *run_program_dir(void);

#endif
