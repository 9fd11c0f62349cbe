/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hvdrun's signals do to its job.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <signal.h>

enum {
    STOP_TURN_MS = 20,
    STOP_TRIES_MAX = 50, /* at most a second for queued messages */
};

static void end_by_signal(struct job *job, int signo, const char *sender)
{
    int again = job->signals++ > 0;

    job->urgent = 1;
    if (!again && !job->has_verdict) {
        struct hb_buf from = HB_BUF_INIT;
        char name[HB_SIGNAL_NAME_MAX];

        report_sender(&from, sender);
        job_say(job, "%s%s: ending the job (once more: kill it at once)",
                hb_signal_name(signo, name), hb_buf_data(&from));
        hb_buf_free(&from);
        job->silent = 1;
    }
    job_verdict(job, 128 + signo, NULL);
    job_event(job, again ? JOB_EV_SIGNAL_AGAIN : JOB_EV_SIGNAL);
}

/* Asks the ranks to stop at a commit; returns as job_stop_at_commit. */
static int stop_by_signal(struct job *job, int signo, const char *sender)
{
    char name[HB_SIGNAL_NAME_MAX];
    struct hb_buf why = HB_BUF_INIT;
    int rc;

    hb_must(hb_buf_puts(&why, hb_signal_name(signo, name)));
    report_sender(&why, sender);
    rc = job_stop_at_commit(job, job->config->spec.grace_ms, 128 + signo,
                            hb_buf_data(&why));
    hb_buf_free(&why);
    return rc;
}

static void send_signal(struct job *job, int signo)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (job->hosts[i].state == HOST_STARTED)
            job_host_send_u32(&job->hosts[i], CONTROL_SIGNAL, (uint32_t)signo);
}

/* ---- Stop and continue ---- */

static int all_sent(const struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (agent_link_queued(&job->hosts[i].link) > 0)
            return 0;
    return 1;
}

static void job_continue(struct job *job)
{
    job->stop_tries = 0;
    uv_update_time(job->config->loop);
    if (job->limit_left_ms > 0 && job->state < JOB_ENDING)
        job_start_limit(job, job->limit_left_ms);
    job->limit_left_ms = 0;
    job_beat_resume(job);
    job_stall_resumed(job);
    job_elastic_resumed(job);
    send_signal(job, SIGCONT);
}

/* Stops this process when all queued messages are sent, or time is up. */
static void job_stop_try(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (!all_sent(job) && ++job->stop_tries < STOP_TRIES_MAX) {
        uv_timer_start(timer, job_stop_try, STOP_TURN_MS, 0);
        return;
    }
    uv_timer_stop(timer);
    if (job->config->on_stop)
        job->config->on_stop(job->arg);
    job_continue(job);
}

/* Stops the ranks and this process; time spent stopped does not count against
 * the limits.  The ranks get SIGSTOP: they are in sessions without a terminal,
 * where SIGTSTP has no effect on a process that does not handle it. */
static void job_stop(struct job *job)
{
    job->limit_left_ms = uv_timer_get_due_in(&job->limit_timer);
    if (uv_is_active((uv_handle_t *)&job->limit_timer))
        uv_timer_stop(&job->limit_timer);
    else
        job->limit_left_ms = 0;
    send_signal(job, SIGSTOP);
    job_beat_pause(job);
    job_stop_try(&job->stop_timer);
}

void job_signal(struct job *job, int signo, const char *sender)
{
    if (job->state == JOB_DONE)
        return;
    switch (signo) {
    case SIGTERM:
        if (job->config->stop_at_commit &&
            stop_by_signal(job, signo, sender) == 0)
            break;
        end_by_signal(job, signo, sender);
        break;
    case SIGINT:
    case SIGHUP:
        end_by_signal(job, signo, sender);
        break;
    case SIGTSTP:
        if (!uv_is_active((uv_handle_t *)&job->stop_timer))
            job_stop(job);
        break;
    case SIGCONT:
        job_continue(job);
        break;
    default:
        send_signal(job, signo);
        break;
    }
}
