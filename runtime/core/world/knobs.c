/* SPDX-License-Identifier: Apache-2.0 */
/* Knobs of the library; see knobs.h. */
#include "runtime/core/world/knobs.h"

#include "lib/base/env.h"
#include "lib/base/idle_knobs.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FUSION_BYTES = 128 << 20, CORE_MAX = 65535 };

/* Asks the kernel whether a thread of this process may run on that core.  The
 * affinity mask alone does not tell: --bind-to sets one that a thread may
 * leave. */
static int core_is_usable(int cpu)
{
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return 1;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        return 0;
    sched_setaffinity(0, sizeof(all), &all);
    return 1;
}

/* Reads item `item` of a comma-separated list of cores; -1 where the list is
 * shorter. */
static int core_of_list(const char *text, int item, int64_t *cpu,
                        struct hb_error *err)
{
    char one[32];
    size_t len;

    *cpu = -1;
    for (; item > 0; item--) {
        text = strchr(text, ',');
        if (!text)
            return 0;
        text++;
    }
    len = strcspn(text, ",");
    if (len >= sizeof(one))
        return hb_error_set(err, HVD_EINVAL, "\"%.*s\" is not a core",
                            (int)sizeof(one), text);
    memcpy(one, text, len);
    one[len] = '\0';
    return hb_parse_i64(one, 0, CORE_MAX, cpu, err);
}

/* Reads HVD_THREAD_AFFINITY: a list with one core per local rank, or the core
 * of local rank 0, from which the other ranks count up.  Horovod carries on
 * without a core that does not exist, and its configurations rely on that. */
static int read_affinity(struct hvd__knobs *k, int local_rank,
                         struct hb_error *err)
{
    const char *text = hb_knob("THREAD_AFFINITY");
    int is_list = text && strchr(text, ',');
    int64_t cpu;

    k->engine_cpu = -1;
    if (!text)
        return 0;
    if (core_of_list(text, is_list ? local_rank : 0, &cpu, err) < 0)
        return hb_error_context(err, "HVD_THREAD_AFFINITY");
    if (cpu < 0) {
        hb_log(&k->log, HB_LOG_WARNING,
               "HVD_THREAD_AFFINITY: \"%s\" has no core for local rank %d; "
               "its thread may run on any",
               text, local_rank);
        return 0;
    }
    if (!is_list)
        cpu += local_rank;
    if (cpu < CPU_SETSIZE && core_is_usable((int)cpu))
        k->engine_cpu = (int)cpu;
    else
        hb_log(&k->log, HB_LOG_WARNING,
               "HVD_THREAD_AFFINITY: \"%s\" gives core %d to local rank %d, "
               "which has no such core here; its thread may run on any",
               text, (int)cpu, local_rank);
    return 0;
}

int hvd__knobs_read(struct hvd__knobs *k, int local_rank, struct hb_error *err)
{
    const char *level = hb_knob("LOG_LEVEL");
    int64_t fusion = FUSION_BYTES, gpu = -1;
    int hide_time = 1, compares_sites = 0;
    int rc = hb_knob_i64("FUSION_THRESHOLD", 0, INT64_MAX, &fusion, err);

    if (rc == 0)
        rc = hb_knob_i64("GPU", 0, INT32_MAX, &gpu, err);
    if (rc == 0)
        rc = hb_knob_bool("LOG_HIDE_TIME", &hide_time, err);
    if (rc == 0)
        rc = hb_knob_bool("CHECK", &compares_sites, err);
    memset(k, 0, sizeof(*k));
    k->log.program = "libhvd";
    k->log.level = HB_LOG_WARNING;
    k->log.flags = hide_time ? 0 : HB_LOG_TIMESTAMP;
    k->fusion_bytes = (size_t)fusion;
    k->local_gpu = (int)gpu;
    k->compares_sites = compares_sites;
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
    for (size_t i = 0; i < hb_idle_knobs_count; i++)
        if (hb_knob(hb_idle_knobs[i].name))
            hb_log(&k->log, HB_LOG_INFO, "HVD_%s changes nothing: %s",
                   hb_idle_knobs[i].name, hb_idle_knobs[i].why);
}
