/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a job: start, the actions of the state machine (state.h),
 * the reason of its end, and the report.
 *
 * Events may be raised from inside an action (a host that is lost while it
 * is sent something); the state is set before the action runs, so that is
 * just a further step.  on_done runs from the close callbacks only.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/job/report.h"
#include "lib/job/xbuf.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    /* How much longer than the grace time the hosts may take to end. */
    JOB_OVERDUE_MS = 5000,
    /* When to tell a waiting user why nothing happens. */
    JOB_NOTICE_MS = 1000,
};

/* ---- Why it ends ---- */

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

static void keep_failed(struct job *job, const struct control_exited *m)
{
    if (job->failed_count == job->failed_cap) {
        job->failed_cap = job->failed_cap ? 2 * job->failed_cap : 8;
        job->failed = hb_xrealloc_array(job->failed, job->failed_cap,
                                        sizeof(*job->failed));
    }
    job->failed[job->failed_count++] = *m;
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
static void tell_rendezvous(struct job *job, const struct control_exited *m)
{
    struct hb_buf text = HB_BUF_INIT;

    hb_must(hb_buf_printf(
        &text, "rank %d on host %s: ", m->rank,
        job->hosts[job->config->plan->ranks[m->rank].host].name));
    if (m->exit_code)
        report_phrase(&text, m);
    else
        xbuf_puts(&text, "has ended already");
    job_rendezvous_rank_gone(job->rendezvous, m->rank, hb_buf_data(&text));
    hb_buf_free(&text);
}

void job_rank_exited(struct job *job, struct control_exited *m)
{
    int ours = m->cause == CONTROL_CAUSE_HVDRUN && job->has_verdict;

    job->exited[m->rank] = 1;
    job->exited_count++;
    tell_rendezvous(job, m);
    if (job->input)
        input_rank_gone(job->input, m->rank);
    hb_log(job->config->log, HB_LOG_DEBUG, "rank %d: exit code %d%s", m->rank,
           m->exit_code, ours ? " (ended by hvdrun)" : "");
    if (m->exit_code == 0 || ours) {
        control_exited_fini(m);
        return;
    }
    keep_failed(job, m);
    if (!job->has_verdict)
        tell_other_hosts(job, m);
    job_verdict(job, m->exit_code, NULL);
    job_event(job, JOB_EV_FAILED);
}

static void job_report(struct job *job)
{
    struct hb_buf text = HB_BUF_INIT;
    struct report r = {
        .plan = job->config->plan,
        .failed = job->failed,
        .failed_count = job->failed_count,
        .cause = job->cause,
        .exit_code = job->exit_code,
    };
    int own = (int)(job->failed_count - job->failed_before_end);

    if (!job->has_verdict || job->silent)
        return;
    if (job->alive_at_end > own)
        r.ended = job->alive_at_end - own;
    report_format(&text, &r);
    output_message(job->output, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
}

/* ---- The machine ---- */

static void on_timeout(uv_timer_t *timer)
{
    struct job *job = timer->data;

    job_verdict(job, JOB_EXIT_TIMEOUT,
                "the job did not end within %g s (--timeout)",
                (double)job->config->timeout_ms / 1e3);
    job->urgent = 1;
    job_event(job, JOB_EV_TIMEOUT);
}

static void on_start_timeout(uv_timer_t *timer)
{
    struct job *job = timer->data;
    struct hb_buf text = HB_BUF_INIT;

    hb_must(hb_buf_printf(&text,
                          "the job did not start within %g s "
                          "(--start-timeout)",
                          (double)job->config->start_timeout_ms / 1e3));
    for (int i = 0; i < job->config->plan->host_count; i++)
        hb_must(hb_buf_printf(&text, "\n  host %s: %s", job->hosts[i].name,
                              host_state_name(job->hosts[i].state)));
    job_verdict(job, JOB_EXIT_LAUNCHER, "%s", hb_buf_data(&text));
    hb_buf_free(&text);
    job->urgent = 1;
    job_event(job, JOB_EV_TIMEOUT);
}

static int count_alive(const struct job *job)
{
    int alive = 0;

    for (int rank = 0; rank < job->config->plan->size; rank++) {
        int host = job->config->plan->ranks[rank].host;
        enum host_state state = job->hosts[host].state;
        if (state == HOST_LAUNCHED || state == HOST_STARTED)
            alive += !job->exited[rank];
    }
    return alive;
}

static void on_overdue(uv_timer_t *timer);

static void start_overdue(struct job *job, int grace_ms)
{
    uv_timer_start(&job->end_timer, on_overdue,
                   (uint64_t)grace_ms + JOB_OVERDUE_MS, 0);
}

/* Either a host does not end its ranks, or all have ended and their output
 * waits for a reader: then hvdrun waits too, as any program would. */
static void on_overdue(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job->state == JOB_DRAINING || count_alive(job) == 0) {
        if (job->urgent)
            output_discard(job->output);
        start_overdue(job, 0);
        job_check_drained(job);
        return;
    }
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (job->hosts[i].transport)
            job_say(job,
                    "host %s: the agent did not end its ranks in time; "
                    "closing its connection",
                    job->hosts[i].name);
    job_event(job, JOB_EV_OVERDUE);
}

static void on_notice(uv_timer_t *timer)
{
    struct job *job = timer->data;
    int left = count_alive(job);
    const struct control_exited *first = job->failed;

    if (!job->cause && first && !job->silent && left > 0)
        job_say(job,
                "rank %d failed with exit code %d; waiting up to %g s for "
                "%d other rank%s to end",
                first->rank, first->exit_code, job->config->grace_ms / 1e3,
                left, left == 1 ? "" : "s");
    start_overdue(job, job->config->grace_ms);
}

static void act_launch(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_host_launch(&job->hosts[i]);
}

static void act_run(struct job *job)
{
    uv_timer_stop(&job->limit_timer);
    if (job->config->timeout_ms > 0)
        uv_timer_start(&job->limit_timer, on_timeout,
                       (uint64_t)job->config->timeout_ms, 0);
    job_open_input(job);
}

static void act_end(struct job *job, int grace_ms)
{
    int finished = job->finished;

    if (!job->alive_at_end) {
        job->alive_at_end = count_alive(job);
        job->failed_before_end = job->failed_count;
    }
    uv_timer_stop(&job->limit_timer);
    if (grace_ms > 0)
        uv_timer_start(&job->end_timer, on_notice, JOB_NOTICE_MS, 0);
    else
        start_overdue(job, 0);
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_host_send_u32(&job->hosts[i], CONTROL_KILL, (uint32_t)grace_ms);
    if (finished == job->config->plan->host_count)
        job_event(job, JOB_EV_GONE);
}

static void act_drain(struct job *job)
{
    start_overdue(job, 0);
    for (int rank = 0; rank < job->config->plan->size; rank++) {
        output_end(job->output, rank, 1);
        output_end(job->output, rank, 2);
    }
    output_flush(job->output);
    job_report(job);
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_host_close(&job->hosts[i]);
    job_check_drained(job);
}

static void on_part_closed(struct job *job)
{
    if (--job->open_parts == 0)
        job->on_done(job->arg, job->exit_code);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_part_closed(handle->data);
}

static void on_io_closed(void *arg)
{
    on_part_closed(arg);
}

static void act_finish(struct job *job)
{
    struct input *input = job->input;

    job->open_parts = input ? 4 : 3;
    job->input = NULL;
    uv_close((uv_handle_t *)&job->limit_timer, on_timer_closed);
    uv_close((uv_handle_t *)&job->end_timer, on_timer_closed);
    output_close(job->output, on_io_closed);
    if (input)
        input_close(input, on_io_closed);
}

static void job_act(struct job *job, enum job_action action)
{
    switch (action) {
    case JOB_ACT_NONE:
        break;
    case JOB_ACT_LAUNCH:
        act_launch(job);
        break;
    case JOB_ACT_RUN:
        act_run(job);
        break;
    case JOB_ACT_END:
        act_end(job, job->config->grace_ms);
        break;
    case JOB_ACT_KILL:
        act_end(job, 0);
        output_discard(job->output);
        break;
    case JOB_ACT_DRAIN:
        act_drain(job);
        break;
    case JOB_ACT_DISCARD:
        output_discard(job->output);
        job_check_drained(job);
        break;
    case JOB_ACT_FINISH:
        act_finish(job);
        break;
    }
}

void job_event(struct job *job, enum job_event event)
{
    struct job_transition t = job_step(job->state, event);
    uint64_t now_ns;

    if (t.next != job->state) {
        now_ns = hb_now_ns();
        hb_log(job->config->log, HB_LOG_DEBUG,
               "job: %s -> %s: %s (after %.1f ms)", job_state_name(job->state),
               job_state_name(t.next), job_event_name(event),
               (double)(now_ns - job->state_since_ns) / 1e6);
        job->state = t.next;
        job->state_since_ns = now_ns;
    }
    job_act(job, t.action);
}

void job_check_drained(struct job *job)
{
    if (job->state == JOB_DRAINING && job->open_transports == 0 &&
        output_idle(job->output))
        job_event(job, JOB_EV_DRAINED);
}

/* ---- Signals ---- */

static void end_by_signal(struct job *job, int signo, const char *sender)
{
    int again = job->signals++ > 0;

    job->urgent = 1;
    if (!again && !job->has_verdict) {
        struct hb_buf name = HB_BUF_INIT;

        report_signal_name(&name, signo);
        report_sender(&name, sender);
        job_say(job, "%s: ending the job (once more: kill it at once)",
                hb_buf_data(&name));
        hb_buf_free(&name);
        job->silent = 1;
    }
    job_verdict(job, 128 + signo, NULL);
    job_event(job, again ? JOB_EV_SIGNAL_AGAIN : JOB_EV_SIGNAL);
}

static void send_signal(struct job *job, int signo)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (job->hosts[i].state == HOST_STARTED)
            job_host_send_u32(&job->hosts[i], CONTROL_SIGNAL, (uint32_t)signo);
}

