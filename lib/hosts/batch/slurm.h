/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of Slurm's variables, beyond the hosts of a job. */
#ifndef HVD_HOSTS_BATCH_SLURM_H
#define HVD_HOSTS_BATCH_SLURM_H

/* The components of a heterogeneous job, at most: Slurm's own limit. */
enum { SLURM_COMPONENTS_MAX = 128 };

/* Sums the numbers of a list of GPUs such as 4, a100:2 or
 * gpu:a100:2,gpu:v100:1; 0 if it is none. */
int slurm_count_gpus(const char *text);

#endif
