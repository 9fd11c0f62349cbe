/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts the options choose, and which rank runs where, for jobs, tools
 * and mpirun alike. */
#ifndef HVDRUN_HOST_PLAN_H
#define HVDRUN_HOST_PLAN_H

#include "cmd/hvdrun/options/options.h"

/* Reads the hosts of -H or --hostfile; without both, this machine by
 * `hostname` with -np slots.  0, or negative with err set; free `hosts` in any
 * case. */
int host_plan_read(const struct options *o, const char *hostname,
                   struct hostlist *hosts, struct hb_error *err);

/* Plans the ranks, and checks that --stdin names one.  0, or negative with err
 * set; free `plan` in any case. */
int host_plan_make(const struct options *o, const struct hostlist *hosts,
                   struct plan *plan, struct hb_error *err);

#endif
