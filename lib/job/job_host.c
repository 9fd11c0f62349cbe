/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host of a job: its connection, what its agent says, and what is said
 * to it.  An agent that breaks the protocol is treated as lost: its stream
 * cannot be trusted, and closing it makes the agent end the ranks there.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/xbuf.h"
#include "lib/transport/remote.h"

#include <stdio.h>
#include <string.h>

/* Acks are sent in portions of the window, not for every line. */
enum {
    HOST_ACK_BYTES = CONTROL_OUTPUT_WINDOW / 8,
    HOST_EXIT_WAIT_MS = 10000,
};

const char *host_state_name(enum host_state state)
{
    static const char *const names[] = {
        [HOST_CONNECTING] = "connecting",
        [HOST_CONNECTED] = "connected",
        [HOST_LAUNCHED] = "starting its ranks",
        [HOST_STARTED] = "running",
        [HOST_DONE] = "ended",
        [HOST_LOST] = "lost",
    };

    return names[state];
}

static int host_finished(const struct job_host *host)
{
    return host->state == HOST_DONE || host->state == HOST_LOST;
}

static void host_finish(struct job_host *host, enum host_state state)
{
    if (host_finished(host))
        return;
    host->state = state;
    host->job->finished++;
    job_rendezvous_host_gone(host->job->rendezvous, host->index);
    job_host_close(host);
}

static void check_gone(struct job *job)
{
    if (job->finished == job->config->plan->host_count)
        job_event(job, JOB_EV_GONE);
}

/* The verdict that an agent failed, and its ranks with it. */
static void blame_agent(struct job_host *host, const char *what,
                        const char *why)
{
    int first = host->plan->ranks[0];
    int last = host->plan->ranks[host->plan->count - 1];

    if (first == last)
        job_verdict(host->job, JOB_EXIT_LAUNCHER,
                    "host %s: %s%s; rank %d ends with it", host->name, what,
                    why, first);
    else
        job_verdict(host->job, JOB_EXIT_LAUNCHER,
                    "host %s: %s%s; ranks %d-%d end with it", host->name, what,
                    why, first, last);
}

static void host_lost(struct job_host *host, const char *why)
{
    if (host_finished(host))
        return;
    if (host->state == HOST_CONNECTING)
        job_verdict(host->job, JOB_EXIT_LAUNCHER,
                    "host %s: the agent did not start: %s", host->name, why);
    else
        blame_agent(host, "lost the agent: ", why);
    host_finish(host, HOST_LOST);
    job_event(host->job, JOB_EV_AGENT_LOST);
    check_gone(host->job);
}

/* ---- What agents say ---- */

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
    if (++host->job->connected == host->job->config->plan->host_count)
        job_routes_begin(host->job);
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
               "host %s: rank %d is pid %d", host->name,
               host->plan->ranks[i], (int)m.pids[i]);
    control_started_fini(&m);
    if (rc < 0)
        return rc;
    host->state = HOST_STARTED;
    if (++host->job->started == host->job->config->plan->host_count)
        job_event(host->job, JOB_EV_STARTED);
    return 0;
}

/* 0 when the host has that rank. */
static int check_rank(const struct job_host *host, int rank,
                      struct hb_error *err)
{
    const struct plan *plan = host->job->config->plan;

    if (rank >= 0 && rank < plan->size &&
        plan->ranks[rank].host == host->index)
        return 0;
    return hb_error_set(err, HVD_EPROTO, "speaks of rank %d, not its own",
                        rank);
}

