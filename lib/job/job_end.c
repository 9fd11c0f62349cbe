/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a job ends, and the report about it.
 *
 * The first cause ends the job; an elastic job goes on after failures of ranks
 * and the loss of hosts as long as enough ranks are left (job_elastic.c).  If
 * that is the failure of a rank or the trouble of a host, the news of an
 * earlier failure (by one clock for all hosts) may still come before the end:
 * then the report and the exit code are those of the earlier one.  A user's
 * signals and time limits are causes at the moment they come.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"
#include "lib/job/stall/culprit.h"

#include <string.h>

/* Time for a rank to end after its leaving made others fail: its exit handlers
 * may run. */
enum { CULPRIT_WAIT_MS = 2000 };

void job_verdict(struct job *job, int exit_code, const char *fmt, ...)
{
    struct hb_buf text = HB_BUF_INIT;
    va_list ap;

    if (job->has_verdict)
        return;
    job->has_verdict = 1;
    job->verdict_code = exit_code;
    if (!fmt)
        return;
    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&text, fmt, ap));
    va_end(ap);
    job->cause = hb_buf_detach(&text);
}

/* Makes the first failure or trouble the cause, unless there is a cause. */
static void verdict_by_failure(struct job *job)
{
    if (job->has_verdict)
        return;
    job->has_verdict = 1;
    job->by_failure = 1;
}

/* ---- Lines for the user ---- */

void job_message(struct job *job, const struct hb_buf *text)
{
    if (hb_buf_len(text) == 0)
        return;
    output_message(job->output, hb_buf_data(text), hb_buf_len(text));
    job_record_event(job, hb_buf_data(text), hb_buf_len(text));
}

void job_print(struct job *job, const char *line)
{
    struct hb_buf text = HB_BUF_INIT;

    xbuf_puts(&text, line);
    xbuf_puts(&text, "\n");
    job_message(job, &text);
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

void job_death_text(const struct job *job, struct hb_buf *out,
                    const struct control_exited *m)
{
    int home = job->config->plan->ranks[m->rank].host;

    hb_must(hb_buf_printf(out, "rank %d (pid %d) on host %s: ", m->rank,
                          (int)m->pid, job->hosts[home].name));
    hb_must(control_exited_phrase(out, m));
}

/* Tells the other hosts at once, because their ranks may wait for the dead one
 * in a collective.  Ranks on its own host learn it from their agent. */
static void tell_other_hosts(struct job *job, const struct control_exited *m)
{
    int home = job->config->plan->ranks[m->rank].host;
    struct hb_buf frame = HB_BUF_INIT;
    struct hb_buf text = HB_BUF_INIT;

    if (job->config->plan->host_count == 1)
        return;
    job_death_text(job, &text, m);
    hb_must(control_encode_abort(&frame, m->rank, hb_buf_data(&text)));
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (i != home)
            job_send(job, i, &frame);
    hb_buf_free(&frame);
    hb_buf_free(&text);
}

/* Fails the fences that wait for this rank: they can never be complete. */
static void tell_rendezvous(struct job *job, const struct job_host *host,
                            const struct control_exited *m)
{
    struct hb_buf text = HB_BUF_INIT;

    hb_must(hb_buf_printf(&text, "rank %d on host %s: ", m->rank, host->name));
    if (m->exit_code)
        hb_must(control_exited_phrase(&text, m));
    else
        xbuf_puts(&text, "has ended already");
    job_rendezvous_rank_gone(job->rendezvous, m->rank, hb_buf_data(&text));
    hb_buf_free(&text);
}

/* ---- The first failure ---- */

/* Returns whether the rank that is to blame for the first failure still
 * runs. */
static int culprit_lives(const struct job *job)
{
    size_t at;
    int rank = culprit_find(job->failed, job->failed_count, &at);

    return rank >= 0 && rank < job->config->plan->size && !job->exited[rank] &&
           !job_host_finished(&job->hosts[job->config->plan->ranks[rank].host]);
}

/* Returns where in job->failed the cause of the first failure is. */
static size_t culprit_at(const struct job *job)
{
    size_t at;

    culprit_find(job->failed, job->failed_count, &at);
    return at;
}

static void end_by_failure(struct job *job)
{
    const struct control_exited *m = &job->failed[culprit_at(job)];

    uv_timer_stop(&job->blame_timer);
    if (!job->has_verdict)
        tell_other_hosts(job, m);
    verdict_by_failure(job);
    if (!job_stall_ending(job))
        job_event(job, JOB_EV_FAILED);
}

static void on_blame_time(uv_timer_t *timer)
{
    end_by_failure(timer->data);
}

/* Ends the job because of the first failure, but waits a moment while the
 * culprit still runs: ending the job would kill it by a signal before it
 * returns its own exit code. */
void job_check_failure(struct job *job)
{
    if (job->failed_count == 0 || job_elastic_goes_on(job))
        return;
    if (job->has_verdict || !culprit_lives(job))
        end_by_failure(job);
    else if (!uv_is_active((uv_handle_t *)&job->blame_timer))
        uv_timer_start(&job->blame_timer, on_blame_time, CULPRIT_WAIT_MS, 0);
}

void job_rank_exited(struct job *job, struct job_host *host,
                     struct control_exited *m)
{
    int ours = (m->cause == CONTROL_CAUSE_HVDRUN && job->has_verdict) ||
               job_elastic_is_done(job) || job_elastic_is_gone(job, m->rank);
    uint64_t when_ns = offset_ours(&host->clock, m->when_ns, hb_now_ns());

    job->exited[m->rank] = ours ? JOB_RANK_ENDED : JOB_RANK_EXITED;
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
    job_record_exited(host, m, when_ns);
    if (m->exit_code == 0 || ours) {
        if (!ours)
            job_elastic_finished(job, m->rank);
        control_exited_fini(m);
        /* The rank that ended may be the awaited culprit. */
        if (!job->has_verdict)
            job_check_failure(job);
        return;
    }
    keep_failed(job, m, when_ns);
    if (!job_elastic_failed(job, m, when_ns))
        job_check_failure(job);
}

/* ---- Hosts ---- */

void job_host_trouble(struct job_host *host, int exit_code, uint64_t when_ns,
                      int takes_ranks, const char *fmt, ...)
{
    struct job *job = host->job;
    struct hb_buf text = HB_BUF_INIT;
    size_t at = job->trouble_count;
    va_list ap;

    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&text, fmt, ap));
    va_end(ap);
    job_record_trouble(host, hb_buf_data(&text));
    if (job_grow_trouble(host, hb_buf_data(&text))) {
        hb_buf_free(&text);
        return;
    }
    if (job->trouble_count == job->trouble_cap) {
        job->trouble_cap = job->trouble_cap ? 2 * job->trouble_cap : 4;
        job->troubles = hb_xrealloc_array(job->troubles, job->trouble_cap,
                                          sizeof(*job->troubles));
    }
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
    if (!takes_ranks ||
        !job_elastic_host_lost(host, when_ns, job->troubles[at].text))
        verdict_by_failure(job);
}

