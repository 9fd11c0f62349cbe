/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NVIDIA GPUs this host has, without CUDA or NVML: the kernel
 * driver's /proc files, else the device nodes.  And which of them each
 * local rank gets.
 *
 * GPUs are handed out by UUID, because the order of CUDA's ordinals depends
 * on CUDA_DEVICE_ORDER; without UUIDs (device nodes only) by minor number.
 */
#ifndef HVD_AGENT_GPU_H
#define HVD_AGENT_GPU_H

#include "lib/base/error.h"

enum { GPU_MAX = 256 };

struct gpu {
    int ordinal;   /* position among those visible to the job */
    int minor;     /* /dev/nvidiaN */
    char uuid[96]; /* GPU-..., or "" when unknown */
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

/* What a rank puts into CUDA_VISIBLE_DEVICES: `per_rank` GPUs from
 * local_rank * per_rank on, comma-separated, a heap string; NULL when the
 * host has fewer. */
char *gpu_visible(const struct gpu_list *l, int local_rank, int per_rank);

/* 0, or -HVD_EINVAL and one line, when `ranks` ranks that get `per_rank`
 * GPUs each need more than there are. */
int gpu_check(const struct gpu_list *l, int ranks, int per_rank,
              struct hb_error *err);

#endif
