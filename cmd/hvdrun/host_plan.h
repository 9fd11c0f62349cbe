/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts the options choose, and which rank runs where, for jobs, tools
 * and mpirun alike. */
#ifndef HVDRUN_HOST_PLAN_H
#define HVDRUN_HOST_PLAN_H

#include "cmd/hvdrun/options/options.h"

/* The batch system's job whose hosts were read. */
struct host_origin {
    char *name;    /* "Slurm job 17"; heap (hb_free); NULL: there is none */
    int is_used;   /* the hosts are from it, so it limits -np */
    int64_t end_s; /* when it ends, since 1970; 0: not known */
};

/* Reads the hosts of -H or --hostfile; without both, those of the batch
 * system's allocation, or this machine by `hostname` with -np slots.  An
 * allocation of this machine alone does not limit -np.  *from becomes the
 * allocation, whose description is logged.  0, or negative with err set; free
 * `hosts` in any case. */
int host_plan_read(const struct options *o, const char *hostname,
                   const struct hb_log *log, struct hostlist *hosts,
                   struct host_origin *from, struct hb_error *err);

/* Plans the ranks on hosts from an allocation or elsewhere, and checks that
 * --stdin names one.  0, or negative with err set; free `plan` in any
 * case. */
int host_plan_make(const struct options *o, const struct hostlist *hosts,
                   const struct host_origin *from, struct plan *plan,
                   struct hb_error *err);

#endif
