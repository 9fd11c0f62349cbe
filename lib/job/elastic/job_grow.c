/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts and ranks that an elastic job gets while it runs (job_config.most).
 *
 * An agent gets numbers for all ranks that its host may ever have; those that
 * are not to be started at once are idle.  To add a rank is to start an idle
 * one, or one that has failed: RESTART.  A host is added by a connection like
 * those at the start, and a LAUNCH with idle ranks only.  Nobody waits for any
 * of this: a new rank waits in hvd_init, and generations.h lets it in.
 *
 * Failures of hosts and ranks are strikes against the host (strikes.h).  What
 * is not offered any more: job_withdraw.c.
 */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"
#include "lib/job/discovery/discovery.h"
#include "lib/job/worker_env.h"
#include "lib/remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

/* Numbers for a host with fewer slots: it may get more. */
enum { ROOM = 16 };

void elastic_grow_open(struct job *job)
{
    struct grow *g;

    if (job->config->most == 0)
        return;
    g = job->elastic->grow = hb_xcalloc(1, sizeof(*g));
    strikes_init(&g->strikes, job->config->cooldown_least_ms,
                 job->config->cooldown_most_ms);
}

void elastic_grow_free(struct job *job)
{
    struct grow *g = job->elastic->grow;

    if (!g)
        return;
    for (size_t i = 0; i < g->entry_count; i++) {
        hostlist_free(g->entries[i]);
        hb_free(g->entries[i]);
    }
    hb_free(g->entries);
    hostlist_free(&g->offered);
    hb_free(g->at);
    routes_free(job->elastic->round);
    strikes_fini(&g->strikes);
    hb_free(g);
}

/* ---- The hosts that are offered ---- */

static int by_name(const void *a, const void *b)
{
    const struct job_host *x = *(const struct job_host *const *)a;
    const struct job_host *y = *(const struct job_host *const *)b;

    return strcasecmp(x->name, y->name);
}

/* Lists the job's hosts by name: heap. */
static struct job_host **sort_hosts(const struct job *job)
{
    size_t count = (size_t)job->config->plan->host_count;
    struct job_host **sorted = hb_xcalloc(count, sizeof(struct job_host *));

    for (size_t i = 0; i < count; i++)
        sorted[i] = &job->hosts[i];
    qsort(sorted, count, sizeof(struct job_host *), by_name);
    return sorted;
}

/* Returns the index of the job's host that an entry names, or -1. */
static int find_host(const struct job *job, struct job_host **sorted,
                     const struct host_entry *entry)
{
    size_t count = (size_t)job->config->plan->host_count;
    struct job_host like = {.name = entry->name};
    const struct job_host *key = &like;
    struct job_host **found =
        bsearch(&key, sorted, count, sizeof(struct job_host *), by_name);

    return found ? (*found)->index : -1;
}

int elastic_slots(const struct host_entry *entry)
{
    return entry->slots > 0 ? entry->slots : 1;
}

static void note_offer(struct job_host *host, const struct host_entry *entry)
{
    int slots = elastic_slots(entry);

    host->is_listed = 1;
    host->is_withdrawn = 0;
    host->has_fewer_slots |= slots < host->slots;
    host->slots = slots;
}

/* Notes which of the job's hosts are offered. */
static void match_hosts(struct job *job, struct grow *g)
{
    struct job_host **sorted = sort_hosts(job);

    for (int i = 0; i < job->config->plan->host_count; i++)
        job->hosts[i].is_listed = 0;
    hb_free(g->at);
    g->at = hb_xcalloc(g->offered.count + 1, sizeof(*g->at));
    for (size_t i = 0; i < g->offered.count; i++) {
        g->at[i] = find_host(job, sorted, &g->offered.entries[i]);
        if (g->at[i] < 0)
            continue;
        note_offer(&job->hosts[g->at[i]], &g->offered.entries[i]);
    }
    hb_free(sorted);
}

void job_offer_hosts(struct job *job, const struct hostlist *hosts)
{
    struct grow *g = job->elastic ? job->elastic->grow : NULL;

    if (!g)
        return;
    hostlist_free(&g->offered);
    discovery_copy(&g->offered, hosts);
    match_hosts(job, g);
    if (g->offered.count == 0 && job->state == JOB_RUNNING)
        job_say(job, "no host is listed any more: the ranks stay where they "
                     "are");
    job_grow(job);
}