static int on_output(struct job_host *host, const struct frame *f,
                     struct hb_error *err)
{
    struct control_bytes m;
    int rc = control_decode_output(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = check_rank(host, m.rank, err);
    if (rc < 0)
        return rc;
    if (m.len == 0)
        output_end(host->job->output, m.rank, m.stream);
    else
        output_feed(host->job->output, host->index, m.rank, m.stream, m.bytes,
                    m.len);
    return 0;
}

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
    job_rank_exited(host->job, &m);
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
        job_verdict(job, JOB_EXIT_LAUNCHER,
                    "host %s: the agent has ended %d ranks without saying "
                    "how",
                    host->name, missing);
    host_finish(host, HOST_DONE);
    check_gone(job);
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
    job_verdict(job, m.exit_code, "host %s: %s", host->name, m.text);
    control_failed_fini(&m);
    host_finish(host, HOST_DONE);
    job_event(job, JOB_EV_FAILED);
    check_gone(job);
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
    blame_agent(host, "", why);
    hb_free(why);
    job_event(host->job, JOB_EV_FAILED);
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

static int on_log(struct job_host *host, const struct frame *f,
                  struct hb_error *err)
{
    const unsigned char *p = f->payload;

    if (f->len < 1 || p[0] > HB_LOG_FATAL)
        return hb_error_set(err, HVD_EPROTO, "a log line without a level");
    hb_log(host->job->config->log, (enum hb_log_level)p[0], "host %s: %.*s",
           host->name, (int)(f->len - 1), (const char *)p + 1);
    return 0;
}

static int on_frame(struct job_host *host, const struct frame *f,
                    struct hb_error *err)
{
    if (host->state == HOST_CONNECTING && f->type != CONTROL_HELLO &&
        f->type != CONTROL_LOG && f->type != CONTROL_FAILED)
        return hb_error_set(err, HVD_EPROTO, "message %d before hello",
                            f->type);
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
    case CONTROL_RENDEZVOUS:
        return job_rendezvous_frame(host->job->rendezvous, host->index, f, err);
    case CONTROL_ROUTE_PORT:
    case CONTROL_ROUTE_RESULT:
        return job_routes_frame(host, f, err);
    default:
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    }
}

/* ---- The connection ---- */

static void host_on_read(void *arg, const char *bytes, size_t len)
{
    struct job_host *host = arg;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;
    int rc = 0;

    xbuf_append(&host->in, bytes, len);
    while (!host_finished(host)) {
        rc = frame_decode(&host->in, FRAME_PAYLOAD_MAX, &f, &err);
        if (rc <= 0)
            break;
        rc = on_frame(host, &f, &err);
        if (rc < 0)
            break;
        frame_done(&host->in, &f);
    }
    if (rc < 0)
        host_lost(host, err.text);
    output_flush(host->job->output);
}

static void host_on_stderr(void *arg, const char *bytes, size_t len)
{
    struct job_host *host = arg;
    const char *end;

    xbuf_append(&host->complaint, bytes, len);
    while ((end = memchr(hb_buf_data(&host->complaint), '\n',
                         hb_buf_len(&host->complaint)))) {
        size_t n = (size_t)(end - hb_buf_data(&host->complaint));
        hb_log(host->job->config->log, HB_LOG_WARNING, "host %s: %.*s",
               host->name, (int)n, hb_buf_data(&host->complaint));
        hb_buf_consume(&host->complaint, n + 1);
    }
}

static void host_on_end(void *arg, const struct hb_error *err)
{
    host_lost(arg, err ? err->text : "its connection ended");
}

static void host_on_close(void *arg)
{
    struct job_host *host = arg;

    if (hb_buf_len(&host->complaint) > 0)
        host_on_stderr(host, "\n", 1);
    host->job->open_transports--;
    job_check_drained(host->job);
}

static void host_on_stage(void *arg, const char *stage)
{
    struct job_host *host = arg;

    snprintf(host->stage, sizeof(host->stage), "%s", stage);
    hb_log(host->job->config->log, HB_LOG_DEBUG, "host %s: %s", host->name,
           stage);
}

static int is_local(const struct job_host *host)
{
    const unsigned char *local = host->job->config->host_is_local;

    return !local || local[host->index];
}

