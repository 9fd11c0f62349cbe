/* SPDX-License-Identifier: Apache-2.0 */
/* Timeline and statistics; see trace.h. */
#include "runtime/core/api/trace.h"

#include "lib/base/env.h"
#include "lib/protocol/status.h"
#include "runtime/core/set/provider.h"
#include "runtime/core/set/set.h"
#include "runtime/core/world/agent_client.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

#include <string.h>

static struct hvd__timeline_owner self; /* set by hvd_init */
static struct status_counts counted;    /* in the worlds before */

/* Lets those who watch the job read what this process counts. */
static void watch(void)
{
    struct segment_status *s = hvd__stall_on();

    if (!s)
        return;
    status_put_counts(s, &counted);
    atomic_store(&hvd__context.counted, s);
}

void hvd__trace_unwatch(void)
{
    struct segment_status *s = atomic_exchange(&hvd__context.counted, NULL);

    if (s)
        status_read_counts(s, &counted);
}

int hvd__trace_open(const struct hvd__timeline_owner *owner,
                    struct hb_error *err)
{
    struct hvd__timeline_knobs k = {0};
    int stats = 0;
    int rc = hb_knob_bool("STATS", &stats, err);

    self = *owner;
    if (rc == 0)
        rc = hvd__timeline_knobs_read(&k, owner->rank, err);
    if (rc == 0 && stats && hvd__stats_open(owner->size) < 0)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for statistics");
    if (rc == 0 && k.path)
        rc = hvd__timeline_open(k.path, k.flags, owner, err);
    if (rc < 0)
        hvd__stats_close();
    else if (stats)
        watch();
    hvd__timeline_knobs_fini(&k);
    return rc;
}

static void tell_stats(struct hvd__agent *agent)
{
    struct hb_buf out = HB_BUF_INIT;
    struct worker_stats report;
    struct hvd_stats sum;

    memset(&sum, 0, sizeof(sum));
    /* The sets are stopped, or the process exits; none is freed yet. */
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        if (hvd__context.sets[i].plane)
            hvd__stats_sum(&hvd__context.sets[i].engine.controller.stats, &sum);
    hvd__stats_sum(&hvd__context.removed, &sum);
    hvd__providers_stats(&sum);
    hvd__stats_report(&sum, &report);
    if (worker_encode_stats(&out, &report) == 0)
        hvd__agent_say(agent, hb_buf_data(&out), hb_buf_len(&out));
    hb_buf_free(&out);
}

void hvd__trace_close(struct hvd__agent *agent, const struct hb_log *log)
{
    struct hb_error err = HB_ERROR_INIT;

    if (hvd__stats_wanted())
        tell_stats(agent);
    if (hvd__timeline_close(&err) < 0)
        hb_log(log, HB_LOG_WARNING, "%s", err.text);
}

/* ---- Public --------------------------------------------------------- */

int hvd_timeline_start(const char *path, unsigned flags)
{
    struct hb_error err = HB_ERROR_INIT;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    if (!path || !path[0])
        return hvd__fail(HVD_EINVAL, "hvd_timeline_start: no path");
    if (flags & ~(unsigned)HVD_TIMELINE_CYCLES)
        return hvd__fail(HVD_EINVAL, "hvd_timeline_start: unknown flags %#x",
                         flags);
    if (hvd__timeline_open(path, flags, &self, &err) < 0)
        hb_error_context(&err, "hvd_timeline_start");
    /* Reports documented statuses only: an unusable path is HVD_ESYSTEM. */
    if (err.status == -HVD_ENOENT || err.status == -HVD_EPERM)
        err.status = -HVD_ESYSTEM;
    return hvd__tell(&err);
}

int hvd_timeline_stop(void)
{
    struct hb_error err = HB_ERROR_INIT;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    if (hvd__timeline_close(&err) < 0)
        hb_error_context(&err, "hvd_timeline_stop");
    return hvd__tell(&err);
}

int hvd_stats(struct hvd_stats *stats)
{
    struct hvd_stats sum;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    if (!stats || stats->size < sizeof(stats->size))
        return hvd__fail(HVD_EINVAL,
                         "hvd_stats: stats is NULL, or its size is not set");
    memset(&sum, 0, sizeof(sum));
    sum.size = stats->size;
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++) {
        const struct hvd__set *s = hvd__set_find(i);

        if (s && s->me >= 0)
            hvd__stats_sum(&s->engine.controller.stats, &sum);
    }
    hvd__stats_sum(&hvd__context.removed, &sum);
    hvd__providers_stats(&sum);
    memcpy(stats, &sum, stats->size < sizeof(sum) ? stats->size : sizeof(sum));
    return 0;
}
