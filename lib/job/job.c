/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life cycle of a job: start, the actions of the state machine (state.h),
 * and the end.
 *
 * Events may be raised from inside an action (a host that is lost while it is
 * sent something); the state is set before the action runs, so that is just a
 * further step.  on_done runs from the close callbacks only.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/stall/stall_inspector.h"

enum {
    /* Time beyond the grace time that hosts have to end. */
    JOB_OVERDUE_MS = 5000,
    /* The same for a host that does not even answer. */
    JOB_DEAF_MS = 1000,
    /* When to tell the user what an ending job waits for. */
    JOB_NOTICE_MS = 1000,
    JOB_TIMERS = 16,
    /* Time for other hosts to connect after one has failed to. */
    JOB_SETTLE_MS = 1000,
};

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

    job_start_timeout(job);
    job->urgent = 1;
    job_event(job, JOB_EV_TIMEOUT);
}

void job_start_limit(struct job *job, uint64_t left_ms)
{
    uv_timer_start(&job->limit_timer,
                   job->state >= JOB_RUNNING ? on_timeout : on_start_timeout,
                   left_ms, 0);
}

int job_count_alive(const struct job *job)
{
    int alive = 0;

    for (int rank = 0; rank < job->config->plan->size; rank++) {
        int host = job->config->plan->ranks[rank].host;
        enum host_state state = job->hosts[host].state;
        if (state == HOST_LAUNCHED || state == HOST_STARTED)
            alive += !job->exited[rank] && !job_elastic_is_gone(job, rank);
    }
    return alive;
}

/* ---- The end ---- */

static void start_end_timer(struct job *job, uv_timer_cb cb, int ms)
{
    uv_timer_start(&job->end_timer, cb, (uint64_t)ms, 0);
}

static void cancel_hosts(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_host_cancel(&job->hosts[i]);
}

/* Cancels the hosts after all ranks have ended.  If stdout's reader is slow,
 * keeps waiting for it, as any program would, unless the end is urgent (signal,
 * time-out). */
static void on_drain_overdue(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job->urgent)
        output_discard(job->output);
    cancel_hosts(job);
    start_end_timer(job, on_drain_overdue, JOB_OVERDUE_MS);
    job_check_drained(job);
}

static void on_overdue(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job_count_alive(job) == 0) {
        if (job->urgent)
            output_discard(job->output);
        start_end_timer(job, on_overdue, JOB_OVERDUE_MS);
        return;
    }
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (!job_host_finished(&job->hosts[i]))
            job_say(job,
                    "host %s: the agent did not end its ranks in time; "
                    "closing its connection",
                    job->hosts[i].name);
    job_event(job, JOB_EV_OVERDUE);
}

/* Loses hosts that do not answer, because the grace time and JOB_DEAF_MS are
 * over. */
static void on_deaf(uv_timer_t *timer)
{
    struct job *job = timer->data;

    start_end_timer(job, on_overdue, JOB_OVERDUE_MS - JOB_DEAF_MS);
    job_beat_give_up(job);
}

static void on_notice(uv_timer_t *timer)
{
    struct job *job = timer->data;
    int passed_ms = JOB_NOTICE_MS - JOB_DEAF_MS;

    job_notice(job);
    job_sweep_notice(job);
    start_end_timer(job, on_deaf, (int)job->config->spec.grace_ms - passed_ms);
}

/* ---- Actions ---- */

static void on_settled(uv_timer_t *timer)
{
    job_event(timer->data, JOB_EV_SETTLED);
}

static void act_settle(struct job *job)
{
    start_end_timer(job, on_settled, JOB_SETTLE_MS);
    job_check_connected(job);
}

static void act_launch(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_host_launch(&job->hosts[i]);
}

static void act_run(struct job *job)
{
    job_wait_end(job);
    uv_timer_stop(&job->limit_timer);
    if (job->config->timeout_ms > 0)
        job_start_limit(job, (uint64_t)job->config->timeout_ms);
    job_stall_start(job);
    job_status_start(job);
    job_deadline_start(job);
    job_open_input(job);
    job_hosts_go(job);
    job_grow(job);
    job_preempt_open(job);
}