int elastic_is_offered(const struct job *job, int rank)
{
    const struct job_host *host =
        &job->hosts[job->config->plan->ranks[rank].host];

    return !job->elastic->grow || host->is_listed;
}

/* ---- Ranks ---- */

int elastic_grows(const struct job *job)
{
    return job->elastic && job->elastic->grow && job->state == JOB_RUNNING &&
           job_elastic_goes_on(job) && !job->elastic->generations.stopping &&
           job->elastic->generations.lives[GENERATIONS_FINISHED] == 0;
}

static int has_process(const struct job *job, int rank)
{
    enum generations_life life = job->elastic->generations.ranks[rank].life;

    return life == GENERATIONS_LIVES || life == GENERATIONS_PENDING;
}

/* Returns whether a rank's number and slot are taken: also by a rank that was
 * removed and has not exited yet. */
static int is_taken(const struct job *job, int rank)
{
    return has_process(job, rank) ||
           (!job->exited[rank] && !job->elastic->gone[rank]);
}

static int count_on(const struct job_host *host)
{
    int count = 0;

    for (int i = 0; i < host->plan->count; i++)
        count += is_taken(host->job, host->plan->ranks[i]);
    return count;
}

static int is_leaving(const struct job *job, int rank)
{
    return job->elastic->generations.ranks[rank].life == GENERATIONS_LIVES &&
           job->elastic->leaving[rank].why;
}

/* Returns whether the host's ranks are to be replaced by those of listed
 * hosts. */
static int is_outdated(const struct job_host *host)
{
    return !host->is_listed && host->job->elastic->grow->offered.count > 0;
}

/* Counts the ranks that the job will keep: those that run or wait for a restart
 * and are neither asked to leave nor to be replaced, and those that are to be
 * started on hosts that are being added. */
static int count_all(const struct job *job)
{
    const struct plan *plan = job->config->plan;
    int count = 0;

    for (int i = 0; i < plan->size; i++)
        count += has_process(job, i) && !is_leaving(job, i) &&
                 !is_outdated(&job->hosts[plan->ranks[i].host]);

    for (int i = 0; i < job->config->plan->host_count; i++)
        if (!job_host_finished(&job->hosts[i]))
            count += job->hosts[i].newcomers;
    return count;
}

/* Tells the user what was started: spares, if the job has enough working
 * ranks. */
static void say_starts(const struct job_host *host, int started)
{
    struct job *job = host->job;
    const char *plural = started > 1 ? "s" : "";

    if (count_all(job) - job->config->most >= started)
        job_say(job, "host %s: starts %d spare rank%s", host->name, started,
                plural);
    else
        job_say(job, "host %s: starts %d rank%s, to join at the next commit",
                host->name, started, plural);
}

/* Starts up to `room` ranks, so that the host has `slots`; none if it goes.
 * Returns how many. */
static int start_ranks(struct job_host *host, int slots, int room)
{
    struct job *job = host->job;
    int left = slots - count_on(host), started = 0;

    if (left > room)
        left = room;
    if (elastic_host_goes(host))
        return 0;
    for (int i = 0; i < host->plan->count && started < left; i++) {
        int rank = host->plan->ranks[i];

        if (is_taken(job, rank))
            continue;
        if (elastic_start(job, rank) < 0)
            return started;
        restarts_renew(&job->elastic->restarts, rank);
        elastic_forget_leaving(job, rank);
        started++;
    }
    if (started > 0)
        say_starts(host, started);
    return started;
}

/* ---- Hosts ---- */

/* Returns whether nothing is left of the host's last connections. */
static int is_closed(const struct job_host *host)
{
    return job_host_finished(host) && !host->link.transport && !host->sweep;
}

/* Frees the numbers of hosts without an agent. */
static void free_numbers(struct job *job, const struct job_host *except)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (&job->hosts[i] != except && is_closed(&job->hosts[i]))
            plan_unbind(job->config->plan, i);
}

/* Gives the host numbers for `slots` ranks and more.  Returns for how many it
 * has them. */
