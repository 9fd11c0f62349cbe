/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host of a job: its connection, and the messages to its agent.  An agent
 * that violates the protocol is treated as lost: its stream cannot be trusted,
 * and closing it makes the agent end the ranks there.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/output/xbuf.h"
#include "lib/remote/remote.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    /* Acks are sent for portions of the window, not for every line. */
    HOST_ACKS_PER_WINDOW = 8,
    HOST_EXIT_WAIT_MS = 10000,
    HOST_IN_KEEP_BYTES = 64 << 10,
    WINDOW_TOTAL = 32 << 20, /* all hosts together */
};

int job_window(int hosts)
{
    int window = WINDOW_TOTAL / hosts;

    if (window > CONTROL_OUTPUT_WINDOW)
        return CONTROL_OUTPUT_WINDOW;
    if (window < CONTROL_OUTPUT_WINDOW_MIN)
        return CONTROL_OUTPUT_WINDOW_MIN;
    return window;
}

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

int job_host_is_local(const struct job_host *host)
{
    const unsigned char *local = host->job->config->host_is_local;

    return !local || local[host->index];
}

int job_host_finished(const struct job_host *host)
{
    return host->state == HOST_DONE || host->state == HOST_LOST;
}

/* ---- Losing it ---- */

void job_host_finish(struct job_host *host, enum host_state state)
{
    if (job_host_finished(host))
        return;
    host->state = state;
    host->job->finished++;
    job_rendezvous_host_gone(host->job->rendezvous, host->index);
    job_host_close(host);
}

/* Strips the host's name, with which some of a transport's texts begin. */
static const char *without_name(const struct job_host *host, const char *text)
{
    size_t len = strlen(host->name);

    if (strncmp(text, "host ", 5) == 0 &&
        strncmp(text + 5, host->name, len) == 0 &&
        strncmp(text + 5 + len, ": ", 2) == 0)
        return text + 5 + len + 2;
    return text;
}

static void lose(struct job_host *host, uint64_t when_ns, const char *what,
                 const char *why)
{
    struct hb_buf text = HB_BUF_INIT;
    struct job *job = host->job;
    int launched = host->state >= HOST_LAUNCHED;

    hb_must(hb_buf_printf(&text, "%s%s", what, without_name(host, why)));
    if (host->words.last_words && launched)
        hb_must(hb_buf_printf(&text, " (%s)", host->words.last_words));
    if (!host->quitting)
        job_host_trouble(host, JOB_EXIT_LAUNCHER, when_ns, launched, "%s",
                         hb_buf_data(&text));
    hb_buf_free(&text);
    job_host_finish(host, HOST_LOST);
    job_sweep(host);
    job_event(job, JOB_EV_AGENT_LOST);
    job_check_gone(job);
}

void job_host_lost(struct job_host *host, const char *why)
{
    if (job_host_finished(host))
        return;
    lose(host, hb_now_ns(),
         host->state == HOST_CONNECTING ? "the agent did not start: "
                                        : "lost the agent: ",
         why);
}

void job_host_silent(struct job_host *host, const char *why)
{
    if (job_host_finished(host))
        return;
    lose(host, host->asked_ns ? host->asked_ns : hb_now_ns(),
         "lost the agent: ", why);
    job_host_cancel(host);
}

/* ---- The connection ---- */

static void keep_little(struct hb_buf *in)
{
    struct hb_buf rest = HB_BUF_INIT;

    if (in->cap <= HOST_IN_KEEP_BYTES ||
        hb_buf_len(in) > HOST_IN_KEEP_BYTES / 2)
        return;
    if (hb_buf_len(in) > 0)
        xbuf_append(&rest, hb_buf_data(in), hb_buf_len(in));
    hb_buf_free(in);
    *in = rest;
}

static void host_on_read(void *arg, const char *bytes, size_t len)
{
    struct job_host *host = arg;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;
    int rc = 0;

    job_beat_heard(host);
    xbuf_append(&host->in, bytes, len);
    while (!host->closing) {
        rc = frame_decode(
            &host->in,
            control_frame_max(&host->in, host->state != HOST_CONNECTING), &f,
            &err);
        if (rc <= 0)
            break;
        rc = job_on_frame(host, &f, &err);
        if (rc < 0)
            break;
        frame_done(&host->in, &f);
    }
    if (rc < 0 && !host->closing) {
        job_host_lost(host, err.text);
        job_host_cancel(host); /* its stream may never end */
    }
    if (host->closing)
        hb_buf_free(&host->in);
    else
        keep_little(&host->in);
    output_flush(host->job->output);
}

static void host_on_stderr(void *arg, const char *bytes, size_t len)
{
    struct job_host *host = arg;

    host_log_stderr(&host->words, bytes, len);
}

/* Loses the host.  The errors of remote transports explain themselves; a local
 * one's do not. */
