/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a job ends, and what is said about it.
 *
 * The first cause ends the job.  Where that is the failure of a rank or the
 * trouble of a host, a failure that came before it, by one clock for all
 * hosts, may still be heard of until the end: the report and the exit code
 * are then its.  A user's signal and time limits are causes when they come.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "lib/job/xbuf.h"

#include <string.h>

void job_verdict(struct job *job, int exit_code, const char *fmt, ...)
{
    struct hb_buf text = HB_BUF_INIT;
    va_list ap;

    if (job->has_verdict)
        return;
    job->has_verdict = 1;
    job->exit_code = exit_code;
    if (!fmt)
        return;
    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&text, fmt, ap));
    va_end(ap);
    job->cause = hb_buf_detach(&text);
}

static void verdict_by_failure(struct job *job, int exit_code)
{
    if (job->has_verdict)
        return;
    job->has_verdict = 1;
    job->by_failure = 1;
    job->exit_code = exit_code;
}

/* ---- Lines for the user ---- */

void job_print(struct job *job, const char *line)
{
    struct hb_buf text = HB_BUF_INIT;

    xbuf_puts(&text, line);
    xbuf_puts(&text, "\n");
    output_message(job->output, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
}

void job_say(struct job *job, const char *fmt, ...)
{
    struct hb_buf text = HB_BUF_INIT;
    va_list ap;

    xbuf_puts(&text, "hvdrun: ");
    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&text, fmt, ap));
    va_end(ap);
    job_print(job, hb_buf_data(&text));
    hb_buf_free(&text);
}

/* ---- Ranks ---- */

static void keep_failed(struct job *job, const struct control_exited *m,
                        uint64_t when_ns)
{
    size_t at = job->failed_count;

    if (job->failed_count == job->failed_cap) {
        job->failed_cap = job->failed_cap ? 2 * job->failed_cap : 8;
        job->failed = hb_xrealloc_array(job->failed, job->failed_cap,
                                        sizeof(*job->failed));
        job->failed_ns = hb_xrealloc_array(job->failed_ns, job->failed_cap,
                                           sizeof(*job->failed_ns));
    }
    for (; at > 0 && job->failed_ns[at - 1] > when_ns; at--) {
        job->failed[at] = job->failed[at - 1];
        job->failed_ns[at] = job->failed_ns[at - 1];
    }
    job->failed[at] = *m;
    job->failed_ns[at] = when_ns;
    job->failed_count++;
}

/* Ranks on other hosts wait for the dead one in their collectives: they
 * hear of it at once.  Those on its own host are told by their agent. */
static void tell_other_hosts(struct job *job, const struct control_exited *m)
{
    int home = job->config->plan->ranks[m->rank].host;
    struct hb_buf frame = HB_BUF_INIT;
    struct hb_buf text = HB_BUF_INIT;

    if (job->config->plan->host_count == 1)
        return;
    hb_must(hb_buf_printf(&text, "rank %d (pid %d) on host %s: ", m->rank,
                          (int)m->pid, job->hosts[home].name));
    report_phrase(&text, m);
    hb_must(control_encode_abort(&frame, m->rank, hb_buf_data(&text)));
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (i != home)
            job_host_send(&job->hosts[i], &frame);
    hb_buf_free(&frame);
    hb_buf_free(&text);
}

/* A fence that this rank is missing in can never be complete. */
static void tell_rendezvous(struct job *job, const struct job_host *host,
                            const struct control_exited *m)
{
    struct hb_buf text = HB_BUF_INIT;

    hb_must(hb_buf_printf(&text, "rank %d on host %s: ", m->rank, host->name));
    if (m->exit_code)
        report_phrase(&text, m);
    else
        xbuf_puts(&text, "has ended already");
    job_rendezvous_rank_gone(job->rendezvous, m->rank, hb_buf_data(&text));
    hb_buf_free(&text);
}

void job_rank_exited(struct job *job, struct job_host *host,
                     struct control_exited *m)
{
    int ours = m->cause == CONTROL_CAUSE_HVDRUN && job->has_verdict;
    uint64_t when_ns = offset_ours(&host->clock, m->when_ns, hb_now_ns());

