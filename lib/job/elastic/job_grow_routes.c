/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a host that is added to a running job and the job's other hosts reach
 * each other: another round of routes.h, of all hosts that have an agent.  Its
 * result replaces that of the round before: the new host gets it in LAUNCH, the
 * others in HOSTS.  There is one round at a time; hosts that come during one
 * wait for the next.
 */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

/* Returns whether the host takes part in a round that begins now: its agent has
 * its ranks, also if it is still starting them, or waits for them. */
static int takes_part(const struct job_host *host)
{
    return host->state >= HOST_CONNECTED && !job_host_finished(host) &&
           !host->quitting;
}

static int is_waiting(const struct job_host *host)
{
    return host->newcomers > 0 && host->state == HOST_CONNECTED &&
           !host->quitting;
}

static int anybody_waits(const struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (is_waiting(&job->hosts[i]))
            return 1;
    return 0;
}

static struct routes *end_round(struct job *job)
{
    struct routes *round = job->elastic->round;

    job->elastic->round = NULL;
    return round;
}

/* Returns whether the host is to be added by the round. */
static int may_leave(void *arg, int index)
{
    const struct job *job = arg;

    return job->hosts[index].in_round && is_waiting(&job->hosts[index]);
}

static void give_up(struct job_host *host, const struct hb_error *why)
{
    host->in_round = 0;
    job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 0, "%s", why->text);
    job_host_finish(host, HOST_LOST);
    job_host_cancel(host);
}

/* Gives up the hosts that were to be added. */
static void fail(struct job *job, const struct hb_error *why)
{
    routes_free(end_round(job));
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (may_leave(job, i))
            give_up(&job->hosts[i], why);
}

/* Chooses the routes, without those of the hosts to be added that do not reach
 * another, or are not reached: these are given up.  Negative if the others
 * do not reach each other. */
static int choose(struct job *job, struct hb_error *err)
{
    struct routes *round = job->elastic->round;
    int rc;

    while ((rc = routes_finish(round, err)) < 0) {
        int host = routes_culprit(round, may_leave, job);

        if (host < 0)
            return rc;
        give_up(&job->hosts[host], err);
        routes_absent(round, host);
    }
    return 0;
}

/* Tells a host that has its ranks which hosts there are now.  Most get the same
 * frame: the one of *last, if the host reaches all by the same addresses. */
static void send_hosts(struct job_host *host, const struct job_host **last,
                       struct hb_buf *frame)
{
    struct job *job = host->job;

    if (!*last ||
        !routes_same_peers(job->routes, (*last)->index, host->index)) {
        hb_buf_clear(frame);
        job_host_encode_hosts(host, frame);
        *last = host;
    }
    job_send(job, host->index, frame);
}

static void finish(struct job *job)
{
    const struct job_host *last = NULL;
    struct hb_buf frame = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;

    if (choose(job, &err) < 0) {
        fail(job, &err);
        return;
    }
    routes_free(job->routes);
    job->routes = end_round(job);
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (!host->in_round || job_host_finished(host))
            continue;
        if (is_waiting(host))
            job_host_launch(host);
        else
            send_hosts(host, &last, &frame);
    }
    hb_buf_free(&frame);
}

/* Tells the host to listen. */
static int ask_to_listen(struct job_host *host, struct hb_error *err)
{
    host->ports_due++;
    return routes_hello(host->job->elastic->round, host->index,
                        &host->link.hello, err);
}

static int begin(struct job *job, struct hb_error *err)
{
    const struct plan *plan = job->config->plan;
    const char **names = hb_xcalloc((size_t)plan->host_count, sizeof(char *));
    const struct routes_config config = {
        .host_count = plan->host_count,
        .names = names,
        .network_interfaces = job->config->network_interfaces,
        .send = job_send,
        .arg = job,
    };
    int rc;

    for (int i = 0; i < plan->host_count; i++)
        names[i] = job->hosts[i].name;
    rc = routes_new(&config, &job->elastic->round, err);
    hb_free(names);
    for (int i = 0; rc == 0 && i < plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        host->in_round = takes_part(host);
        if (host->in_round)
            rc = ask_to_listen(host, err);
        else
            routes_absent(job->elastic->round, i);
    }
    return rc < 0 ? rc : routes_begin(job->elastic->round, err);
}

void elastic_begin_round(struct job *job)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    while (!job->elastic->round && anybody_waits(job)) {
        rc = begin(job, &err);
        if (rc < 0)
            fail(job, &err);
        else if (rc > 0)
            finish(job);
    }
}

int job_grow_route_frame(struct job_host *host, const struct frame *f,
                         struct hb_error *err)
{
    struct job *job = host->job;
    int rc;

    /* What was asked in a round that has ended may be answered late, also in
     * the next. */
    if (f->type == CONTROL_ROUTE_PORT && host->ports_due > 0 &&
        --host->ports_due > 0)
        return 0;
    if (!job->elastic->round || !host->in_round)
        return 0;
    rc = routes_frame(job->elastic->round, host->index, f, err);
    if (rc > 0) {
        finish(job);
        elastic_begin_round(job);
    }
    return rc < 0 ? rc : 0;
}

void job_grow_host_gone(struct job_host *host)
{
    struct job *job = host->job;

    if (!job->elastic || !job->elastic->round || !host->in_round)
        return;
    host->in_round = 0;
    if (routes_absent(job->elastic->round, host->index) == 0)
        return;
    finish(job);
    elastic_begin_round(job);
}