static void act_end(struct job *job, int grace_ms)
{
    int finished;

    job_elastic_end(job);
    finished = job->finished;
    if (!job->alive_at_end) {
        job->alive_at_end = job_count_alive(job);
        job->failed_before_end = job->failed_count;
    }
    job_wait_end(job);
    job_status_end(job);
    job_deadline_end(job);
    job_stall_end(job);
    uv_timer_stop(&job->limit_timer);
    if (grace_ms > JOB_NOTICE_MS)
        start_end_timer(job, on_notice, JOB_NOTICE_MS);
    else
        start_end_timer(job, on_deaf, grace_ms + JOB_DEAF_MS);
    for (int i = 0; i < job->config->plan->host_count; i++) {
        job->hosts[i].unheard = 1;
        job_host_send_u32(&job->hosts[i], CONTROL_KILL, (uint32_t)grace_ms);
        job_beat_ping(&job->hosts[i]);
    }
    if (finished == job->config->plan->host_count && job->sweeping == 0)
        job_event(job, JOB_EV_GONE);
}

static void act_drain(struct job *job)
{
    job_wait_end(job);
    job_status_end(job);
    job_deadline_end(job);
    job_stall_end(job);
    job_elastic_end(job);
    job_beat_end(job);
    start_end_timer(job, on_drain_overdue, JOB_OVERDUE_MS);
    for (int rank = 0; rank < job->config->plan->size; rank++) {
        output_end(job->output, rank, 1);
        output_end(job->output, rank, 2);
    }
    output_flush(job->output);
    job_sweep_give_up(job);
    job_trace_end(job);
    job_report(job);
    job_sweep_report(job);
    for (int i = 0; i < job->config->plan->host_count; i++)
        agent_link_close(&job->hosts[i].link);
    job_check_drained(job);
}

static void on_part_closed(struct job *job)
{
    if (--job->open_parts == 0)
        job->on_done(job->arg, job_exit_code(job));
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_part_closed(handle->data);
}

static void on_io_closed(void *arg)
{
    on_part_closed(arg);
}

static void list_timers(struct job *job, uv_timer_t *timers[JOB_TIMERS])
{
    timers[0] = &job->limit_timer;
    timers[1] = &job->end_timer;
    timers[2] = &job->beat_timer;
    timers[3] = &job->wait_timer;
    timers[4] = &job->stop_timer;
    timers[5] = &job->stall_timer;
    timers[6] = &job->stall_end_timer;
    timers[7] = &job->blame_timer;
    timers[8] = &job->settle_timer;
    timers[9] = &job->elastic_timer;
    timers[10] = &job->restart_timer;
    timers[11] = &job->grow_timer;
    timers[12] = &job->leave_timer;
    timers[13] = &job->counts_timer;
    timers[14] = &job->deadline_timer;
    timers[15] = &job->apart_timer;
}

static void act_finish(struct job *job)
{
    uv_timer_t *timers[JOB_TIMERS];
    struct input *input = job->input;

    list_timers(job, timers);
    job->open_parts = JOB_TIMERS + (input ? 2 : 1);
    job->open_parts += job_preempt_close(job, on_part_closed);
    job->open_parts += job_serve_close(job, on_part_closed);
    job->input = NULL;
    for (int i = 0; i < JOB_TIMERS; i++)
        uv_close((uv_handle_t *)timers[i], on_timer_closed);
    output_close(job->output, on_io_closed);
    if (input)
        input_close(input, on_io_closed);
}

