/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NVIDIA GPUs this host has, without CUDA or NVML: from the kernel
 * driver's /proc files, else the device nodes.  And which of them each local
 * rank gets.
 *
 * GPUs are handed out by UUID, because the order of CUDA's ordinals depends on
 * CUDA_DEVICE_ORDER; where only device nodes are known, by ordinal: in a
 * container that has only /dev/nvidia3, that is device 0.
 */
#ifndef HVD_AGENT_GPU_H
#define HVD_AGENT_GPU_H

#include "lib/base/error.h"

enum { GPU_MAX = 256 };

struct gpu {
    /* index on this host in order of minors; -1: a MIG instance */
    int ordinal;
    int minor;     /* /dev/nvidiaN; -1: a MIG instance */
    char uuid[96]; /* GPU-..., MIG-..., or "" when unknown */
};

struct gpu_list {
    struct gpu *items;
    int count;
};

/*
 * Lists the GPUs below `root` ("" for the real /proc and /dev, or a fixture).
 * `visible` is the CUDA_VISIBLE_DEVICES that the job inherited (NULL: not set):
 * indices, UUIDs or unambiguous UUID prefixes; as with CUDA, the list ends at
 * the first invalid entry.  MIG instance names are kept as they are.  An empty
 * list is not an error.
 */
void gpu_list_read(const char *root, const char *visible, struct gpu_list *out);
void gpu_list_fini(struct gpu_list *l);

/* Returns the index into l of GPU i of the `per_rank` GPUs of a rank: ranks
 * take GPUs in turn, starting again when there are too few.  The list must not
 * be empty. */
int gpu_of(const struct gpu_list *l, int local_rank, int per_rank, int i);

/* Returns a rank's CUDA_VISIBLE_DEVICES: its GPUs, comma-separated, a heap
 * string.  gpu_check must have succeeded. */
char *gpu_visible(const struct gpu_list *l, int local_rank, int per_rank);

/* Checks that there are GPUs enough for `ranks` ranks with `per_rank` each or,
 * with `share`, for one rank.  0, or -HVD_EINVAL and a line in err. */
int gpu_check(const struct gpu_list *l, int ranks, int per_rank, int share,
              struct hb_error *err);

#endif
