/* SPDX-License-Identifier: Apache-2.0 */
/* Knobs of the library; see knobs.h. */
#include "runtime/core/knobs.h"

#include "lib/base/env.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FUSION_BYTES = 128 << 20 };

static const struct {
    const char *name, *why;
} idle[] = {
    {"CYCLE_TIME", "there are no cycles: work begins when it is issued"},
    {"CACHE_CAPACITY", "every name that was seen is remembered"},
    {"AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "the noise is what the samples show"},
    {"HIERARCHICAL_ALLGATHER", "hosts are always used in this way"},
    {"DISABLE_GROUP_FUSION", "a group is never fused with others"},
    {"DYNAMIC_PROCESS_SETS", "process sets can always be added"},
    {"GLOO_TIMEOUT_SECONDS", "see HVD_START_TIMEOUT and the stall check"},
    {"ADASUM_MPI_CHUNK_SIZE", "Adasum is not cut into chunks"},
    {"BATCH_D2D_MEMCOPIES", "one kernel always copies all of a fused part"},
    {"ENABLE_ASYNC_COMPLETION", "options.stream does so, call by call"},
    {"NUM_NCCL_STREAMS", "each process set has one stream"},
    {"MPI_THREADS_DISABLE", "MPI is called by one thread at a time"},
    {"LOG_HIDE_TIME", "the library's lines have no time"},
};

/* The local_rank-th of a comma list of cores. */
static int read_affinity(struct hvd__knobs *k, int local_rank,
                         struct hb_error *err)
{
    const char *text = hb_knob("THREAD_AFFINITY"), *at = text;
    char one[32];
    int64_t cpu;
    size_t len;

    k->engine_cpu = -1;
    for (int i = 0; text && i < local_rank && at; i++) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    if (!text)
        return 0;
    len = at ? strcspn(at, ",") : 0;
    if (len == 0 || len >= sizeof(one))
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_THREAD_AFFINITY: \"%s\" has no core for local "
                            "rank %d; give one per local rank",
                            text, local_rank);
    memcpy(one, at, len);
    one[len] = '\0';
    if (hb_parse_i64(one, 0, CPU_SETSIZE - 1, &cpu, err) < 0)
        return hb_error_context(err, "HVD_THREAD_AFFINITY");
    k->engine_cpu = (int)cpu;
    return 0;
}

int hvd__knobs_read(struct hvd__knobs *k, int local_rank, struct hb_error *err)
{
    const char *level = hb_knob("LOG_LEVEL");
    int64_t fusion = FUSION_BYTES, gpu = -1;
    int rc = hb_knob_i64("FUSION_THRESHOLD", 0, INT64_MAX, &fusion, err);

    if (rc == 0)
        rc = hb_knob_i64("GPU", 0, INT32_MAX, &gpu, err);
    memset(k, 0, sizeof(*k));
    k->log.program = "libhvd";
    k->log.level = HB_LOG_WARNING;
    k->fusion_bytes = (size_t)fusion;
    k->local_gpu = (int)gpu;
    k->fusion_pinned = hb_knob("FUSION_THRESHOLD") != NULL;
    if (rc == 0 && level && hb_log_level_parse(level, &k->log.level) < 0)
        rc = hb_error_set(err, HVD_EINVAL,
                          "HVD_LOG_LEVEL: \"%s\" is not one of trace, debug, "
                          "info, warning, error, fatal",
                          level);
    return rc == 0 ? read_affinity(k, local_rank, err) : rc;
}

void hvd__knobs_tell_idle(const struct hvd__knobs *k)
{
    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
        if (hb_knob(idle[i].name))
            hb_log(&k->log, HB_LOG_INFO, "HVD_%s changes nothing: %s",
                   idle[i].name, idle[i].why);
}
