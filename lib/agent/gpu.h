/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NVIDIA GPUs this host has, without CUDA or NVML: the kernel
 * driver's /proc files, else the device nodes.  And which of them each
 * local rank gets.
 *
 * GPUs are handed out by UUID, because the order of CUDA's ordinals depends
 * on CUDA_DEVICE_ORDER; without UUIDs (device nodes only) by ordinal: a
 * container that has /dev/nvidia3 alone has device 0.
 */
#ifndef HVD_AGENT_GPU_H
#define HVD_AGENT_GPU_H

#include "lib/base/error.h"

enum { GPU_MAX = 256 };

struct gpu {
    int ordinal;   /* among all of the host, in the order of minors; or -1 */
    int minor;     /* /dev/nvidiaN; -1: a MIG instance */
    char uuid[96]; /* GPU-..., MIG-..., or "" when unknown */
};

struct gpu_list {
    struct gpu *items;
    int count;
};

/*
 * Lists the GPUs below `root` ("" for the real /proc and /dev, or a
 * fixture).  `visible` is the CUDA_VISIBLE_DEVICES that the job inherited
 * (NULL: not set): indices, UUIDs or unambiguous UUID prefixes; as with
 * CUDA, the list ends at the first entry that names none.  MIG instance
 * names are kept as they are.  No GPU is not an error.
 */
void gpu_list_read(const char *root, const char *visible, struct gpu_list *out);
void gpu_list_fini(struct gpu_list *l);

/* The i-th of the `per_rank` GPUs of a rank, as a place in the list: ranks
 * take them in turn, and from the beginning again when there are too few.
 * The list must not be empty. */
int gpu_of(const struct gpu_list *l, int local_rank, int per_rank, int i);

/* What a rank that gpu_check admitted puts into CUDA_VISIBLE_DEVICES: its
 * GPUs, comma-separated, a heap string. */
char *gpu_visible(const struct gpu_list *l, int local_rank, int per_rank);

/* 0, or -HVD_EINVAL and one line, when `ranks` ranks that get `per_rank`
 * GPUs each need more than there are; with `share`, when one does. */
int gpu_check(const struct gpu_list *l, int ranks, int per_rank, int share,
              struct hb_error *err);

#endif
