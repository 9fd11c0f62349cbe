/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the batch system's job in which this one runs: hvdrun announces it
 * some time before, and with --stop-at-commit lets the ranks stop then.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"

#include <time.h>

enum {
    NOTICE_S = 60,
    SPARE_S = 15, /* beside the time of --grace, which may pass twice */
};

static int64_t left_s(const struct job *job)
{
    int64_t now_s = (int64_t)time(NULL);

    return job->config->ends_s > now_s ? job->config->ends_s - now_s : 0;
}

/* Returns how long before the end it is announced. */
static int64_t notice_s(const struct job *job)
{
    int64_t stop_s = 2 * (int64_t)job->config->spec.grace_ms / 1000 + SPARE_S;

    return job->config->stop_at_commit && stop_s > NOTICE_S ? stop_s : NOTICE_S;
}

static void on_deadline(uv_timer_t *timer)
{
    struct job *job = timer->data;
    const struct job_config *c = job->config;
    char *text =
        hb_xasprintf("%s ends in %lld s", c->within, (long long)left_s(job));

    job->deadline_is_near = 1;
    if (!c->stop_at_commit ||
        job_stop_at_commit(job, c->spec.grace_ms, JOB_EXIT_TIMEOUT, text) < 0)
        job_say(job, "%s", text);
    hb_free(text);
}

void job_deadline_start(struct job *job)
{
    int64_t left = left_s(job) - notice_s(job);

    if (!job->config->ends_s)
        return;
    uv_update_time(job->config->loop);
    uv_timer_start(&job->deadline_timer, on_deadline,
                   left > 0 ? (uint64_t)left * 1000 : 0, 0);
}

void job_deadline_end(struct job *job)
{
    uv_timer_stop(&job->deadline_timer);
}

void job_deadline_note(const struct job *job, struct hb_buf *out)
{
    if (job->deadline_is_near)
        hb_must(hb_buf_printf(out, "; %s had %lld s left", job->config->within,
                              (long long)left_s(job)));
}