/* Time spent stopped does not count against the limits.  The ranks get
 * SIGSTOP: they are in sessions without a terminal, where SIGTSTP has no
 * effect on a process that does not handle it. */
static void job_stop(struct job *job)
{
    job->limit_left_ms = uv_timer_get_due_in(&job->limit_timer);
    if (uv_is_active((uv_handle_t *)&job->limit_timer))
        uv_timer_stop(&job->limit_timer);
    else
        job->limit_left_ms = 0;
    send_signal(job, SIGSTOP);
}

static void job_continue(struct job *job)
{
    if (job->limit_left_ms > 0 && job->state < JOB_ENDING) {
        uv_update_time(job->config->loop);
        uv_timer_start(&job->limit_timer,
                       job->state == JOB_RUNNING ? on_timeout
                                                 : on_start_timeout,
                       job->limit_left_ms, 0);
    }
    job->limit_left_ms = 0;
    send_signal(job, SIGCONT);
}

void job_signal(struct job *job, int signo, const char *sender)
{
    if (job->state == JOB_DONE)
        return;
    switch (signo) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        end_by_signal(job, signo, sender);
        break;
    case SIGTSTP:
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

/* ---- Start and end ---- */

/* Failed opens are told by the loop, not by job_start: other hosts'
 * agents may be running already and must be ended. */
static void on_first_turn(uv_timer_t *timer)
{
    struct job *job = timer->data;

    job_event(job, JOB_EV_AGENT_LOST);
}

static void send_to_host(void *arg, int host, const struct hb_buf *frame)
{
    struct job *job = arg;

    job_host_send(&job->hosts[host], frame);
}

static void job_open_hosts(struct job *job)
{
    const struct plan *plan = job->config->plan;

    job->hosts = hb_xcalloc((size_t)plan->host_count, sizeof(*job->hosts));
    for (int i = 0; i < plan->host_count; i++) {
        job->hosts[i] = (struct job_host){
            .job = job,
            .plan = &plan->hosts[i],
            .name = plan->hosts[i].entry->name,
            .index = i,
        };
        job_host_open(&job->hosts[i]);
    }
    if (job->finished > 0)
        uv_timer_start(&job->end_timer, on_first_turn, 0, 0);
}

int job_start(const struct job_config *config,
              void (*on_done)(void *arg, int exit_code), void *arg,
              struct job **out, struct hb_error *err)
{
    struct job *job = hb_xcalloc(1, sizeof(*job));
    int rc;

    job->config = config;
    job->on_done = on_done;
    job->arg = arg;
    job->state = JOB_CONNECTING;
    job->state_since_ns = hb_now_ns();
    rc = job_routes_open(job, err);
    if (rc == 0)
        rc = job_open_output(job, err);
    if (rc < 0) {
        routes_free(job->routes);
        hb_free(job);
        return rc;
    }
    job->exited = hb_xcalloc((size_t)config->plan->size, 1);
    job->rendezvous =
        job_rendezvous_new(config->plan->size, send_to_host, job);
    uv_timer_init(config->loop, &job->limit_timer);
    uv_timer_init(config->loop, &job->end_timer);
    job->limit_timer.data = job->end_timer.data = job;
    uv_timer_start(&job->limit_timer, on_start_timeout,
                   (uint64_t)config->start_timeout_ms, 0);
    job_open_hosts(job);
    *out = job;
    return 0;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    for (int i = 0; i < job->config->plan->host_count; i++) {
        hb_buf_free(&job->hosts[i].in);
        hb_buf_free(&job->hosts[i].complaint);
    }
    for (size_t i = 0; i < job->failed_count; i++)
        control_exited_fini(&job->failed[i]);
    hb_free(job->failed);
    hb_free(job->hosts);
    routes_free(job->routes);
    job_rendezvous_free(job->rendezvous);
    hb_free(job->exited);
    hb_free(job->cause);
    hb_free(job);
}
