/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of an elastic job that are asked to leave: of a host that will go away,
 * or all of them (--stop-at-commit).
 *
 * They leave at a commit, so that nothing is lost (generations.h).  One that
 * has not exited by its deadline is killed, and then is a rank that has died.
 */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"

#include <stdio.h>

enum {
    SPARE_MAX_MS = 5000,
    /* A host that goes is not used for so long after its time, or after it was
     * named last: longer than --preempt-script needs to name it again. */
    GOES_HOLD_MS = 30000,
};

static const uint64_t NS_PER_MS = 1000000;

static void on_deadline(uv_timer_t *timer);

/* ---- Deadlines ---- */

static int is_running(const struct job *job, int rank)
{
    return !job->exited[rank] && !job->elastic->gone[rank];
}

/* Returns whether the rank was asked to leave. */
static int has_notice(const struct job *job, int rank)
{
    return job->elastic->leaving[rank].why != NULL;
}

/* Returns the first deadline of a rank that has not exited, or 0. */
static uint64_t next_deadline(const struct job *job)
{
    const struct elastic *e = job->elastic;
    uint64_t next_ns = 0;

    for (int i = 0; i < job->config->plan->size; i++)
        if (e->leaving[i].due_ns && is_running(job, i) &&
            (!next_ns || e->leaving[i].due_ns < next_ns))
            next_ns = e->leaving[i].due_ns;
    return next_ns;
}

void elastic_set_leave_timer(struct job *job)
{
    uint64_t due_ns = job->elastic->due_ns, now_ns = hb_now_ns();

    if (!due_ns || job->state != JOB_RUNNING)
        uv_timer_stop(&job->leave_timer);
    else
        uv_timer_start(&job->leave_timer, on_deadline,
                       due_ns > now_ns ? (due_ns - now_ns) / NS_PER_MS + 1 : 0,
                       0);
}

void job_evict_rank(struct job *job, int rank, const char *why)
{
    int host = job->config->plan->ranks[rank].host;
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_evict(&frame, rank, why));
    job_send(job, host, &frame);
    hb_buf_free(&frame);
}

/* Ends a job whose ranks have not stopped at a commit in time. */
static void end_unstopped(struct job *job)
{
    job_verdict(job, job->elastic->stop_code,
                "not all ranks have stopped at a commit, and exited, in time");
    job->urgent = 1;
    job_event(job, JOB_EV_TIMEOUT);
}

/* Returns whether a rank would be started again. */
static int may_restart(const struct job *job, int rank)
{
    const struct restarts *r = &job->elastic->restarts;

    return job->elastic->generations.lives[GENERATIONS_FINISHED] == 0 &&
           r->ranks[rank].used < r->most;
}

int job_evict_hanging(struct job *job, const int *ranks, int count,
                      int64_t waited_ms)
{
    char *why;
    int lost = 0;

    if (!job_elastic_goes_on(job))
        return 0;
    for (int i = 0; i < count; i++)
        lost += !may_restart(job, ranks[i]);
    if (!generations_can_lose(&job->elastic->generations, lost))
        return 0;
    why = hb_xasprintf("by hvdrun: kept the others waiting for %.4g s",
                       (double)waited_ms / 1e3);
    for (int i = 0; i < count; i++)
        job_evict_rank(job, ranks[i], why);
    hb_free(why);
    return 1;
}

static void on_deadline(uv_timer_t *timer)
{
    struct job *job = timer->data;
    struct elastic *e = job->elastic;
    uint64_t now_ns = hb_now_ns();

    if (e->stop_due_ns && e->stop_due_ns <= now_ns && next_deadline(job) &&
        next_deadline(job) <= now_ns) {
        end_unstopped(job);
        return;
    }
    for (int i = 0; i < job->config->plan->size; i++) {
        if (!e->leaving[i].due_ns || e->leaving[i].due_ns > now_ns)
            continue;
        e->leaving[i].due_ns = 0;
        if (!is_running(job, i))
            continue;
        job_evict_rank(job, i,
                       e->generations.ranks[i].life == GENERATIONS_REMOVED
                           ? "by hvdrun: has not exited in time after leaving"
                           : "by hvdrun: has not left at a commit in time");
    }
    e->due_ns = next_deadline(job);
    elastic_set_leave_timer(job);
}

/* ---- Asking ---- */

/* Tells the rank how long it has. */
static void send_notice(struct job *job, int rank)
{
    uint64_t due_ns = job->elastic->leaving[rank].due_ns, now_ns = hb_now_ns();
    uint64_t left_ms = due_ns > now_ns ? (due_ns - now_ns) / NS_PER_MS : 0;
    struct hb_buf frame = HB_BUF_INIT;

    if (left_ms > CONTROL_LEFT_MAX_MS)
        left_ms = CONTROL_LEFT_MAX_MS;
    hb_must(control_encode_notice(
        &frame, rank, due_ns ? (uint32_t)left_ms : CONTROL_LEFT_ANY));
    job_send(job, job->config->plan->ranks[rank].host, &frame);
    hb_buf_free(&frame);
}

