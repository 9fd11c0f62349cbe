/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the batch system's job in which this one runs: hvdrun announces it
 * some time before.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"

#include <time.h>

enum { NOTICE_S = 60 };

static int64_t left_s(const struct job *job)
{
    int64_t now_s = (int64_t)time(NULL);

    return job->config->ends_s > now_s ? job->config->ends_s - now_s : 0;
}

static void on_deadline(uv_timer_t *timer)
{
    struct job *job = timer->data;

    job->deadline_is_near = 1;
    job_say(job, "%s ends in %lld s", job->config->within,
            (long long)left_s(job));
}

void job_deadline_start(struct job *job)
{
    int64_t left = left_s(job) - NOTICE_S;

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