void job_host_open(struct job_host *host)
{
    struct job *job = host->job;
    struct hb_error err = HB_ERROR_INIT;
    struct transport_config config = {
        .loop = job->config->loop,
        .log = job->config->log,
        .host = host->name,
        .agent_path = job->config->agent_path,
        .events = {host_on_read, host_on_stderr, host_on_end, host_on_close,
                   host_on_stage},
        .arg = host,
        .exit_wait_ms = HOST_EXIT_WAIT_MS,
        .nofile = output_old_limit(job->output),
    };

    int rc;

    if (is_local(host))
        rc = transport_open_local(&config, &host->transport, &err);
    else
        rc = transport_open_remote(job->config->remote, host->plan->entry,
                                   &config, &host->transport, &err);
    if (rc == 0) {
        job->open_transports++;
        return;
    }
    host->transport = NULL;
    host->state = HOST_LOST;
    job->finished++;
    job_verdict(job, JOB_EXIT_LAUNCHER, "%s", err.text);
}

void job_host_close(struct job_host *host)
{
    struct transport *t = host->transport;

    host->transport = NULL;
    if (t)
        transport_close(t);
}

/* ---- What is said to agents ---- */

int job_host_send(struct job_host *host, const struct hb_buf *frame)
{
    if (!host->transport)
        return -HVD_ECLOSED;
    return transport_write(host->transport, hb_buf_data(frame),
                           hb_buf_len(frame));
}

int job_host_send_u32(struct job_host *host, enum control_type type,
                      uint32_t value)
{
    struct hb_buf frame = HB_BUF_INIT;
    int rc;

    hb_must(control_encode_u32(&frame, type, value));
    rc = job_host_send(host, &frame);
    hb_buf_free(&frame);
    return rc;
}

void job_host_ack(struct job_host *host, size_t len)
{
    host->ack_len += len;
    if (host->ack_len < HOST_ACK_BYTES || !host->transport)
        return;
    job_host_send_u32(host, CONTROL_OUTPUT_ACK, (uint32_t)host->ack_len);
    host->ack_len = 0;
}

static void fill_rank(const struct job_config *config, int rank,
                      struct control_rank *out)
{
    const struct plan_rank *r = &config->plan->ranks[rank];

    *out = (struct control_rank){
        .rank = rank,
        .local_rank = r->local_rank,
        .local_size = r->local_size,
        .cross_rank = r->cross_rank,
        .cross_size = r->cross_size,
        .env = config->rank_env[rank],
        .stdin_open =
            config->stdin_rank == JOB_STDIN_ALL || config->stdin_rank == rank,
    };
}

/* The message borrows everything from the config. */
void job_host_launch(struct job_host *host)
{
    const struct job_config *config = host->job->config;
    struct control_launch m = {
        .job_id = (char *)config->job_id,
        .host = (char *)host->name,
        .size = config->plan->size,
        .cwd = (char *)config->cwd,
        .argv = config->argv,
        .env = is_local(host) ? config->env : config->remote_env,
        .rank_count = host->plan->count,
        .bind = config->bind,
        .gpus_per_rank = config->gpus_per_rank,
        .bind_gpu = config->bind_gpu,
        .grace_ms = config->grace_ms,
    };
    struct hb_buf frame = HB_BUF_INIT;
    int rc;

    memcpy(m.secret, config->secret, sizeof(m.secret));
    m.ranks = hb_xcalloc((size_t)m.rank_count, sizeof(*m.ranks));
    for (int i = 0; i < m.rank_count; i++)
        fill_rank(config, host->plan->ranks[i], &m.ranks[i]);
    job_routes_fill(host, &m);
    rc = control_encode_launch(&frame, &m);
    job_routes_release(host, &m);
    hb_free(m.ranks);
    if (rc == 0) {
        host->state = HOST_LAUNCHED;
        rc = job_host_send(host, &frame);
    }
    explicit_bzero(hb_buf_data(&frame), hb_buf_len(&frame));
    hb_buf_free(&frame);
    if (rc < 0)
        host_lost(host, rc == -HVD_EINVAL
                            ? "the command and its environment are longer "
                              "than 16 MiB"
                            : "it does not take the launch message");
}