/* Keeps why the rank is to leave, and until when, if that is earlier. */
static void note(struct job *job, int rank, int64_t left_ms, const char *why)
{
    struct elastic_leaving *l = &job->elastic->leaving[rank];
    int is_new = l->why == NULL;
    uint64_t due_ns = 0;

    l->with_host = l->with_slot = 0;
    if (left_ms >= 0)
        due_ns = hb_now_ns() + (uint64_t)left_ms * NS_PER_MS;
    if (due_ns && (!l->due_ns || due_ns < l->due_ns)) {
        l->due_ns = due_ns;
        if (!job->elastic->due_ns || due_ns < job->elastic->due_ns)
            job->elastic->due_ns = due_ns;
    } else if (!is_new)
        return;
    if (is_new)
        l->why = hb_xstrdup(why);
    send_notice(job, rank);
}

int job_remove_ranks(struct job *job, const int *ranks, int count,
                     int64_t left_ms, const char *why)
{
    struct elastic *e = job->elastic;

    if (!job_elastic_goes_on(job) || e->generations.stopping ||
        !generations_can_remove(&e->generations, ranks, count))
        return -1;
    for (int i = 0; i < count; i++)
        if (is_running(job, ranks[i]))
            note(job, ranks[i], left_ms, why);
    generations_ask(&e->generations, ranks, count);
    if (!e->gathers)
        elastic_act(job, generations_begun(&e->generations));
    return 0;
}

/* Holds back the announcement of requests to leave until gather_end, so that
 * all these ranks leave at the same commit. */
static void gather(struct job *job)
{
    if (job->elastic)
        job->elastic->gathers = 1;
}

static void gather_end(struct job *job)
{
    if (!job->elastic)
        return;
    job->elastic->gathers = 0;
    if (job_elastic_goes_on(job) && job->state == JOB_RUNNING)
        elastic_act(job, generations_begun(&job->elastic->generations));
}

/* Lists the host's ranks that run or wait for a restart in *ranks (heap), and
 * sets *pending to the number of the latter.  Returns how many are listed. */
static int list_ranks(const struct job_host *host, int **ranks, int *pending)
{
    const struct job *job = host->job;
    int count = 0;

    *ranks = hb_xcalloc((size_t)host->plan->count + 1, sizeof(**ranks));
    *pending = 0;
    for (int i = 0; i < host->plan->count; i++) {
        int rank = host->plan->ranks[i];
        int is_pending =
            job->elastic->generations.ranks[rank].life == GENERATIONS_PENDING;

        if (is_pending || is_running(job, rank))
            (*ranks)[count++] = rank;
        *pending += is_pending;
    }
    return count;
}

/* Counts the listed ranks that were asked to leave. */
static int count_notices(const struct job *job, const int *ranks, int count)
{
    int known = 0;

    for (int i = 0; i < count; i++)
        known += has_notice(job, ranks[i]);
    return known;
}

/* Tells the user what happens to the other ranks of a failed rank's host. */
static void say_leave_with(struct job_host *host, int running, int pending)
{
    if (running > 0)
        job_say(host->job,
                "host %s: its other %d rank%s at the next commit "
                "(--elastic-unit host)",
                host->name, running, running > 1 ? "s leave" : " leaves");
    if (pending > 0)
        job_say(host->job,
                "host %s: its other %d rank%s not started again "
                "(--elastic-unit host)",
                host->name, pending, pending > 1 ? "s are" : " is");
}

void elastic_leave_with(struct job *job, int rank, const char *line)
{
    struct job_host *host = &job->hosts[job->config->plan->ranks[rank].host];
    char *why =
        hb_xasprintf("%s, and its host leaves, too (--elastic-unit)", line);
    int pending, *ranks, all = list_ranks(host, &ranks, &pending), count = 0;

    for (int i = 0; i < all; i++)
        if (!has_notice(job, ranks[i]))
            ranks[count++] = ranks[i];
    if (count > 0 &&
        generations_can_spare(&job->elastic->generations, ranks, count) &&
        job_remove_ranks(job, ranks, count, -1, why) == 0) {
        for (int i = 0; i < count; i++)
            job->elastic->leaving[ranks[i]].with_host = 1;
        say_leave_with(host, count - pending, pending);
    }
    hb_free(why);
    hb_free(ranks);
}

