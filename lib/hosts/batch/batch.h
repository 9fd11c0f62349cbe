/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of allocations share.  Internal to lib/hosts/batch. */
#ifndef HVD_HOSTS_BATCH_H
#define HVD_HOSTS_BATCH_H

#include "lib/hosts/batch/allocation.h"

struct batch {
    const struct allocation_source *source;
    struct allocation *out; /* its hosts are empty */
    struct hb_error *err;
};

/* Returns a variable's value, or NULL if it is unset or empty. */
const char *batch_get(const struct batch *b, const char *name);

/* Reads the number of tasks that were started like this process: 0 if the
 * variable is unset or no number. */
int batch_copies(const struct batch *b, const char *name);

/* Reads an allocation into b->out, for a table of such functions.  0, or
 * negative with err set. */
int batch_slurm(struct batch *b);
int batch_pbs(struct batch *b);
int batch_lsf(struct batch *b);
int batch_sge(struct batch *b);
int batch_flux(struct batch *b);

#endif
