/* SPDX-License-Identifier: Apache-2.0 */
/* Starts ranks of an elastic job again (--restart-failed). */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/sys/clock.h"

#include <sys/random.h>

uint64_t elastic_plan_restart(struct job *job, int rank)
{
    struct elastic *e = job->elastic;
    uint64_t due_ns = 0;
    uint32_t random = 0;

    if (e->generations.lives[GENERATIONS_FINISHED] > 0 ||
        e->leaving[rank].why || e->generations.stopping ||
        !elastic_is_offered(job, rank) ||
        elastic_host_goes(&job->hosts[job->config->plan->ranks[rank].host]))
        return 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = (uint32_t)rank;
    restarts_plan(&e->restarts, rank, hb_now_ns(), random, &due_ns);
    return due_ns;
}

void elastic_end_too_few(struct job *job, enum generations_action action,
                         int rank, const char *why)
{
    if (action != GENERATIONS_TOO_FEW)
        return;
    if (job->failed_count > 0) {
        job_check_failure(job);
        return;
    }
    job_verdict(job, JOB_EXIT_LAUNCHER, "rank %d %s", rank, why);
    job_event(job, JOB_EV_FAILED);
}

/* Gives up the restart of a rank; ends the job if too few are left. */
static void give_up(struct job *job, int rank)
{
    enum generations_action action =
        generations_given_up(&job->elastic->generations, rank);

    elastic_act(job, action);
    elastic_end_too_few(job, action, rank, "cannot be started again");
}

int elastic_start(struct job *job, int rank)
{
    struct elastic *e = job->elastic;
    struct job_host *host = &job->hosts[job->config->plan->ranks[rank].host];

    if (host->state != HOST_STARTED || host->quitting || host->is_ending ||
        job_host_send_u32(host, CONTROL_RESTART, (uint32_t)rank) < 0)
        return -HVD_ECLOSED;
    job->exited_count -= job->exited[rank] != 0;
    job->exited[rank] = 0;
    job->config->plan->ranks[rank].is_idle = 0;
    e->gone[rank] = 0;
    e->pids[rank] = 0;
    job_rendezvous_rank_restarted(job->rendezvous, rank);
    elastic_forget_lost(e, rank);
    job_forget_failure(job, rank);
    generations_started(&e->generations, rank);
    job_record_started(host, rank, 0);
    return 0;
}

static void restart(struct job *job, int rank)
{
    struct elastic *e = job->elastic;

    if (e->generations.ranks[rank].life == GENERATIONS_PENDING &&
        elastic_start(job, rank) < 0)
        give_up(job, rank);
}

static void on_restart(uv_timer_t *timer)
{
    struct job *job = timer->data;
    int rank;

    while (job_elastic_goes_on(job) &&
           (rank = restarts_take(&job->elastic->restarts, hb_now_ns())) >= 0)
        restart(job, rank);
    if (job_elastic_goes_on(job))
        elastic_set_restart_timer(job);
}

void elastic_set_restart_timer(struct job *job)
{
    uint64_t due_ns = restarts_next(&job->elastic->restarts);
    uint64_t now_ns = hb_now_ns();

    if (!due_ns || !job_elastic_goes_on(job))
        uv_timer_stop(&job->restart_timer);
    else
        uv_timer_start(&job->restart_timer, on_restart,
                       due_ns > now_ns ? (due_ns - now_ns) / 1000000 + 1 : 0,
                       0);
}

void elastic_end_agent(struct job_host *host)
{
    job_host_send_u32(host, CONTROL_KILL,
                      (uint32_t)host->job->config->spec.grace_ms);
}

void elastic_end_agents(struct job *job)
{
    job_grow_end(job);
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (job->hosts[i].state == HOST_STARTED)
            elastic_end_agent(&job->hosts[i]);
}

void elastic_end_idle_agents(struct job *job)
{
    struct elastic *e = job->elastic;
    const struct generations *g = &e->generations;
    int rank;

    if (!job->config->spec.restart || g->ended ||
        g->lives[GENERATIONS_LIVES] > 0 ||
        (g->lives[GENERATIONS_PENDING] > 0 &&
         g->lives[GENERATIONS_FINISHED] == 0))
        return;
    while ((rank = restarts_cancel(&e->restarts)) >= 0 && !g->ended)
        give_up(job, rank);
    if (!g->ended)
        elastic_end_agents(job);
}