int job_going_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    char why[CONTROL_WHY_MAX];
    uint32_t left_ms;
    int rc = control_decode_going(f->payload, f->len, &left_ms, why, err);

    if (rc < 0)
        return rc;
    hb_text_sanitize(why);
    job_host_goes(host->job, host->index,
                  left_ms == CONTROL_LEFT_ANY ? -1 : (int64_t)left_ms, why);
    return 0;
}

/* Returns how long a rank may run on a host that goes in left_ms: it is killed
 * a little earlier, so that the others learn of it in time. */
static int64_t ranks_have(int64_t left_ms)
{
    int64_t spare_ms = left_ms / 5;

    if (left_ms < 0)
        return -1;
    return left_ms - (spare_ms < SPARE_MAX_MS ? spare_ms : SPARE_MAX_MS);
}

/* Says how long something has. */
static void put_time(char *text, size_t size, int64_t left_ms)
{
    text[0] = '\0';
    if (left_ms >= 0)
        snprintf(text, size, " in %.3g s", (double)left_ms / 1e3);
}

/* Says which ranks leave, of those that run and those that would be started
 * again. */
static void say_leave(struct job *job, const char *why, int running,
                      int pending)
{
    if (running > 0)
        job_say(job, "%s: its %d rank%s at the next commit", why, running,
                running > 1 ? "s leave" : " leaves");
    if (pending > 0)
        job_say(job, "%s: %d rank%s not started again", why, pending,
                pending > 1 ? "s are" : " is");
}

int elastic_leave_host(struct job_host *host, int64_t left_ms, const char *why)
{
    struct job *job = host->job;
    int pending, *ranks, count = list_ranks(host, &ranks, &pending), rc = 0;

    if (count > count_notices(job, ranks, count) &&
        generations_can_remove(&job->elastic->generations, ranks, count))
        say_leave(job, why, count - pending, pending);
    if (count > 0)
        rc = job_remove_ranks(job, ranks, count, left_ms, why);
    hb_free(ranks);
    return rc;
}

void elastic_forget_leaving(struct job *job, int rank)
{
    hb_free(job->elastic->leaving[rank].why);
    job->elastic->leaving[rank] = (struct elastic_leaving){.why = NULL};
}

/* Returns whether the host may get ranks although its ranks leave because one
 * of them has failed: they are needed, or the host has new ones already. */
static int is_kept(const struct job_host *host)
{
    const struct elastic *e = host->job->elastic;

    if (!generations_can_spare(&e->generations, NULL, 0))
        return 1;
    for (int i = 0; i < host->plan->count; i++) {
        int rank = host->plan->ranks[i];

        if (e->generations.ranks[rank].life == GENERATIONS_LIVES &&
            !e->leaving[rank].why)
            return 1;
    }
    return 0;
}

int elastic_host_goes(const struct job_host *host)
{
    const struct elastic *e = host->job->elastic;
    int kept = is_kept(host);

    if (host->is_withdrawn || host->goes_until_ns > hb_now_ns())
        return 1;
    for (int i = 0; i < host->plan->count; i++) {
        const struct elastic_leaving *l = &e->leaving[host->plan->ranks[i]];

        if (l->why && !l->with_slot && !(l->with_host && kept))
            return 1;
    }
    return 0;
}

/* Stores the notice that the host goes, until the job runs: no rank can leave
 * before. */
static void keep_for_later(struct job_host *host, int64_t left_ms,
                           const char *who)
{
    hb_free(host->goes_who);
    host->goes_who = hb_xstrdup(who);
    host->goes_ns =
        left_ms < 0 ? 0 : hb_now_ns() + (uint64_t)left_ms * NS_PER_MS;
}

void job_these_hosts_go(struct job *job, const struct going *list, size_t count,
                        int (*find)(void *arg, const char *name), void *arg,
                        const char *who)
{
    gather(job);
    for (size_t i = 0; i < count; i++) {
        int host = find(arg, list[i].host);

        if (host >= 0)
            job_host_goes(job, host, list[i].left_ms, who);
    }
    gather_end(job);
}

void job_hosts_go(struct job *job)
{
    gather(job);
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];
        uint64_t now_ns = hb_now_ns(), due_ns = host->goes_ns;
        char *who = host->goes_who;
        int64_t left_ms =
            due_ns > now_ns ? (int64_t)((due_ns - now_ns) / NS_PER_MS) : 0;

        host->goes_who = NULL;
        if (who)
            job_host_goes(job, i, due_ns ? left_ms : -1, who);
        hb_free(who);
    }
    gather_end(job);
}

