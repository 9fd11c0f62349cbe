/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kernels.h for the device.  Compiled to a fat binary that
 * kernels_image.S puts into the plug-in; no CUDA runtime.
 */
#include "runtime/plugins/nccl/kernels_body.h"

static_assert(sizeof(struct hvd__kernel_args) <= 4096,
              "what every driver takes as parameters");

#define KERNEL(name, in, out)                                            \
    extern "C" __global__ void __launch_bounds__(                        \
        HVD__KERNEL_WARPS *HVD__KERNEL_LANES, 4)                         \
        hvd_##name(const __grid_constant__ struct hvd__kernel_args args) \
    {                                                                    \
        uint32_t warp = threadIdx.x / HVD__KERNEL_LANES;                 \
        uint32_t tile = blockIdx.x * HVD__KERNEL_WARPS + warp;           \
                                                                         \
        if (tile < args.tiles)                                           \
            hvd__kernel_run(HVD__K_##name, &args, tile,                  \
                            threadIdx.x % HVD__KERNEL_LANES);            \
    }

HVD__KERNELS(KERNEL)