void job_forget_failures(struct job *job)
{
    for (size_t i = 0; i < job->failed_count; i++)
        control_exited_fini(&job->failed[i]);
    for (size_t i = 0; i < job->trouble_count; i++)
        hb_free(job->troubles[i].text);
    job->failed_count = job->trouble_count = 0;
}

void job_forget_failure(struct job *job, int rank)
{
    size_t kept = 0;

    for (size_t i = 0; i < job->failed_count; i++) {
        if (job->failed[i].rank == rank) {
            control_exited_fini(&job->failed[i]);
            continue;
        }
        job->failed[kept] = job->failed[i];
        job->failed_ns[kept++] = job->failed_ns[i];
    }
    job->failed_count = kept;
}

/* ---- The report ---- */

/* Finds the host's trouble in job->troubles; returns -1 if it has none. */
static int trouble_of(const struct job *job, int host)
{
    for (size_t i = 0; i < job->trouble_count; i++)
        if (job->troubles[i].host == host)
            return (int)i;
    return -1;
}

/* Finds the cause of the job's end in job->troubles; returns -1 if a rank's
 * failure is the cause.  A rank that fails because it lost its connection to
 * another rank may be heard of before the loss of that rank's host. */
static int first_trouble(const struct job *job)
{
    int rank, host;
    size_t at;

    if (job->trouble_count == 0)
        return -1;
    if (job->failed_count == 0 || job->troubles[0].when_ns < job->failed_ns[0])
        return 0;
    rank = culprit_find(job->failed, job->failed_count, &at);
    if (rank < 0 || rank >= job->config->plan->size || job->exited[rank])
        return -1;
    host = job->config->plan->ranks[rank].host;
    return job->hosts[host].state == HOST_LOST ? trouble_of(job, host) : -1;
}

const struct control_exited *job_culprit(const struct job *job)
{
    if (!job->by_failure || first_trouble(job) >= 0)
        return NULL;
    return &job->failed[culprit_at(job)];
}