void job_host_goes(struct job *job, int index, int64_t left_ms, const char *who)
{
    struct job_host *host = &job->hosts[index];
    uint64_t until_ns = hb_now_ns() + GOES_HOLD_MS * NS_PER_MS;
    char in[32], *why;

    if (!job_elastic_goes_on(job))
        return;
    if (job->state != JOB_RUNNING) {
        keep_for_later(host, left_ms, who);
        return;
    }
    if (left_ms > 0)
        until_ns += (uint64_t)left_ms * NS_PER_MS;
    if (until_ns > host->goes_until_ns)
        host->goes_until_ns = until_ns;
    put_time(in, sizeof(in), left_ms);
    why = hb_xasprintf("host %s goes%s (%s)", host->name, in, who);
    left_ms = ranks_have(left_ms);
    if (elastic_leave_host(host, left_ms, why) < 0)
        job_stop_at_commit(job, left_ms, JOB_EXIT_TIMEOUT, why);
    hb_free(why);
    elastic_end_unused(host);
    job_grow_soon(job); /* others may replace its ranks */
}

static int has_ranks(const struct job_host *host)
{
    const struct job *job = host->job;

    for (int i = 0; i < host->plan->count; i++) {
        int rank = host->plan->ranks[i];

        if (is_running(job, rank) ||
            job->elastic->generations.ranks[rank].life == GENERATIONS_PENDING)
            return 1;
    }
    return 0;
}

void elastic_end_unused(struct job_host *host)
{
    struct job *job = host->job;

    if (!job_elastic_goes_on(job) || job->state != JOB_RUNNING ||
        !job->config->spec.restart || job_host_finished(host) ||
        host->is_ending || host->quitting || !elastic_host_goes(host))
        return;
    if (host->newcomers > 0) {
        job_host_finish(host, HOST_DONE);
        job_host_cancel(host);
    } else if (host->state == HOST_STARTED && !has_ranks(host)) {
        host->is_ending = 1;
        elastic_end_agent(host);
    }
}

int job_stop_at_commit(struct job *job, int64_t left_ms, int late_code,
                       const char *why)
{
    struct elastic *e = job->elastic;
    char in[32];

    if (!job_elastic_goes_on(job) || e->generations.stopping ||
        job->state != JOB_RUNNING)
        return -1;
    put_time(in, sizeof(in), left_ms);
    job_say(job, "%s: all ranks stop at the next commit, or are ended%s", why,
            in);
    e->stop_code = late_code;
    if (left_ms >= 0)
        e->stop_due_ns = hb_now_ns() + (uint64_t)left_ms * NS_PER_MS;
    for (int i = 0; i < job->config->plan->size; i++)
        if (is_running(job, i))
            note(job, i, left_ms, why);
    job_grow_end(job);
    elastic_act(job, generations_stop(&e->generations));
    return 0;
}

/* ---- Leaving ---- */

/* Ends the agents if all ranks have stopped and exited. */
static void end_stopped(struct job *job)
{
    for (int i = 0; i < job->config->plan->size; i++)
        if (is_running(job, i))
            return;
    elastic_end_agents(job);
}

void elastic_stopped(struct job *job)
{
    struct elastic *e = job->elastic;
    int count = e->count;

    e->has_stopped = 1;
    e->count = 0;
    job_say(job, "%d rank%s stopped at a commit: exit code %d", count,
            count == 1 ? " has" : "s have", JOB_EXIT_STOPPED);
    if (job->config->spec.restart)
        end_stopped(job);
}

int job_elastic_stopped(const struct job *job)
{
    return job->elastic && job->elastic->has_stopped;
}

int elastic_stopped_there(const struct job_host *host)
{
    if (!job_elastic_stopped(host->job))
        return 0;
    for (int i = 0; i < host->plan->count; i++)
        if (is_running(host->job, host->plan->ranks[i]))
            return 0;
    return 1;
}

void job_elastic_end_left(struct job_host *host)
{
    struct job *job = host->job;

    if (job_elastic_stopped(job) && job->config->spec.restart)
        end_stopped(job);
    elastic_end_unused(host);
    job_grow_soon(job);
}

void elastic_tell_removed(struct job *job)
{
    struct elastic *e = job->elastic;
    int *ranks, count;

    if (e->generations.untold == 0)
        return;
    ranks = hb_xcalloc((size_t)e->generations.untold, sizeof(*ranks));
    count = generations_take_removed(&e->generations, ranks);
    for (int i = 0; i < count; i++) {
        const char *why = e->leaving[ranks[i]].why;
        struct hb_buf frame = HB_BUF_INIT;

        hb_must(control_encode_removed(&frame, ranks[i], why ? why : ""));
        job_send(job, job->config->plan->ranks[ranks[i]].host, &frame);
        hb_buf_free(&frame);
    }
    hb_free(ranks);
}

int elastic_removed_failed(struct job *job, const struct control_exited *m)
{
    if (job->elastic->generations.ranks[m->rank].life != GENERATIONS_REMOVED)
        return 0;
    elastic_report_failed(job, m);
    job_forget_failure(job, m->rank);
    return 1;
}
