/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts the options choose, and which rank runs where, for jobs, tools
 * and mpirun alike. */
#ifndef HVDRUN_HOST_PLAN_H
#define HVDRUN_HOST_PLAN_H

#include "cmd/hvdrun/options/options.h"

/* Reads the hosts of -H or --hostfile; without both, those of the batch
 * system's allocation, or this machine by `hostname` with -np slots.  An
 * allocation of this machine alone does not limit -np.  *from becomes the
 * allocation, "Slurm job 17", on the heap (hb_free), or NULL; its description
 * is logged.  0, or negative with err set; free `hosts` in any case. */
int host_plan_read(const struct options *o, const char *hostname,
                   const struct hb_log *log, struct hostlist *hosts,
                   char **from, struct hb_error *err);

/* Plans the ranks on hosts `from` an allocation or elsewhere (NULL), and checks
 * that --stdin names one.  0, or negative with err set; free `plan` in any
 * case. */
int host_plan_make(const struct options *o, const struct hostlist *hosts,
                   const char *from, struct plan *plan, struct hb_error *err);

#endif
