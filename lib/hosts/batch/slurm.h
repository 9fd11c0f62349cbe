/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's environment variables that are read by more than one module. */
#ifndef HVD_HOSTS_BATCH_SLURM_H
#define HVD_HOSTS_BATCH_SLURM_H

/* The components of a heterogeneous job, at most: Slurm's own limit. */
enum { SLURM_COMPONENTS_MAX = 128 };

/* Returns the total number of GPUs in a list such as "4", "a100:2" or
 * "gpu:a100:2,gpu:v100:1"; 0 if the text is not such a list. */
int slurm_count_gpus(const char *text);

#endif
