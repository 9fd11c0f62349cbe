/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks have counted so far, for those who watch the job: while somebody
 * does, every agent is asked once a second, and not again before it has
 * answered.  With --status somebody always does, and the line is redrawn as
 * often.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/serve/status_line.h"
#include "lib/protocol/control/control_counts.h"

enum {
    ASK_MS = 1000,
    /* How long after the last request agents are asked: Prometheus comes every
     * minute or more often. */
    WATCHED_MS = 90000,
};

static void ask(struct job_host *host)
{
    struct hb_buf frame = HB_BUF_INIT;

    if (host->state != HOST_STARTED || host->counts_due)
        return;
    host->counts_due = 1;
    hb_must(control_encode_counts_ask(&frame));
    job_send(host->job, host->index, &frame);
    hb_buf_free(&frame);
}

struct job_status {
    struct status_line line;
};

static void show(struct job *job)
{
    struct hb_buf text = HB_BUF_INIT;
    struct record view;

    if (!job->status)
        job->status = hb_xcalloc(1, sizeof(*job->status));
    job_record_view(job, &view);
    status_line_format(&text, &job->status->line, &view,
                       job_elastic_generation(job), job_terminal_width());
    output_status(job->output, hb_buf_data(&text));
    hb_buf_free(&text);
}

static void on_turn(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (!job->config->status && hb_now_ns() > job->watched_until_ns) {
        uv_timer_stop(timer);
        return;
    }
    for (int i = 0; i < job->config->plan->host_count; i++)
        ask(&job->hosts[i]);
    if (job->config->status && job->state == JOB_RUNNING)
        show(job);
}

void job_counts_watch(struct job *job)
{
    if (job->open_parts > 0) /* the timer is closed */
        return;
    job->watched_until_ns = hb_now_ns() + WATCHED_MS * UINT64_C(1000000);
    if (!uv_is_active((uv_handle_t *)&job->counts_timer))
        uv_timer_start(&job->counts_timer, on_turn, 0, ASK_MS);
}

void job_status_start(struct job *job)
{
    if (job->config->status)
        job_counts_watch(job);
}

void job_status_end(struct job *job)
{
    if (!job->status)
        return;
    output_status(job->output, "");
    status_line_fini(&job->status->line);
    hb_free(job->status);
    job->status = NULL;
}

int job_counts_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_counts m;
    int rc, at = 0;

    if (!host->counts_due)
        return hb_error_set(err, HVD_EPROTO, "counts that nobody asked for");
    host->counts_due = 0;
    while ((rc = control_decode_counts(f->payload, f->len, at++, &m, err)) >
           0) {
        rc = job_check_rank(host, m.rank, err);
        if (rc < 0)
            break;
        job_record_counts(host->job, m.rank, &m.counts);
    }
    return rc;
}