static int bind_numbers(struct job_host *host, int slots)
{
    struct job *job = host->job;
    struct plan *plan = job->config->plan;
    int most = job->config->most + job->config->spares;
    int room = most < ROOM ? most : ROOM;
    int want = slots > room ? slots : room;

    if (plan_bind(plan, host->index, want, slots) < slots) {
        free_numbers(job, host);
        plan_bind(plan, host->index, want, slots);
    }
    for (int i = 0; i < host->plan->count; i++) {
        int rank = host->plan->ranks[i];

        plan->ranks[rank].is_idle = 1;
        job_trace_renew(job, rank);
        elastic_forget_leaving(job, rank);
        hb_strv_free(&job->config->rank_env[rank]);
        hb_must(worker_env_rank(plan, rank, job->config->job_id,
                                &job->config->env, &job->config->rank_env[rank],
                                NULL));
    }
    return host->plan->count;
}

/* Returns a host that is gone for good, as far as is known, and about which
 * nothing is to be reported at the end; or -1. */
static int find_gone(const struct job *job)
{
    uint64_t now_ns = hb_now_ns();

    for (int i = 0; i < job->config->plan->host_count; i++) {
        const struct job_host *host = &job->hosts[i];

        if (is_closed(host) && !host->is_listed && !host->sweep_text &&
            host->goes_until_ns <= now_ns)
            return i;
    }
    return -1;
}

/* Returns the index of a new host; in place of one that is gone, if the plan
 * has no room; -1: none is gone. */
static int place_host(struct job *job, const struct host_entry *entry)
{
    struct plan *plan = job->config->plan;
    int index = plan_add_host(plan, entry);

    if (index >= 0) {
        job->finished++;
        return index;
    }
    index = find_gone(job);
    if (index < 0)
        return -1;
    plan_replace_host(plan, index, entry);
    output_forget_host(job->output, index);
    job_host_free(&job->hosts[index]);
    return index;
}

/* Adds a host that the job did not have. */
static struct job_host *add_host(struct job *job, const struct host_entry *from)
{
    struct grow *g = job->elastic->grow;
    struct hostlist one = {(struct host_entry *)from, 1, 1};
    const struct host_entry *entry;
    struct hostlist *copy;
    int index;

    if (job->config->plan->host_count == job->config->plan->host_cap &&
        find_gone(job) < 0)
        return NULL;
    copy = hb_xcalloc(1, sizeof(*copy));
    discovery_copy(copy, &one);
    entry = copy->entries;
    g->entries = hb_xrealloc_array(g->entries, g->entry_count + 1,
                                   sizeof(struct hostlist *));
    g->entries[g->entry_count++] = copy;
    index = place_host(job, entry);
    job->config->host_is_local[index] =
        (unsigned char)job->config->is_local(job->arg, entry);
    job->hosts[index] = (struct job_host){
        .job = job,
        .plan = &job->config->plan->hosts[index],
        .name = entry->name,
        .index = index,
        .state = HOST_LOST,
        .is_listed = 1,
        .slots = elastic_slots(entry),
    };
    return &job->hosts[index];
}

/* Connects to a host for up to `room` new ranks.  Returns for how many. */
static int reach(struct job_host *host, int slots, int room)
{
    struct job *job = host->job;
    int numbers = bind_numbers(host, slots);

    if (numbers > slots)
        numbers = slots;
    if (numbers > room)
        numbers = room;
    if (numbers == 0)
        return 0;
    job_host_free(host);
    output_forget_host(job->output, host->index);
    *host = (struct job_host){
        .job = job,
        .plan = host->plan,
        .name = host->name,
        .index = host->index,
        .newcomers = numbers,
        .is_listed = host->is_listed,
        .slots = host->slots,
        .goes_until_ns = host->goes_until_ns,
    };
    job->finished--;
    if (!job_host_is_local(host))
        remote_try_for(job->config->remote, job->config->start_timeout_ms);
    job_host_open(host);
    return numbers;
}

int job_grow_hello(struct job_host *host, struct hb_error *err)
{
    struct job *job = host->job;

    if (!elastic_grows(job))
        return hb_error_set(err, HVD_EPROTO, "comes too late");
    for (int i = 0; i < job->config->plan->host_count; i++) {
        const struct job_host *other = &job->hosts[i];

        if (other != host && !job->config->names_differ &&
            !job_host_finished(other) && host->identity && other->identity &&
            strcmp(host->identity, other->identity) == 0)
            return hb_error_set(err, HVD_EINVAL,
                                "it is host %s, which the job uses already",
                                other->name);
    }
    if (job->config->plan->host_count == 1)
        job_host_launch(host);
    else
        elastic_begin_round(job);
    return 0;
}

