/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_feature: what this installation and this world can do. */
#include "runtime/core/set/device.h"
#include "runtime/core/set/mpi_context.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

#include <string.h>

static int always(void)
{
    return 1;
}

static int never(void)
{
    return 0;
}

static int is_over_mpi(void)
{
    return hvd__alive() && hvd__context.topology.over_mpi;
}

static int is_native(void)
{
    return hvd__alive() && !hvd__context.topology.over_mpi;
}

static int ask_world(const int *value)
{
    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    return *value;
}

static int has_mpi_threads(void)
{
    return ask_world(&hvd__context.topology.mpi_has_threads);
}

static int is_homogeneous(void)
{
    return ask_world(&hvd__context.topology.is_homogeneous);
}

static const struct {
    const char *name;
    int (*ask)(void);
} features[] = {
    {"mpi_built", hvd__mpi_is_built},
    {"mpi_enabled", is_over_mpi},
    {"mpi_threads_supported", has_mpi_threads},
    {"gloo_built", always}, /* shared memory and TCP */
    {"gloo_enabled", is_native},
    {"nccl_built", hvd__gpu_nccl_version},
    {"cuda_built", hvd__gpu_is_built},
    {"rocm_built", never},
    {"ddl_built", never},
    {"ccl_built", never},
    {"is_homogeneous", is_homogeneous},
};

int hvd_feature(const char *name)
{
    if (!name)
        return hvd__fail(HVD_EINVAL, "hvd_feature: the name is NULL");
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
        if (strcmp(name, features[i].name) == 0)
            return features[i].ask();
    return hvd__fail(HVD_EINVAL, "hvd_feature: \"%.64s\" is unknown", name);
}
