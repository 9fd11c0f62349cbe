/* SPDX-License-Identifier: Apache-2.0 */
/* Handles messages from agents, as agent_link.h says. */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"

int job_check_rank(const struct job_host *host, int rank, struct hb_error *err)
{
    const struct plan *plan = host->job->config->plan;

    if (rank >= 0 && rank < plan->size && plan->ranks[rank].is_bound &&
        plan->ranks[rank].host == host->index)
        return 0;
    return hb_error_set(err, HVD_EPROTO, "speaks of rank %d, not its own",
                        rank);
}

/* ---- The start ---- */

int job_host_hello(void *arg, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_hello *m = &host->link.hello;
    int rc = host->newcomers ? 0 : job_routes_hello(host, m, err);

    if (rc < 0)
        return rc;
    job_same_hello(host, m);
    job_record_reached(host, m);
    host->state = HOST_CONNECTED;
    host->reached_ms = (int64_t)((hb_now_ns() - host->since_ns) / 1000000);
    job_beat_ping(host);
    if (host->newcomers)
        return job_grow_hello(host, err);
    if (host->job->config->most == 0) /* else a later round needs it */
        control_hello_fini(m);
    job_check_connected(host->job);
    return 0;
}

static int on_started(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_started m;
    int rc = control_decode_started(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (host->state != HOST_LAUNCHED || m.count != host->plan->count)
        rc = hb_error_set(err, HVD_EPROTO, "started %d ranks of %d", m.count,
                          host->plan->count);
    for (int i = 0; rc == 0 && i < m.count; i++) {
        if (m.pids[i] == 0)
            continue;
        job_elastic_started(host->job, host->plan->ranks[i], m.pids[i]);
        job_record_started(host, host->plan->ranks[i], m.pids[i]);
        hb_log(host->job->config->log, HB_LOG_DEBUG,
               "host %s: rank %d is pid %d", host->name, host->plan->ranks[i],
               (int)m.pids[i]);
    }
    control_started_fini(&m);
    if (rc < 0)
        return rc;
    host->state = HOST_STARTED;
    job_beat_ping(host);
    if (host->newcomers) {
        job_grow_started(host);
        return 0;
    }
    if (++host->job->started == host->job->config->plan->host_count)
        job_event(host->job, JOB_EV_STARTED);
    return 0;
}

static int on_failed(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_failed m;
    struct job *job = host->job;
    int rc = control_decode_failed(f->payload, f->len, &m, err), is_newcomer;

    if (rc < 0)
        return rc;
    if (job->alive_at_end > 0)
        job->alive_at_end -= host->plan->count; /* they never ran */
    host->was_launched = 0;
    is_newcomer = host->newcomers > 0 && job_elastic_goes_on(job);
    job_host_trouble(host, m.exit_code, hb_now_ns(), 0, "%s", m.text);
    control_failed_fini(&m);
    job_host_finish(host, HOST_DONE);
    if (!is_newcomer)
        job_event(job, JOB_EV_FAILED);
    job_check_gone(job);
    return 0;
}

/* ---- Output and input ---- */

static int on_output(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_bytes m;
    int rc = control_decode_output(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = job_check_rank(host, m.rank, err);
    if (rc < 0)
        return rc;
    if (m.len == 0) {
        output_end(host->job->output, m.rank, m.stream);
        return 0;
    }
    host->in_flight += m.len;
    if (host->in_flight > (size_t)host->job->window)
        return hb_error_set(err, HVD_EPROTO, "more output than the window");
    output_feed(host->job->output, host->index, m.rank, m.stream, m.bytes,
                m.len);
    return 0;
}

static int on_stdin_ack(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    int rank;
    uint32_t bytes;
    int rc = control_decode_stdin_ack(f->payload, f->len, &rank, &bytes, err);

    if (rc == 0)
        rc = job_check_rank(host, rank, err);
    if (rc == 0 && host->job->input)
        input_ack(host->job->input, rank, bytes);
    return rc;
}

/* ---- The end ---- */

static int on_exited(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_exited m;
    int rc = control_decode_exited(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    rc = job_check_rank(host, m.rank, err);
    if (rc == 0 && host->job->exited[m.rank])
        rc = hb_error_set(err, HVD_EPROTO, "rank %d exited twice", m.rank);
    if (rc < 0) {
        control_exited_fini(&m);
        return rc;
    }
    job_rank_exited(host->job, host, &m);
    job_elastic_end_left(host);
    return 0;
}

static int on_done(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct job *job = host->job;
    int missing = 0;

    if (f->len != 0)
        return hb_error_set(err, HVD_EPROTO, "done with %zu bytes", f->len);
    for (int i = 0; i < host->plan->count; i++)
        missing += !job->exited[host->plan->ranks[i]] &&
                   !job_elastic_is_gone(job, host->plan->ranks[i]);
    if (missing > 0)
        job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 0,
                         "the agent has ended %d ranks without saying how",
                         missing);
    job_host_finish(host, HOST_DONE);
    if (missing > 0)
        job_event(job, JOB_EV_FAILED);
    job_check_gone(job);
    return 0;
}

static int on_quitting(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    char *why;

    if (f->len == 0)
        return hb_error_set(err, HVD_EPROTO, "quitting without a reason");
    if (host->quitting)
        return hb_error_set(err, HVD_EPROTO, "quitting twice");
    why = hb_xasprintf("%.*s", (int)f->len, (const char *)f->payload);
    hb_text_sanitize(why);
    host->quitting = 1;
    if (host->is_ending) {
        hb_free(why);
        return 0;
    }
    job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 1, "%s", why);
    hb_free(why);
    if (!job_elastic_goes_on(host->job) &&
        (host->job->has_verdict || !job_elastic_stopped(host->job)))
        job_event(host->job, JOB_EV_FAILED);
    return 0;
}

/* ---- Any time ---- */

/* Handles TRACE and STATS. */
static int on_trace(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct control_bytes m;
    int rc = control_decode_bytes(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = job_check_rank(host, m.rank, err);
    if (rc < 0)
        return rc;
    return f->type == CONTROL_TRACE ? job_trace_bytes(host, &m, err)
                                    : job_trace_stats(host, &m, err);
}

static int on_rendezvous(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;

    return job_rendezvous_frame(host->job->rendezvous, host->index, f, err);
}

const struct agent_message job_messages[AGENT_MESSAGES] = {
    [CONTROL_STARTED] = {AGENT_LAUNCHED, on_started},
    [CONTROL_OUTPUT] = {AGENT_LAUNCHED, on_output},
    [CONTROL_EXITED] = {AGENT_LAUNCHED, on_exited},
    [CONTROL_DONE] = {AGENT_LAUNCHED, on_done},
    [CONTROL_FAILED] = {AGENT_CONNECTING, on_failed},
    [CONTROL_STDIN_ACK] = {AGENT_LAUNCHED, on_stdin_ack},
    [CONTROL_QUITTING] = {AGENT_GREETED, on_quitting},
    [CONTROL_PONG] = {AGENT_GREETED, job_beat_pong},
    [CONTROL_ROUTE_PORT] = {AGENT_GREETED, job_routes_frame},
    [CONTROL_ROUTE_RESULT] = {AGENT_GREETED, job_routes_frame},
    [CONTROL_RENDEZVOUS] = {AGENT_LAUNCHED, on_rendezvous},
    [CONTROL_STALLED] = {AGENT_LAUNCHED, job_stall_frame},
    [CONTROL_STALL_RANKS] = {AGENT_LAUNCHED, job_stall_frame},
    [CONTROL_STALL_STACK] = {AGENT_LAUNCHED, job_stall_frame},
    [CONTROL_TRACE] = {AGENT_LAUNCHED, on_trace},
    [CONTROL_STATS] = {AGENT_LAUNCHED, on_trace},
    [CONTROL_LATE] = {AGENT_LAUNCHED, job_stall_frame},
    [CONTROL_READY] = {AGENT_LAUNCHED, job_elastic_frame},
    [CONTROL_PROGRESS] = {AGENT_LAUNCHED, job_elastic_progress},
    [CONTROL_GOING] = {AGENT_LAUNCHED, job_going_frame},
    [CONTROL_COUNTS] = {AGENT_LAUNCHED, job_counts_frame},
    [CONTROL_NO_ANSWER] = {AGENT_LAUNCHED, job_apart_frame},
};