    job->exited[m->rank] = 1;
    job->exited_count++;
    tell_rendezvous(job, host, m);
    job_stall_rank_gone(job, m->rank);
    if (job->input)
        input_rank_gone(job->input, m->rank);
    hb_log(job->config->log, HB_LOG_DEBUG,
           "rank %d: exit code %d at %.6f s, clock %+lld us +- %lld us%s",
           m->rank, m->exit_code, (double)when_ns / 1e9,
           (long long)(host->clock.ahead_ns / 1000),
           (long long)(host->clock.error_ns / 1000),
           ours ? " (ended by hvdrun)" : "");
    if (m->exit_code == 0 || ours) {
        control_exited_fini(m);
        return;
    }
    if (!job->has_verdict)
        tell_other_hosts(job, m);
    keep_failed(job, m, when_ns);
    verdict_by_failure(job, m->exit_code);
    if (!job_stall_ending(job))
        job_event(job, JOB_EV_FAILED);
}

/* ---- Hosts ---- */

void job_host_trouble(struct job_host *host, int exit_code, uint64_t when_ns,
                      int takes_ranks, const char *fmt, ...)
{
    struct job *job = host->job;
    struct hb_buf text = HB_BUF_INIT;
    size_t at = job->trouble_count;
    va_list ap;

    if (job->trouble_count == job->trouble_cap) {
        job->trouble_cap = job->trouble_cap ? 2 * job->trouble_cap : 4;
        job->troubles = hb_xrealloc_array(job->troubles, job->trouble_cap,
                                          sizeof(*job->troubles));
    }
    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&text, fmt, ap));
    va_end(ap);
    for (; at > 0 && job->troubles[at - 1].when_ns > when_ns; at--)
        job->troubles[at] = job->troubles[at - 1];
    job->troubles[at] = (struct report_trouble){
        .host = host->index,
        .exit_code = exit_code,
        .when_ns = when_ns,
        .text = hb_buf_detach(&text),
        .takes_ranks = takes_ranks,
    };
    job->trouble_count++;
    hb_log(job->config->log, HB_LOG_DEBUG, "host %s: %s", host->name,
           job->troubles[at].text);
    verdict_by_failure(job, exit_code);
}

/* ---- The report ---- */

static int host_first(const struct job *job)
{
    if (job->trouble_count == 0)
        return 0;
    return job->failed_count == 0 ||
           job->troubles[0].when_ns < job->failed_ns[0];
}

void job_notice(struct job *job)
{
    int left = job_count_alive(job);
    const struct control_exited *first = job->failed;
    struct hb_buf text = HB_BUF_INIT;

    if (!job->by_failure || left == 0 || job->noticed)
        return;
    job->noticed = 1;
    if (host_first(job))
        hb_must(hb_buf_printf(&text, "host %s: %s",
                              job->hosts[job->troubles[0].host].name,
                              job->troubles[0].text));
    else
        hb_must(hb_buf_printf(&text, "rank %d failed with exit code %d",
                              first->rank, first->exit_code));
    hb_text_sanitize(hb_buf_data(&text));
    job_say(job, "%s; waiting up to %g s for %d other rank%s to end",
            hb_buf_data(&text), job->config->grace_ms / 1e3, left,
            left == 1 ? "" : "s");
    hb_buf_free(&text);
}

static void report_all(struct job *job, struct hb_buf *text)
{
    struct report r = {
        .plan = job->config->plan,
        .failed = job->failed,
        .failed_count = job->failed_count,
        .troubles = job->troubles,
        .trouble_count = job->trouble_count,
        .host_first = host_first(job),
        .cause = job->cause,
    };
    int own = (int)(job->failed_count - job->failed_before_end);

    if (job->by_failure)
        job->exit_code = r.host_first ? job->troubles[0].exit_code
                                      : job->failed[0].exit_code;
    r.exit_code = job->exit_code;
    if (job->alive_at_end > own)
        r.ended = job->alive_at_end - own;
    report_format(text, &r);
}

/* Who asked for the end knows why, but not which hosts did not hear of
 * it. */
void job_report(struct job *job)
{
    struct hb_buf text = HB_BUF_INIT;

    if (!job->has_verdict)
        return;
    if (job->silent)
        report_troubles(&text, "hvdrun: ", job->config->plan, job->troubles,
                        job->trouble_count);
    else
        report_all(job, &text);
    if (hb_buf_len(&text) > 0)
        output_message(job->output, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
}

void job_end_free(struct job *job)
{
    for (size_t i = 0; i < job->failed_count; i++)
        control_exited_fini(&job->failed[i]);
    for (size_t i = 0; i < job->trouble_count; i++)
        hb_free(job->troubles[i].text);
    hb_free(job->failed);
    hb_free(job->failed_ns);
    hb_free(job->troubles);
    hb_free(job->cause);
}