void job_grow_started(struct job_host *host)
{
    struct job *job = host->job;
    int room = host->newcomers;

    host->newcomers = 0;
    if (elastic_grows(job))
        start_ranks(host, room, room);
    else if (job->state == JOB_RUNNING)
        elastic_end_agent(host);
    elastic_end_unused(host);
    job_grow(job);
}

/* Returns when an offered host may be used, or 0: now. */
static uint64_t usable_at(const struct job *job, const struct job_host *host)
{
    uint64_t now_ns = hb_now_ns();
    uint64_t until_ns =
        strikes_until(&job->elastic->grow->strikes, host->name, now_ns);

    if (host->goes_until_ns > now_ns && host->goes_until_ns > until_ns)
        return host->goes_until_ns;
    return until_ns;
}

/* Uses one of the hosts that are offered: starts ranks, or connects to it for
 * them, and takes these off *room.  Returns when to try again, or 0. */
static uint64_t use(struct job *job, size_t i, int *room)
{
    struct grow *g = job->elastic->grow;
    const struct host_entry *offered = &g->offered.entries[i];
    int slots = elastic_slots(offered);
    struct job_host *host =
        g->at[i] >= 0 ? &job->hosts[g->at[i]] : add_host(job, offered);
    uint64_t until_ns;

    if (!host)
        return 0;
    g->at[i] = host->index;
    until_ns = usable_at(job, host);
    if (until_ns)
        return until_ns;
    if (is_closed(host))
        *room -= reach(host, slots, *room);
    else if (host->state == HOST_STARTED)
        *room -= start_ranks(host, slots, *room);
    return 0;
}

static void on_time(uv_timer_t *timer)
{
    job_grow(timer->data);
}

void job_grow_soon(struct job *job)
{
    if (elastic_grows(job))
        uv_timer_start(&job->grow_timer, on_time, 0, 0);
}

void elastic_grow_ready(struct job *job)
{
    if (job->elastic->grow && job->elastic->grow->keeps)
        job_grow_soon(job);
}

void job_grow(struct job *job)
{
    uint64_t first_ns = 0, now_ns;
    int room;

    if (!elastic_grows(job))
        return;
    elastic_withdraw(job);
    if (!elastic_grows(job)) /* that has stopped or ended the job */
        return;
    room = job->config->most + job->config->spares - count_all(job);
    for (size_t i = 0; i < job->elastic->grow->offered.count; i++) {
        uint64_t until_ns = room > 0 ? use(job, i, &room) : 0;

        if (until_ns && (!first_ns || until_ns < first_ns))
            first_ns = until_ns;
    }
    now_ns = hb_now_ns();
    uv_timer_stop(&job->grow_timer);
    if (first_ns)
        uv_timer_start(
            &job->grow_timer, on_time,
            first_ns > now_ns ? (first_ns - now_ns) / 1000000 + 1 : 0, 0);
}

/* ---- Failures ---- */

static double strike(struct job_host *host)
{
    uint64_t now_ns = hb_now_ns(), until_ns;
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = (uint32_t)now_ns;
    until_ns = strikes_add(&host->job->elastic->grow->strikes, host->name,
                           now_ns, random);
    job_grow_soon(host->job);
    return (double)(until_ns - now_ns) / 1e9;
}

void job_grow_strike(struct job_host *host)
{
    struct job *job = host->job;
    struct grow *g = job->elastic ? job->elastic->grow : NULL;

    if (!g || strikes_until(&g->strikes, host->name, hb_now_ns()))
        return;
    job_say(job, "host %s gets no new ranks for %.0f s", host->name,
            strike(host));
}

int job_grow_trouble(struct job_host *host, const char *why)
{
    char *line;

    if (host->newcomers == 0 || !job_elastic_goes_on(host->job))
        return 0;
    line = hb_xstrdup(why);
    hb_text_sanitize(line);
    job_say(host->job, "host %s cannot be added: %s; next attempt in %.0f s",
            host->name, line, strike(host));
    hb_free(line);
    return 1;
}

void job_grow_end(struct job *job)
{
    if (!job->elastic || !job->elastic->grow)
        return;
    uv_timer_stop(&job->grow_timer);
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (job_host_finished(host) || host->newcomers == 0)
            continue;
        job_host_finish(host, HOST_DONE);
        job_host_cancel(host);
    }
}
