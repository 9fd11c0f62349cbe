/* SPDX-License-Identifier: Apache-2.0 */
/* Knobs without effect; see idle_knobs.h. */
#include "lib/base/idle_knobs.h"

#include <string.h>

const struct hb_idle_knob hb_idle_knobs[] = {
    {"CYCLE_TIME", "there are no cycles: work begins when it is issued"},
    {"CACHE_CAPACITY", "every name that was seen is remembered"},
    {"HIERARCHICAL_ALLGATHER", "hosts are always used in this way"},
    {"DISABLE_GROUP_FUSION", "a group is never fused with others"},
    {"DYNAMIC_PROCESS_SETS", "process sets can always be added"},
    {"ADASUM_MPI_CHUNK_SIZE", "Adasum is not cut into chunks"},
    {"ENABLE_ASYNC_COMPLETION", "options.stream does so, call by call"},
    {"BATCH_D2D_MEMCOPIES", "one kernel always copies all of a fused part"},
    {"AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "the noise is what the samples show"},
    {"MPI_THREADS_DISABLE", "MPI is called by one thread at a time"},
};

const size_t hb_idle_knobs_count =
    sizeof(hb_idle_knobs) / sizeof(hb_idle_knobs[0]);

const char *hb_idle_knob_why(const char *name)
{
    for (size_t i = 0; i < hb_idle_knobs_count; i++)
        if (strcmp(hb_idle_knobs[i].name, name) == 0)
            return hb_idle_knobs[i].why;
    return NULL;
}
