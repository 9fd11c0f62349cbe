/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: loads the NCCL plug-in (plugins/gpu.h), and finds out whether
 * a call's buffers are in device memory.
 *
 * On a host without a CUDA driver a call costs one load more.
 */
#ifndef HVD_CORE_GPU_H
#define HVD_CORE_GPU_H

#include "runtime/core/set/provider.h"
#include "runtime/plugins/gpu.h"

extern const struct hvd__provider hvd__gpu_provider;

/* Returns whether the plug-in can be loaded, with or without a GPU; and the
 * version of NCCL on this host, 0 if there is none that the plug-in can use.
 * Any thread. */
int hvd__gpu_is_built(void);
int hvd__gpu_nccl_version(void);

/* Uses `gpu`, which is open, or NULL, in place of the plug-in; for tests. */
void hvd__gpu_use(const struct hvd__gpu *gpu);

/* Closes the plug-in, after waiting for other threads' calls that still use it.
 * Called after the last plane was freed; idempotent. */
void hvd__gpu_close(void);

/* Puts a plane for device memory on top of s->plane if the plug-in is open, for
 * the n world ranks `ranks`; this rank is ranks[me].  Returns 0, or negative
 * with err set and s->plane NULL. */
int hvd__gpu_wrap(struct hvd__set *s, const int *ranks, int n, int me,
                  struct hb_error *err);

#endif
