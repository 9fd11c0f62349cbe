/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles messages from agents.  A negative return is a violation of the
 * protocol: the caller treats the host as lost.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"

#include <string.h>

/* Checks that the rank is one of the host's: 0, or -HVD_EPROTO. */
static int check_rank(const struct job_host *host, int rank,
                      struct hb_error *err)
{
    const struct plan *plan = host->job->config->plan;

    if (rank >= 0 && rank < plan->size && plan->ranks[rank].host == host->index)
        return 0;
    return hb_error_set(err, HVD_EPROTO, "speaks of rank %d, not its own",
                        rank);
}

/* ---- The start ---- */

static int on_hello(struct job_host *host, const struct frame *f,
                    struct hb_error *err)
{
    struct control_hello m;
    int rc = control_decode_hello(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (host->state != HOST_CONNECTING)
        rc = hb_error_set(err, HVD_EPROTO, "a second hello");
    else if (strcmp(m.version, HVD_VERSION) != 0)
        rc = hb_error_set(err, HVD_EPROTO,
                          "hvd-agent is version %s, hvdrun %s; both must "
                          "be of one build",
                          m.version, HVD_VERSION);
    hb_log(host->job->config->log, HB_LOG_DEBUG,
           "host %s: agent pid %d on %s, %s, %d cpus", host->name, (int)m.pid,
           m.host, m.cpu, m.cpus);
    if (rc == 0)
        rc = job_routes_hello(host, &m, err);
    if (rc == 0)
        job_same_hello(host, &m);
    control_hello_fini(&m);
    if (rc < 0)
        return rc;
    host->state = HOST_CONNECTED;
    host->reached_ms =
        (int64_t)((hb_now_ns() - host->job->state_since_ns) / 1000000);
    job_beat_ping(host);
    job_check_connected(host->job);
    return 0;
}

static int on_started(struct job_host *host, const struct frame *f,
                      struct hb_error *err)
{
    struct control_started m;
    int rc = control_decode_started(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (host->state != HOST_LAUNCHED || m.count != host->plan->count)
        rc = hb_error_set(err, HVD_EPROTO, "started %d ranks of %d", m.count,
                          host->plan->count);
    for (int i = 0; rc == 0 && i < m.count; i++)
        hb_log(host->job->config->log, HB_LOG_DEBUG,
               "host %s: rank %d is pid %d", host->name, host->plan->ranks[i],
               (int)m.pids[i]);
    control_started_fini(&m);
    if (rc < 0)
        return rc;
    host->state = HOST_STARTED;
    job_beat_ping(host);
    if (++host->job->started == host->job->config->plan->host_count)
        job_event(host->job, JOB_EV_STARTED);
    return 0;
}

static int on_failed(struct job_host *host, const struct frame *f,
                     struct hb_error *err)
{
    struct control_failed m;
    struct job *job = host->job;
    int rc = control_decode_failed(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (job->alive_at_end > 0)
        job->alive_at_end -= host->plan->count; /* they never ran */
    host->was_launched = 0;
    job_host_trouble(host, m.exit_code, hb_now_ns(), 0, "%s", m.text);
    control_failed_fini(&m);
    job_host_finish(host, HOST_DONE);
    job_event(job, JOB_EV_FAILED);
    job_check_gone(job);
    return 0;
}

/* ---- Output and input ---- */

static int on_output(struct job_host *host, const struct frame *f,
                     struct hb_error *err)
{
    struct control_bytes m;
    int rc = control_decode_output(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = check_rank(host, m.rank, err);
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

static int on_stdin_ack(struct job_host *host, const struct frame *f,
                        struct hb_error *err)
{
    int rank;
    uint32_t bytes;
    int rc = control_decode_stdin_ack(f->payload, f->len, &rank, &bytes, err);

    if (rc == 0)
        rc = check_rank(host, rank, err);
    if (rc == 0 && host->job->input)
        input_ack(host->job->input, rank, bytes);
    return rc;
}

/* ---- The end ---- */

static int on_exited(struct job_host *host, const struct frame *f,
                     struct hb_error *err)
{
    struct control_exited m;
    int rc = control_decode_exited(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    rc = check_rank(host, m.rank, err);
    if (rc == 0 && host->job->exited[m.rank])
        rc = hb_error_set(err, HVD_EPROTO, "rank %d exited twice", m.rank);
    if (rc < 0) {
        control_exited_fini(&m);
        return rc;
    }
    job_rank_exited(host->job, host, &m);
    return 0;
}

static int on_done(struct job_host *host, const struct frame *f,
                   struct hb_error *err)
{
    struct job *job = host->job;
    int missing = 0;

    if (f->len != 0)
        return hb_error_set(err, HVD_EPROTO, "done with %zu bytes", f->len);
    for (int i = 0; i < host->plan->count; i++)
        missing += !job->exited[host->plan->ranks[i]];
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

static int on_quitting(struct job_host *host, const struct frame *f,
                       struct hb_error *err)
{
    char *why;

    if (f->len == 0)
        return hb_error_set(err, HVD_EPROTO, "quitting without a reason");
    if (host->quitting)
        return hb_error_set(err, HVD_EPROTO, "quitting twice");
    why = hb_xasprintf("%.*s", (int)f->len, (const char *)f->payload);
    hb_text_sanitize(why);
    host->quitting = 1;
    job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 1, "%s", why);
    hb_free(why);
    job_event(host->job, JOB_EV_FAILED);
    return 0;
}

/* ---- Any time ---- */

/* Handles TRACE and STATS. */
static int on_trace(struct job_host *host, const struct frame *f,
                    struct hb_error *err)
{
    struct control_bytes m;
    int rc = control_decode_bytes(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = check_rank(host, m.rank, err);
    if (rc < 0)
        return rc;
    return f->type == CONTROL_TRACE ? job_trace_bytes(host, &m, err)
                                    : job_trace_stats(host, &m, err);
}

static int on_rendezvous(struct job_host *host, const struct frame *f,
                         struct hb_error *err)
{
    return job_rendezvous_frame(host->job->rendezvous, host->index, f, err);
}

static int on_log(struct job_host *host, const struct frame *f,
                  struct hb_error *err)
{
    return host_log_frame(&host->words, f, err);
}

static const struct message {
    enum host_state since; /* the first state in which it may come */
    int (*handle)(struct job_host *host, const struct frame *f,
                  struct hb_error *err);
} messages[] = {
    [CONTROL_HELLO] = {HOST_CONNECTING, on_hello},
    [CONTROL_STARTED] = {HOST_LAUNCHED, on_started},
    [CONTROL_OUTPUT] = {HOST_LAUNCHED, on_output},
    [CONTROL_EXITED] = {HOST_LAUNCHED, on_exited},
    [CONTROL_DONE] = {HOST_LAUNCHED, on_done},
    [CONTROL_LOG] = {HOST_CONNECTING, on_log},
    [CONTROL_FAILED] = {HOST_CONNECTING, on_failed},
    [CONTROL_STDIN_ACK] = {HOST_LAUNCHED, on_stdin_ack},
    [CONTROL_QUITTING] = {HOST_CONNECTED, on_quitting},
    [CONTROL_PONG] = {HOST_CONNECTED, job_beat_pong},
    [CONTROL_ROUTE_PORT] = {HOST_CONNECTED, job_routes_frame},
    [CONTROL_ROUTE_RESULT] = {HOST_CONNECTED, job_routes_frame},
    [CONTROL_RENDEZVOUS] = {HOST_LAUNCHED, on_rendezvous},
    [CONTROL_STALLED] = {HOST_LAUNCHED, job_stall_frame},
    [CONTROL_STALL_RANKS] = {HOST_LAUNCHED, job_stall_frame},
    [CONTROL_STALL_STACK] = {HOST_LAUNCHED, job_stall_frame},
    [CONTROL_TRACE] = {HOST_LAUNCHED, on_trace},
    [CONTROL_STATS] = {HOST_LAUNCHED, on_trace},
    [CONTROL_LATE] = {HOST_LAUNCHED, job_stall_frame},
};
enum { MESSAGES = sizeof(messages) / sizeof(messages[0]) };

int job_on_frame(struct job_host *host, const struct frame *f,
                 struct hb_error *err)
{
    const struct message *m = &messages[f->type < MESSAGES ? f->type : 0];

    if (!m->handle)
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    if (host->state < m->since)
        return hb_error_set(err, HVD_EPROTO, "message %d before %s", f->type,
                            host->state == HOST_CONNECTING ? "hello"
                                                           : "launch");
    return m->handle(host, f, err);
}
