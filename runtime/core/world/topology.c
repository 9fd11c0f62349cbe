/* SPDX-License-Identifier: Apache-2.0 */
/* Answers from what hvd_init has found out: hvd_rank and the like. */
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"
#include "runtime/hvd.h"

int hvd_is_initialized(void)
{
    return hvd__alive();
}

const char *hvd_version(void)
{
    return HVD_VERSION;
}

static int topology(const int *value)
{
    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    return *value;
}

int hvd_rank(void)
{
    return topology(&hvd__context.topology.rank);
}

int hvd_size(void)
{
    return topology(&hvd__context.topology.size);
}

int hvd_local_rank(void)
{
    return topology(&hvd__context.topology.local_rank);
}

int hvd_local_size(void)
{
    return topology(&hvd__context.topology.local_size);
}

int hvd_cross_rank(void)
{
    return topology(&hvd__context.topology.cross_rank);
}

int hvd_cross_size(void)
{
    return topology(&hvd__context.topology.cross_size);
}

int hvd_local_gpu(void)
{
    int gpu = topology(&hvd__context.knobs.local_gpu);

    if (gpu == -1 && hvd__alive())
        return hvd__fail(HVD_ENOENT,
                         "HVD_GPU is not set: hvdrun saw no NVIDIA GPU on "
                         "this host, or did not start this process");
    return gpu;
}
