/* SPDX-License-Identifier: Apache-2.0 */
/* The command that reaches a host of a Slurm job: srun starts /bin/sh there as
 * a step of the job, which needs no ssh. */
#ifndef HVD_REMOTE_SRUN_H
#define HVD_REMOTE_SRUN_H

#include "lib/base/error.h"
#include "lib/base/strv.h"

/* Checks that this is a job of Slurm: 0, or -HVD_EINVAL with err set. */
int srun_check(struct hb_error *err);

/* Appends the command for a host.  0, -HVD_ENOMEM, or -HVD_EINVAL if the host
 * is in no component of the heterogeneous job. */
int srun_argv(const char *host, struct hb_strv *argv, struct hb_error *err);

#endif