static void host_on_end(void *arg, const struct hb_error *err)
{
    struct job_host *host = arg;

    if (err && host->state == HOST_CONNECTING && !job_host_is_local(host))
        lose(host, hb_now_ns(), "", err->text);
    else
        job_host_lost(host, err ? err->text : "its connection ended");
}

static void host_on_close(void *arg)
{
    struct job_host *host = arg;

    host_log_end(&host->words);
    host->transport = NULL;
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

static void host_on_setback(void *arg, const struct hb_error *why)
{
    struct job_host *host = arg;

    hb_free(host->setback);
    host->setback = hb_xstrdup(without_name(host, why->text));
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
        .events = {.on_read = host_on_read,
                   .on_stderr = host_on_stderr,
                   .on_end = host_on_end,
                   .on_close = host_on_close,
                   .on_stage = host_on_stage,
                   .on_setback = host_on_setback},
        .arg = host,
        .exit_wait_ms = HOST_EXIT_WAIT_MS,
        .nofile = output_old_limit(job->output),
    };
    int rc;

    if (job_host_is_local(host))
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
    job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 0, "%s",
                     without_name(host, err.text));
}

void job_host_close(struct job_host *host)
{
    if (!host->transport || host->closing)
        return;
    host->closing = 1;
    transport_close(host->transport);
}

/* Cancels a remote connection.  A local one must end by itself: it does when
 * the guardian has ended all processes. */
void job_host_cancel(struct job_host *host)
{
    if (host->transport && host->closing && !job_host_is_local(host))
        transport_cancel(host->transport);
}

void job_host_free(struct job_host *host)
{
    hb_buf_free(&host->in);
    host_log_fini(&host->words);
    hb_free(host->setback);
    job_sweep_free(host);
    hb_free(host->identity);
}

/* ---- What is said to agents ---- */

int job_host_send(struct job_host *host, const struct hb_buf *frame)
{
    if (!host->transport || host->closing)
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
    if (host->ack_len < (size_t)host->job->window / HOST_ACKS_PER_WINDOW ||
        host->closing)
        return;
    job_host_send_u32(host, CONTROL_OUTPUT_ACK, (uint32_t)host->ack_len);
    host->in_flight -= host->ack_len;
    host->ack_len = 0;
}

/* ---- LAUNCH ---- */

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

/* Copies this process's limits, as its user set them. */
static void fill_limits(const struct job *job, struct control_launch *m)
{
    static const __rlimit_resource_t resources[CONTROL_LIMIT_COUNT] = {
        [CONTROL_LIMIT_NOFILE] = RLIMIT_NOFILE,
        [CONTROL_LIMIT_MEMLOCK] = RLIMIT_MEMLOCK,
        [CONTROL_LIMIT_CORE] = RLIMIT_CORE,
    };
    const struct rlimit *nofile = output_old_limit(job->output);

    for (int i = 0; i < CONTROL_LIMIT_COUNT; i++) {
        struct rlimit now;

        if (getrlimit(resources[i], &now) < 0)
            continue;
        if (i == CONTROL_LIMIT_NOFILE && nofile)
            now = *nofile;
        m->limits[i] = (struct control_soft_limit){1, now.rlim_cur};
    }
}

static int encode_launch(const struct job_host *host, struct hb_buf *frame)
{
    const struct job_config *config = host->job->config;
    struct control_launch m = {
        .job_id = (char *)config->job_id,
        .host = (char *)host->name,
        .size = config->plan->size,
        .cwd = (char *)config->cwd,
        .argv = config->argv,
        .env = job_host_is_local(host) ? config->env : config->remote_env,
        .rank_count = host->plan->count,
        .spec = config->spec,
        .output_window = host->job->window,
        .trace = config->timeline != NULL,
    };
    int rc;

    memcpy(m.secret, config->secret, sizeof(m.secret));
    fill_limits(host->job, &m);
    m.ranks = hb_xcalloc((size_t)m.rank_count, sizeof(*m.ranks));
    for (int i = 0; i < m.rank_count; i++)
        fill_rank(config, host->plan->ranks[i], &m.ranks[i]);
    job_routes_fill(host, &m);
    rc = control_encode_launch(frame, &m);
    job_routes_release(host, &m);
    hb_free(m.ranks);
    explicit_bzero(m.secret, sizeof(m.secret));
    return rc;
}

void job_host_launch(struct job_host *host)
{
    struct hb_buf frame = HB_BUF_INIT;
    int rc = encode_launch(host, &frame);

    if (rc == 0) {
        job_beat_ping(host);
        host->state = HOST_LAUNCHED;
        host->was_launched = 1;
        rc = job_host_send(host, &frame);
    }
    explicit_bzero(hb_buf_data(&frame), hb_buf_len(&frame));
    hb_buf_free(&frame);
    if (rc < 0)
        job_host_lost(host, rc == -HVD_EINVAL
                                ? "the command and its environment are longer "
                                  "than 16 MiB"
                                : "it does not take the launch message");
}
