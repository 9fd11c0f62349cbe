/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stall inspector (stall.h) in a job: messages in and out, its timer, and
 * the end.  Active only while the ranks run; the timer runs only while some of
 * them wait.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/stall/stall_inspector.h"

#include <string.h>

/* Time for the ranks to get HVD_ETIMEOUT, and to say so, before SIGTERM. */
enum { STALL_LAST_WORDS_MS = 250 };

static void on_stall_timer(uv_timer_t *timer);

static void arm(struct job *job)
{
    uint64_t next_ns = stall_next_ns(job->stall), now_ns = hb_now_ns();

    if (job->state != JOB_RUNNING)
        return;
    if (!next_ns)
        uv_timer_stop(&job->stall_timer);
    else
        uv_timer_start(&job->stall_timer, on_stall_timer,
                       next_ns > now_ns ? (next_ns - now_ns) / 1000000 + 1 : 0,
                       0);
}

static void on_stall_timer(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job->state != JOB_RUNNING)
        return;
    stall_tick(job->stall, hb_now_ns());
    arm(job);
}

/* ---- What it does
 * ------------------------------------------------------------ */

static void ask(void *arg, int host, const struct control_stall_ask *m)
{
    struct job *job = arg;
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_stall_ask(&frame, m));
    job_send(job, host, &frame);
    hb_buf_free(&frame);
}

static void say(void *arg, const char *lines)
{
    struct job *job = arg;

    output_message(job->output, lines, strlen(lines));
    job_record_event(job, lines, strlen(lines));
}

static void send_all(struct job *job, const struct hb_buf *frame)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_send(job, i, frame);
}

static void blame(void *arg, int rank, const char *why)
{
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_stall_blame(&frame, rank, why));
    send_all(arg, &frame);
    hb_buf_free(&frame);
}

static int evict(void *arg, const int *ranks, int count, int64_t waited_ms)
{
    return job_evict_hanging(arg, ranks, count, waited_ms);
}

static void on_last_words(uv_timer_t *timer)
{
    struct job *job = timer->data;

    job_event(job, JOB_EV_TIMEOUT);
}

static void end(void *arg, int rank, const char *why, const char *verdict)
{
    struct job *job = arg;
    struct hb_buf frame = HB_BUF_INIT;

    job_verdict(job, JOB_EXIT_TIMEOUT, "%s", verdict);
    job->urgent = 1;
    hb_must(control_encode_stall_end(&frame, rank, why));
    send_all(job, &frame);
    hb_buf_free(&frame);
    uv_timer_start(&job->stall_end_timer, on_last_words, STALL_LAST_WORDS_MS,
                   0);
}

/* ---- Life
 * ---------------------------------------------------------------------- */

void job_stall_open(struct job *job)
{
    const struct stall_config config = {
        .plan = job->config->plan,
        .start_ms = job->config->start_timeout_ms,
        .ask = ask,
        .say = say,
        .blame = blame,
        .evict = job->config->spec.elastic ? evict : NULL,
        .end = end,
        .arg = job,
    };

    job->stall = stall_new(&config);
}

void job_stall_start(struct job *job)
{
    arm(job);
}

void job_stall_end(struct job *job)
{
    uv_timer_stop(&job->stall_timer);
    uv_timer_stop(&job->stall_end_timer);
}

int job_stall_ending(const struct job *job)
{
    return uv_is_active((const uv_handle_t *)&job->stall_end_timer);
}

/* Notes that the rank has ended; may be called before the ranks of other hosts
 * have started. */
void job_stall_rank_gone(struct job *job, int rank)
{
    if (job->state > JOB_RUNNING)
        return;
    stall_rank_gone(job->stall, rank, hb_now_ns());
    arm(job);
}

void job_stall_absent(struct job *job, int rank)
{
    stall_absent(job->stall, rank);
}

void job_stall_members(struct job *job, const int *ranks, int count)
{
    stall_members(job->stall, ranks, count);
}

void job_stall_no_answer(struct job *job, int rank, int peer)
{
    const struct plan *plan = job->config->plan;
    char *text = hb_xasprintf(
        "rank %d on host %s gets no answer from host %s, where rank %d is; "
        "does a firewall let it through?",
        rank, plan->hosts[plan->ranks[rank].host].entry->name,
        plan->hosts[plan->ranks[peer].host].entry->name, peer);

    stall_no_answer(job->stall, text, hb_now_ns());
    hb_free(text);
}

void job_stall_resumed(struct job *job)
{
    stall_resumed(job->stall, hb_now_ns());
    arm(job);
}

/* ---- Messages
 * -------------------------------------------------------------------- */

static int on_stalled(struct job_host *host, const struct frame *f,
                      struct hb_error *err)
{
    struct control_stalled m;
    int rc = control_decode_stalled(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = job_check_rank(host, m.rank, err);
    if (rc == 0 && host->job->state == JOB_RUNNING &&
        !host->job->exited[m.rank])
        stall_told(host->job->stall, &m, hb_now_ns());
    return rc;
}

static int on_late(struct job_host *host, const struct frame *f,
                   struct hb_error *err)
{
    struct control_late m;
    int rc = control_decode_late(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = job_check_rank(host, m.rank, err);
    if (rc == 0 && host->job->state == JOB_RUNNING && !host->job->has_verdict)
        stall_late(host->job->stall, m.waited_ms, hb_now_ns());
    return rc;
}

static int on_ranks(struct job_host *host, const struct frame *f,
                    struct hb_error *err)
{
    struct control_stall_ranks m;
    int rc = control_decode_stall_ranks(f->payload, f->len, &m, err);

    for (int i = 0; rc == 0 && i < m.count; i++)
        rc = job_check_rank(host, m.ranks[i].rank, err);
    if (rc == 0 && host->job->state == JOB_RUNNING)
        stall_ranks(host->job->stall, host->index, &m, hb_now_ns());
    control_stall_ranks_fini(&m);
    return rc;
}

static int on_stack(struct job_host *host, const struct frame *f,
                    struct hb_error *err)
{
    struct control_stall_stack m;
    int rc = control_decode_stall_stack(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = job_check_rank(host, m.rank, err);
    if (rc == 0 && host->job->state == JOB_RUNNING)
        stall_stack(host->job->stall, &m, hb_now_ns());
    control_stall_stack_fini(&m);
    return rc;
}

int job_stall_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    int rc;

    if (f->type == CONTROL_STALLED)
        rc = on_stalled(host, f, err);
    else if (f->type == CONTROL_LATE)
        rc = on_late(host, f, err);
    else if (f->type == CONTROL_STALL_RANKS)
        rc = on_ranks(host, f, err);
    else
        rc = on_stack(host, f, err);
    arm(host->job);
    return rc;
}
