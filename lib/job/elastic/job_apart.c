/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that do not reach each other, as their ranks report (NO_ANSWER): an
 * elastic job gives up one of both (apart.h), as if it had lost the host.  In
 * any other job, the ranks fail by themselves, and the report tells why.
 */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

enum {
    /* Time for the reports of other ranks, which look for silent peers four
     * times a second, and for the hosts' answers to PING. */
    APART_WAIT_MS = 600,
    /* More time, if a host has not answered: its answer may be on the way, or
     * lie here unread. */
    APART_MORE_MS = 400,
};

static int live_ranks(const struct job_host *host)
{
    int count = 0;

    for (int i = 0; i < host->plan->count; i++)
        count += !host->job->exited[host->plan->ranks[i]] &&
                 !host->job->elastic->gone[host->plan->ranks[i]];
    return count;
}

/* Describes all hosts for apart_choose; the caller frees the result. */
static struct apart_host *describe(const struct job *job)
{
    int count = job->config->plan->host_count;
    int left = generations_left_count(&job->elastic->generations);
    struct apart_host *hosts = hb_xcalloc((size_t)count, sizeof(*hosts));

    for (int i = 0; i < count; i++) {
        hosts[i].ranks = live_ranks(&job->hosts[i]);
        hosts[i].is_gone =
            job_host_finished(&job->hosts[i]) || hosts[i].ranks == 0;
        hosts[i].is_silent = job->hosts[i].owes_answer;
        hosts[i].is_needed = left - hosts[i].ranks < job->config->min_np;
    }
    return hosts;
}

/* Returns whether a host that has ranks has not answered. */
static int is_owed(const struct job *job)
{
    struct apart_host *hosts = describe(job);
    int owed = 0;

    for (int i = 0; i < job->config->plan->host_count; i++)
        owed |= hosts[i].is_silent && !hosts[i].is_gone;
    hb_free(hosts);
    return owed;
}

static void decide(uv_timer_t *timer)
{
    struct job *job = timer->data;
    int host, other;

    while (job_elastic_goes_on(job)) {
        struct apart_host *hosts = describe(job);
        char *why;

        host = apart_choose(&job->elastic->apart, hosts, &other);
        hb_free(hosts);
        if (host < 0)
            return;
        why = hb_xasprintf("its ranks and those on host %s do not reach each "
                           "other over the network",
                           job->hosts[other].name);
        job_host_give_up(&job->hosts[host], why);
        hb_free(why);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job_elastic_goes_on(job) && is_owed(job))
        uv_timer_start(timer, decide, APART_MORE_MS, 0);
    else
        decide(timer);
}

/* Asks the host for a sign of life. */
static void ask(struct job_host *host)
{
    host->owes_answer = 1;
    job_beat_ping(host);
}

/* Returns whether the rank is in the current world. */
static int takes_part(const struct elastic *e, int rank)
{
    const struct generations_rank *r = &e->generations.ranks[rank];

    return r->member && r->life == GENERATIONS_LIVES;
}

static void note(struct job *job, const struct control_no_answer *m)
{
    const struct plan *plan = job->config->plan;
    int a = plan->ranks[m->rank].host, b = plan->ranks[m->peer].host;
    struct elastic *e = job->elastic;

    if (!job_elastic_goes_on(job) || job->state != JOB_RUNNING || a == b ||
        !takes_part(e, m->rank) || !takes_part(e, m->peer))
        return;
    apart_add(&e->apart, a, b);
    if (uv_is_active((uv_handle_t *)&job->apart_timer))
        return;
    for (int i = 0; i < plan->host_count; i++)
        ask(&job->hosts[i]);
    uv_timer_start(&job->apart_timer, on_timer, APART_WAIT_MS, 0);
}

int job_apart_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct job *job = host->job;
    const struct plan *plan = job->config->plan;
    struct control_no_answer m;
    int rc = control_decode_no_answer(f->payload, f->len, &m, err);

    if (rc == 0)
        rc = job_check_rank(host, m.rank, err);
    if (rc == 0 && m.peer >= plan->size)
        rc =
            hb_error_set(err, HVD_EPROTO, "rank %d is none of the job", m.peer);
    if (rc < 0)
        return rc;
    job_stall_no_answer(job, m.rank, m.peer);
    note(job, &m);
    return 0;
}