static void job_act(struct job *job, enum job_action action)
{
    switch (action) {
    case JOB_ACT_NONE:
        break;
    case JOB_ACT_SETTLE:
        act_settle(job);
        break;
    case JOB_ACT_ROUTE:
        job_routes_begin(job);
        break;
    case JOB_ACT_LAUNCH:
        act_launch(job);
        break;
    case JOB_ACT_RUN:
        act_run(job);
        break;
    case JOB_ACT_END:
        act_end(job, (int)job->config->spec.grace_ms);
        break;
    case JOB_ACT_KILL:
        job_sweep_give_up(job);
        act_end(job, 0);
        output_discard(job->output);
        break;
    case JOB_ACT_DRAIN:
        act_drain(job);
        break;
    case JOB_ACT_DISCARD:
        output_discard(job->output);
        cancel_hosts(job);
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

    if (job->state == JOB_SETTLING && t.next == JOB_DRAINING)
        job_start_failed(job);

    if (t.next != job->state) {
        now_ns = hb_now_ns();
        hb_log(job->config->log, HB_LOG_DEBUG,
               "job: %s -> %s: %s (after %.1f ms)", job_state_name(job->state),
               job_state_name(t.next), job_event_name(event),
               (double)(now_ns - job->state_since_ns) / 1e6);
        job->state = t.next;
        job->state_since_ns = now_ns;
        job_record_state(job);
    }
    job_act(job, t.action);
}

void job_check_drained(struct job *job)
{
    if (job->state != JOB_DRAINING || job->open_transports > 0 ||
        !output_idle(job->output))
        return;
    job_record_end(job);
    if (output_idle(job->output)) /* it may have said something */
        job_event(job, JOB_EV_DRAINED);
}

void job_check_gone(struct job *job)
{
    if (job->finished == job->config->plan->host_count && job->sweeping == 0)
        job_event(job, JOB_EV_GONE);
}

/* ---- Start and end ---- */

/* Reports a failed open from the loop, not from job_start: other hosts' agents
 * may be running already and must be ended. */
static void on_first_turn(uv_timer_t *timer)
{
    struct job *job = timer->data;

    job_event(job, JOB_EV_AGENT_LOST);
}

static size_t queued_for_host(void *arg, int host)
{
    const struct job *job = arg;

    return agent_link_queued(&job->hosts[host].link);
}

static void open_rendezvous(struct job *job)
{
    struct job_rendezvous_config config = {.plan = job->config->plan,
                                           .send = job_send,
                                           .queued = queued_for_host,
                                           .arg = job};

    job->rendezvous = job_rendezvous_new(&config);
}

static void job_open_hosts(struct job *job)
{
    const struct plan *plan = job->config->plan;

    job->hosts = hb_xcalloc((size_t)plan->host_cap, sizeof(*job->hosts));
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

static void init_timers(struct job *job)
{
    uv_timer_t *timers[JOB_TIMERS];

    list_timers(job, timers);
    for (int i = 0; i < JOB_TIMERS; i++) {
        uv_timer_init(job->config->loop, timers[i]);
        timers[i]->data = job;
    }
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
    job->window = job_window(config->plan->host_count);
    job->state = JOB_CONNECTING;
    job->state_since_ns = hb_now_ns();
    rc = job_routes_open(job, err);
    if (rc == 0)
        rc = job_record_open(job, err);
    if (rc == 0)
        rc = job_trace_open(job, err);
    if (rc == 0)
        rc = job_serve_open(job, err);
    if (rc == 0)
        rc = job_open_output(job, err);
    if (rc < 0) {
        job_serve_abandon(job);
        job_record_free(job);
        job_trace_free(job);
        routes_free(job->routes);
        hb_free(job);
        return rc;
    }
    job->exited = hb_xcalloc((size_t)config->plan->size, 1);
    open_rendezvous(job);
    job_stall_open(job);
    job_elastic_open(job);
    init_timers(job);
    job_start_limit(job, (uint64_t)config->start_timeout_ms);
    job_wait_start(job);
    job_beat_start(job);
    job_open_hosts(job);
    job_serve_tell(job);
    *out = job;
    return 0;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    for (int i = 0; i < job->config->plan->host_count; i++)
        job_host_free(&job->hosts[i]);
    job_end_free(job);
    job_serve_free(job);
    job_status_end(job);
    job_record_free(job);
    job_trace_free(job);
    hb_free(job->hosts);
    routes_free(job->routes);
    job_rendezvous_free(job->rendezvous);
    stall_free(job->stall);
    job_elastic_free(job);
    job_preempt_free(job);
    hb_free(job->exited);
    hb_free(job);
}
