/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats and clocks: hvdrun's half (the agent's is lib/agent/beat.c).
 *
 * Every third of --heartbeat each agent is sent PING, and any message from a
 * host is a sign of life.  Silence is counted in PINGs without an answer, not
 * by the clock: after this process was stopped, the machine slept or the login
 * node was busy, only one PING counts as missed, and what the hosts sent
 * meanwhile is read before the next is counted.
 *
 * PING also sets the silence of ours that ends the job.  When SIGTSTP stops us,
 * a last PING removes that limit until we continue: then only the end of the
 * connection ends the ranks, which are stopped, too.
 *
 * The answers measure the hosts' clocks (offset.h), so PINGs are sent at times
 * even without --heartbeat.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

enum {
    BEATS_MISSED_MAX = 3,      /* PINGs in the time of --heartbeat */
    BEAT_CLOCK_MS = 30000,     /* interval without --heartbeat */
    BEAT_QUEUE_MAX = 64 << 20, /* bytes queued for one host */
};

static int is_live(const struct job_host *host)
{
    return !host->link.closing && host->state >= HOST_CONNECTED &&
           !job_host_finished(host);
}

static void ping(struct job_host *host, uint32_t silence_ms)
{
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_ping(&frame, hb_now_ns(), silence_ms));
    agent_link_send(&host->link, &frame);
    hb_buf_free(&frame);
}

void job_beat_ping(struct job_host *host)
{
    if (is_live(host))
        ping(host, (uint32_t)host->job->config->heartbeat_ms);
}

void job_beat_heard(void *arg)
{
    struct job_host *host = arg;

    host->beats_missed = 0;
    host->asked_ns = 0;
    host->unheard = 0;
    host->owes_answer = 0;
}

int job_beat_pong(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    uint64_t ping_ns, theirs_ns, now_ns = hb_now_ns();
    int rc = control_decode_pong(f->payload, f->len, &ping_ns, &theirs_ns, err);

    if (rc == 0 && ping_ns > now_ns)
        rc = hb_error_set(err, HVD_EPROTO, "an answer to nothing");
    if (rc == 0)
        offset_add(&host->clock, ping_ns, theirs_ns, now_ns);
    return rc;
}

static void send_heartbeat(struct job_host *host)
{
    struct job *job = host->job;

    if (agent_link_queued(&host->link) > BEAT_QUEUE_MAX) {
        job_host_silent(host, "it does not read what it is sent");
        return;
    }
    if (job->config->heartbeat_ms > 0 &&
        host->beats_missed >= BEATS_MISSED_MAX) {
        char *why = hb_xasprintf("nothing was heard from it for %g s",
                                 job->config->heartbeat_ms / 1e3);

        job_host_silent(host, why);
        hb_free(why);
        return;
    }
    if (host->beats_missed++ == 0 || !host->asked_ns)
        host->asked_ns = hb_now_ns();
    job_beat_ping(host);
}

static void on_beat(uv_timer_t *timer)
{
    struct job *job = timer->data;

    for (int i = 0; i < job->config->plan->host_count; i++)
        if (is_live(&job->hosts[i]))
            send_heartbeat(&job->hosts[i]);
}

void job_beat_start(struct job *job)
{
    uint64_t turn_ms = BEAT_CLOCK_MS;

    if (job->config->heartbeat_ms > 0)
        turn_ms = (uint64_t)job->config->heartbeat_ms / BEATS_MISSED_MAX + 1;
    uv_timer_start(&job->beat_timer, on_beat, turn_ms, turn_ms);
}

void job_beat_end(struct job *job)
{
    uv_timer_stop(&job->beat_timer);
}

void job_beat_pause(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (is_live(&job->hosts[i]))
            ping(&job->hosts[i], 0);
}

void job_beat_resume(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++) {
        job_beat_heard(&job->hosts[i]);
        job_beat_ping(&job->hosts[i]);
    }
}

/* Loses remote hosts that have not answered the PING that came with KILL: a
 * live agent answers, however long its ranks take. */
void job_beat_give_up(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (is_live(host) && host->unheard && !job_host_is_local(host))
            job_host_silent(host, "it does not answer");
    }
}
