/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents say to a job.  A negative return is a break of the protocol:
 * the caller takes the host for lost.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"

#include <string.h>

enum { HOST_LOG_LINES_MAX = 1000 };

/* 0 when the host has that rank. */
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
    control_hello_fini(&m);
    if (rc < 0)
        return rc;
    host->state = HOST_CONNECTED;
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
    why = hb_xasprintf("%.*s", (int)f->len, (const char *)f->payload);
    hb_text_sanitize(why);
    host->quitting = 1;
    job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 1, "%s", why);
    hb_free(why);
    job_event(host->job, JOB_EV_FAILED);
    return 0;
}

/* ---- Any time ---- */

static int on_log(struct job_host *host, const struct frame *f,
                  struct hb_error *err)
{
    const unsigned char *p = f->payload;

    if (f->len < 1 || p[0] > HB_LOG_FATAL)
        return hb_error_set(err, HVD_EPROTO, "a log line without a level");
    if (++host->lines > HOST_LOG_LINES_MAX)
        return hb_error_set(err, HVD_EPROTO, "a flood of log lines");
    hb_log(host->job->config->log, (enum hb_log_level)p[0], "host %s: %.*s",
           host->name, (int)(f->len - 1), (const char *)p + 1);
    return 0;
}

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

/* What an agent may say before its HELLO, and before LAUNCH. */
static int check_time(const struct job_host *host, int type,
                      struct hb_error *err)
{
    switch (type) {
    case CONTROL_LOG:
    case CONTROL_FAILED:
    case CONTROL_HELLO:
        return 0;
    case CONTROL_PONG:
    case CONTROL_QUITTING:
    case CONTROL_ROUTE_PORT:
    case CONTROL_ROUTE_RESULT:
        if (host->state >= HOST_CONNECTED)
            return 0;
        break;
    default:
        if (host->state >= HOST_LAUNCHED)
            return 0;
        break;
    }
    return hb_error_set(err, HVD_EPROTO, "message %d before %s", type,
                        host->state == HOST_CONNECTING ? "hello" : "launch");
}

int job_on_frame(struct job_host *host, const struct frame *f,
                 struct hb_error *err)
{
    int rc = check_time(host, f->type, err);

    if (rc < 0)
        return rc;
    switch ((enum control_type)f->type) {
    case CONTROL_HELLO:
        return on_hello(host, f, err);
    case CONTROL_STARTED:
        return on_started(host, f, err);
    case CONTROL_OUTPUT:
        return on_output(host, f, err);
    case CONTROL_EXITED:
        return on_exited(host, f, err);
    case CONTROL_DONE:
        return on_done(host, f, err);
    case CONTROL_FAILED:
        return on_failed(host, f, err);
    case CONTROL_STDIN_ACK:
        return on_stdin_ack(host, f, err);
    case CONTROL_LOG:
        return on_log(host, f, err);
    case CONTROL_QUITTING:
        return on_quitting(host, f, err);
    case CONTROL_PONG:
        return job_beat_pong(host, f, err);
    case CONTROL_RENDEZVOUS:
        return job_rendezvous_frame(host->job->rendezvous, host->index, f, err);
    case CONTROL_STALLED:
    case CONTROL_STALL_RANKS:
    case CONTROL_STALL_STACK:
        return job_stall_frame(host, f, err);
    case CONTROL_TRACE:
    case CONTROL_STATS:
        return on_trace(host, f, err);
    case CONTROL_ROUTE_PORT:
    case CONTROL_ROUTE_RESULT:
        return job_routes_frame(host, f, err);
    default:
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    }
}