int job_exit_code(const struct job *job)
{
    const struct control_exited *culprit = job_culprit(job);

    if (culprit)
        return culprit->exit_code;
    if (job->by_failure)
        return job->troubles[first_trouble(job)].exit_code;
    if (job->has_verdict)
        return job->verdict_code;
    if (job->same_host)
        return JOB_EXIT_SAME_HOST;
    if (job->output_failed)
        return JOB_EXIT_LAUNCHER;
    return job_elastic_stopped(job) ? JOB_EXIT_STOPPED : 0;
}

void job_notice(struct job *job)
{
    int left = job_count_alive(job);
    int trouble = first_trouble(job);
    const struct control_exited *first;
    struct hb_buf text = HB_BUF_INIT;

    if (!job->by_failure || left == 0 || job->noticed)
        return;
    job->noticed = 1;
    if (trouble >= 0)
        hb_must(hb_buf_printf(&text, "host %s: %s",
                              job->hosts[job->troubles[trouble].host].name,
                              job->troubles[trouble].text));
    else {
        first = &job->failed[culprit_at(job)];
        hb_must(hb_buf_printf(&text, "rank %d failed with exit code %d",
                              first->rank, first->exit_code));
    }
    hb_text_sanitize(hb_buf_data(&text));
    job_say(job, "%s; waiting up to %g s for %d other rank%s to end",
            hb_buf_data(&text), (double)job->config->spec.grace_ms / 1e3, left,
            left == 1 ? "" : "s");
    hb_buf_free(&text);
}

/* Returns 1 + the rank that the culprit blames and that has not failed, or
 * 0. */
static int find_left(const struct job *job)
{
    const struct job_host *host;
    size_t at;
    int left;

    if (job->failed_count == 0)
        return 0;
    left = culprit_find(job->failed, job->failed_count, &at);
    if (left < 0 || left >= job->config->plan->size)
        return 0;
    /* How a rank of a lost host ended is unknown. */
    host = &job->hosts[job->config->plan->ranks[left].host];
    return host->state == HOST_LOST ? 0 : left + 1;
}

/* Copies count elements of the given size; the one at `first` comes first, the
 * others stay in order. */
static void *copy_with_first(const void *items, size_t count, size_t size,
                             size_t first)
{
    const char *from = items;
    char *copy = hb_xcalloc(count + 1, size);

    if (count == 0)
        return copy;
    memcpy(copy, from + first * size, size);
    memcpy(copy + size, from, first * size);
    memcpy(copy + (first + 1) * size, from + (first + 1) * size,
           (count - first - 1) * size);
    return copy;
}

static void report_all(const struct job *job, struct hb_buf *text)
{
    int trouble = first_trouble(job);
    int own = (int)(job->failed_count - job->failed_before_end);
    struct control_exited *failed =
        copy_with_first(job->failed, job->failed_count, sizeof(*failed),
                        job->failed_count ? culprit_at(job) : 0);
    struct report_trouble *troubles =
        copy_with_first(job->troubles, job->trouble_count, sizeof(*troubles),
                        trouble > 0 ? (size_t)trouble : 0);
    struct report r = {
        .plan = job->config->plan,
        .failed = failed,
        .failed_count = job->failed_count,
        .troubles = troubles,
        .trouble_count = job->trouble_count,
        .host_first = trouble >= 0,
        .cause = job->cause,
        .left = find_left(job),
        .exit_code = job_exit_code(job),
    };

    r.left_exited = r.left && job->exited[r.left - 1] == JOB_RANK_EXITED;
    if (job->alive_at_end > own)
        r.ended = job->alive_at_end - own;
    report_format(text, &r);
    hb_free(failed);
    hb_free(troubles);
}

/* Reports the job's end.  With job->silent, reports only the troubles of hosts:
 * the user who asked for the end knows why, but not which hosts did not
 * obey. */
void job_report(struct job *job)
{
    struct hb_buf text = HB_BUF_INIT;

    if (!job->has_verdict) {
        job_elastic_report(job);
        return;
    }
    if (job->silent)
        report_troubles(&text, "hvdrun: ", job->config->plan, job->troubles,
                        job->trouble_count);
    else
        report_all(job, &text);
    job_record_report(job, hb_buf_data(&text));
    if (hb_buf_len(&text) > 0)
        output_message(job->output, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
}

void job_end_free(struct job *job)
{
    job_forget_failures(job);
    hb_free(job->failed);
    hb_free(job->failed_ns);
    hb_free(job->troubles);
    hb_free(job->cause);
}
