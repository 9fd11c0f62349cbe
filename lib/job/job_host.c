/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host of a job: its connection, and the messages to its agent.  An agent
 * that violates the protocol is treated as lost: its stream cannot be trusted,
 * and closing it makes the agent end the ranks there.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <string.h>
#include <sys/resource.h>

enum {
    /* Acks are sent for portions of the window, not for every line. */
    HOST_ACKS_PER_WINDOW = 8,
    HOST_EXIT_WAIT_MS = 10000,
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
    job_record_lost(host);
    job_rendezvous_host_gone(host->job->rendezvous, host->index);
    agent_link_close(&host->link);
    job_grow_host_gone(host);
}

static void lose(struct job_host *host, uint64_t when_ns, const char *what,
                 const char *why)
{
    struct hb_buf text = HB_BUF_INIT;
    struct job *job = host->job;
    int launched = host->state >= HOST_LAUNCHED;

    hb_must(hb_buf_printf(&text, "%s%s", what, why));
    if (host->link.words.last_words && launched)
        hb_must(hb_buf_printf(&text, " (%s)", host->link.words.last_words));
    if (!host->quitting && !host->is_ending)
        job_host_trouble(host, JOB_EXIT_LAUNCHER, when_ns, launched, "%s",
                         hb_buf_data(&text));
    hb_buf_free(&text);
    job_host_finish(host, HOST_LOST);
    job_sweep(host);
    if (!job_elastic_goes_on(job) &&
        (job->has_verdict || !job_elastic_stopped(job)))
        job_event(job, JOB_EV_AGENT_LOST);
    job_check_gone(job);
}

/* Loses the host, because the connection broke or cannot be trusted. */
static void job_host_lost(struct job_host *host, const char *why)
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

void job_host_give_up(struct job_host *host, const char *why)
{
    if (job_host_finished(host))
        return;
    lose(host, hb_now_ns(), "", why);
    job_host_cancel(host);
}

/* ---- The connection ---- */

static void on_handled(void *arg)
{
    struct job_host *host = arg;

    output_flush(host->job->output);
}

/* Loses the host.  The errors of remote transports explain themselves; a local
 * one's do not. */
static void on_lost(void *arg, enum agent_loss how, const struct hb_error *why)
{
    struct job_host *host = arg;

    if (how == AGENT_FAILED && host->state == HOST_CONNECTING &&
        !job_host_is_local(host))
        lose(host, hb_now_ns(), "", why->text);
    else
        job_host_lost(host, why->text);
    if (how == AGENT_BROKE)
        job_host_cancel(host); /* its stream may never end */
}

static void on_closed(void *arg)
{
    struct job_host *host = arg;

    host->job->open_transports--;
    job_check_drained(host->job);
    job_grow_soon(host->job); /* perhaps it may be reached again */
}

static const struct agent_events host_events = {
    .messages = job_messages,
    .on_hello = job_host_hello,
    .on_lost = on_lost,
    .on_closed = on_closed,
    .on_heard = job_beat_heard,
    .on_handled = on_handled,
};

void job_host_open(struct job_host *host)
{
    struct job *job = host->job;
    struct hb_error err = HB_ERROR_INIT;
    const struct agent_link_config config = {
        .transport = {.loop = job->config->loop,
                      .log = job->config->log,
                      .agent_path = job->config->agent_path,
                      .exit_wait_ms = HOST_EXIT_WAIT_MS,
                      .nofile = output_old_limit(job->output)},
        .is_local = job_host_is_local(host),
        .remote = job->config->remote,
        .entry = host->plan->entry,
        .events = &host_events,
        .arg = host,
    };

    host->since_ns = hb_now_ns();
    if (agent_link_open(&host->link, &config, &err) == 0) {
        job->open_transports++;
        return;
    }
    host->state = HOST_LOST;
    job->finished++;
    job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 0, "%s", err.text);
}

/* Cancels a remote connection.  A local one must end by itself: it does when
 * the guardian has ended all processes. */
void job_host_cancel(struct job_host *host)
{
    if (host->link.closing && !job_host_is_local(host))
        agent_link_cancel(&host->link);
}

void job_host_free(struct job_host *host)
{
    agent_link_free(&host->link);
    job_sweep_free(host);
    hb_free(host->identity);
    hb_free(host->goes_who);
}

/* ---- What is said to agents ---- */

void job_send(void *arg, int host, const struct hb_buf *frame)
{
    struct job *job = arg;

    agent_link_send(&job->hosts[host].link, frame);
}

int job_host_send_u32(struct job_host *host, enum control_type type,
                      uint32_t value)
{
    struct hb_buf frame = HB_BUF_INIT;
    int rc;

    hb_must(control_encode_u32(&frame, type, value));
    rc = agent_link_send(&host->link, &frame);
    hb_buf_free(&frame);
    return rc;
}

void job_host_ack(struct job_host *host, size_t len)
{
    host->ack_len += len;
    if (host->ack_len < (size_t)host->job->window / HOST_ACKS_PER_WINDOW ||
        host->link.closing)
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
        .local_size = config->plan->hosts[r->host].count,
        .cross_rank = r->cross_rank,
        .cross_size = r->cross_size,
        .env = config->rank_env[rank],
        .stdin_open =
            config->stdin_rank == JOB_STDIN_ALL || config->stdin_rank == rank,
        .is_idle = r->is_idle,
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

/* Tells the agent of a job of several hosts where all ranks are. */
static void fill_map(const struct plan *plan, struct control_launch *m)
{
    if (plan->host_count < 2)
        return;
    for (int i = 0; i < plan->host_count; i++)
        hb_must(hb_strv_add(&m->host_names, plan->hosts[i].entry->name));
    m->runs = hb_xcalloc((size_t)plan->size, sizeof(*m->runs));
    for (int i = 0; i < plan->size; i++) {
        int host = plan->ranks[i].is_bound ? plan->ranks[i].host : -1;

        if (i == 0 || host != m->runs[m->run_count - 1].host)
            m->runs[m->run_count++].host = host;
        m->runs[m->run_count - 1].count++;
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
    fill_map(config->plan, &m);
    job_routes_fill(host, &m);
    rc = control_encode_launch(frame, &m);
    job_routes_release(host, &m);
    hb_strv_free(&m.host_names);
    hb_free(m.runs);
    hb_free(m.ranks);
    explicit_bzero(m.secret, sizeof(m.secret));
    return rc;
}

void job_host_encode_hosts(const struct job_host *host, struct hb_buf *frame)
{
    struct control_launch m = {.size = host->job->config->plan->size};

    fill_map(host->job->config->plan, &m);
    job_routes_fill(host, &m);
    hb_must(control_encode_hosts(frame, &m));
    job_routes_release(host, &m);
    hb_strv_free(&m.host_names);
    hb_free(m.runs);
}

void job_host_launch(struct job_host *host)
{
    struct hb_buf frame = HB_BUF_INIT;
    int rc = encode_launch(host, &frame);

    if (rc == 0) {
        job_beat_ping(host);
        host->state = HOST_LAUNCHED;
        host->link.phase = AGENT_LAUNCHED;
        host->was_launched = 1;
        rc = agent_link_send(&host->link, &frame);
    }
    explicit_bzero(hb_buf_data(&frame), hb_buf_len(&frame));
    hb_buf_free(&frame);
    if (rc < 0)
        job_host_lost(host, rc == -HVD_EINVAL
                                ? "the command and its environment are longer "
                                  "than 16 MiB"
                                : "it does not take the launch message");
}
