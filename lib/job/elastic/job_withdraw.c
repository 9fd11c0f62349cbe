/* SPDX-License-Identifier: Apache-2.0 */
/* Handles hosts and slots that are no longer offered to an elastic job: their
 * ranks leave at a commit, as far as the job can spare or replace them. */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"

/* ---- Hosts ---- */

/* Returns whether the rank lives, was not asked to leave, and is a member;
 * before the first generation every rank counts as one. */
static int works(const struct job *job, int rank)
{
    const struct generations *g = &job->elastic->generations;

    return g->ranks[rank].life == GENERATIONS_LIVES &&
           !job->elastic->leaving[rank].why &&
           (g->ranks[rank].member || g->number == 0);
}

static int count_working(const struct job_host *host)
{
    int count = 0;

    for (int i = 0; i < host->plan->count; i++)
        count += works(host->job, host->plan->ranks[i]);
    return count;
}

/* Returns whether listed hosts have spares that are ready. */
static int have_spares(const struct job *job)
{
    const struct generations *g = &job->elastic->generations;
    const struct plan *plan = job->config->plan;

    if (!generations_have_spares(g))
        return 0;
    for (int i = 0; i < plan->size; i++)
        if (g->ranks[i].life == GENERATIONS_LIVES && !g->ranks[i].member &&
            g->ranks[i].phase == GENERATIONS_READY &&
            job->hosts[plan->ranks[i].host].is_listed)
            return 1;
    return 0;
}

/* Asks the ranks of a host that is no longer listed to leave. */
static void withdraw(struct job_host *host)
{
    char *why = hb_xasprintf("host %s goes (no longer listed)", host->name);

    if (elastic_leave_host(host, -1, why) == 0)
        host->is_withdrawn = 1;
    elastic_end_unused(host);
    hb_free(why);
}

/* Withdraws the hosts that are no longer listed.  If no member would be left,
 * one of them is kept until other hosts have members, or spares that can take
 * over.  An empty list changes nothing. */
static void withdraw_hosts(struct job *job)
{
    int working = 0, spares = have_spares(job);

    job->elastic->grow->keeps = 0;
    if (job->elastic->grow->offered.count == 0)
        return;
    for (int rank = 0; rank < job->config->plan->size; rank++)
        working += works(job, rank);
    for (int i = 0; i < job->config->plan->host_count && elastic_grows(job);
         i++) {
        struct job_host *host = &job->hosts[i];
        int here = count_working(host);

        if (host->is_listed || host->is_withdrawn || job_host_finished(host))
            continue;
        if (here > 0 && here == working && !spares) {
            job->elastic->grow->keeps = 1;
            continue;
        }
        working -= here;
        withdraw(host);
    }
}

/* ---- Slots ---- */

/* Returns whether the rank runs or waits for a restart, and was not asked to
 * leave. */
static int stays(const struct job *job, int rank)
{
    enum generations_life life = job->elastic->generations.ranks[rank].life;

    return (life == GENERATIONS_LIVES || life == GENERATIONS_PENDING) &&
           !job->elastic->leaving[rank].why;
}

/* Lists the host's ranks that stay in the order in which they may leave: spares
 * first, and higher numbers first.  Returns how many there are. */
static int list_staying(const struct job_host *host, int *ranks)
{
    const struct job *job = host->job;
    int count = 0;

    for (int takes = 0; takes < 2; takes++)
        for (int i = host->plan->count - 1; i >= 0; i--) {
            int rank = host->plan->ranks[i];

            if (stays(job, rank) && works(job, rank) == takes)
                ranks[count++] = rank;
        }
    return count;
}

/* Returns whether these ranks may leave: enough others stay, or enough slots
 * are offered to replace them. */
static int may_leave(const struct job *job, const int *ranks, int count)
{
    const struct generations *g = &job->elastic->generations;
    const struct hostlist *offered = &job->elastic->grow->offered;
    int64_t slots = 0;

    for (size_t i = 0; i < offered->count; i++)
        slots += elastic_slots(&offered->entries[i]);
    return slots >= job->config->min_np
               ? generations_can_remove(g, ranks, count)
               : generations_can_spare(g, ranks, count);
}

/* Asks the ranks in excess of the host's slots to leave, or as many of them as
 * may. */
static void withdraw_slots(struct job_host *host)
{
    struct job *job = host->job;
    int *ranks = hb_xcalloc((size_t)host->plan->count + 1, sizeof(*ranks));
    int surplus = list_staying(host, ranks) - host->slots, count = surplus;
    char *why = hb_xasprintf("host %s has %d slot%s now", host->name,
                             host->slots, host->slots == 1 ? "" : "s");

    while (count > 0 && !may_leave(job, ranks, count))
        count--;
    if (count > 0 && job_remove_ranks(job, ranks, count, -1, why) == 0) {
        for (int i = 0; i < count; i++)
            job->elastic->leaving[ranks[i]].with_slot = 1;
        job_say(job, "%s: %d rank%s at the next commit", why, count,
                count > 1 ? "s leave" : " leaves");
        surplus -= count;
    }
    host->has_fewer_slots = surplus > 0;
    hb_free(why);
    hb_free(ranks);
}

void elastic_withdraw(struct job *job)
{
    withdraw_hosts(job);
    for (int i = 0; i < job->config->plan->host_count && elastic_grows(job);
         i++) {
        struct job_host *host = &job->hosts[i];

        if (host->is_listed && host->has_fewer_slots &&
            host->state == HOST_STARTED && !elastic_host_goes(host))
            withdraw_slots(host);
    }
}
