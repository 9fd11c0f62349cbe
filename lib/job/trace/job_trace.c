/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's part of --timeline and --stats: collects what agents send into one
 * file and one table.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/job/trace/job_timeline.h"
#include "lib/job/trace/stats_text.h"

#include <string.h>

struct job_trace {
    struct timeline timeline;
    struct timeline_rank *ranks; /* [size]; NULL: no timeline */
    unsigned char *ended;        /* [size]: the rank's timeline is complete */
    struct stats_sum stats;
    unsigned char *counted; /* [size]: the rank's statistics have come */
};

/* ---- Life ----------------------------------------------------------- */

int job_trace_open(struct job *job, struct hb_error *err)
{
    const struct job_config *config = job->config;
    struct job_trace *t = hb_xcalloc(1, sizeof(*t));
    size_t size = (size_t)config->plan->size;
    int rc = 0;

    t->counted = hb_xcalloc(size, 1);
    if (config->timeline)
        rc = timeline_open(&t->timeline, config->timeline, err);
    if (rc < 0) {
        hb_free(t->counted);
        hb_free(t);
        return hb_error_context(err, "timeline");
    }
    job->trace = t;
    if (!config->timeline)
        return 0;
    t->ranks = hb_xcalloc(size, sizeof(*t->ranks));
    t->ended = hb_xcalloc(size, 1);
    for (size_t r = 0; r < size; r++)
        t->ranks[r].rank = (int)r;
    return 0;
}

void job_trace_free(struct job *job)
{
    struct job_trace *t = job->trace;

    if (!t)
        return;
    for (int r = 0; t->ranks && r < job->config->plan->size; r++)
        timeline_rank_fini(&t->ranks[r]);
    if (t->ranks)
        timeline_close(&t->timeline);
    hb_free(t->ranks);
    hb_free(t->ended);
    stats_sum_fini(&t->stats);
    hb_free(t->counted);
    hb_free(t);
    job->trace = NULL;
}

void job_trace_renew(struct job *job, int rank)
{
    struct job_trace *t = job->trace;

    t->counted[rank] = 0;
    if (!t->ranks)
        return;
    t->ended[rank] = 0;
    t->ranks[rank].has_shift = 0;
}

/* ---- Frames --------------------------------------------------------- */

static int all_ended(const struct job_host *host)
{
    const struct job_trace *t = host->job->trace;

    for (int i = 0; i < host->plan->count; i++)
        if (!t->ended[host->plan->ranks[i]])
            return 0;
    return 1;
}

static void end_of_rank(struct job_host *host, int rank)
{
    struct job_trace *t = host->job->trace;
    const struct offset *clock = job_host_is_local(host) ? NULL : &host->clock;
    int whole;

    timeline_end(&t->timeline, &t->ranks[rank], clock);
    t->ended[rank] = 1;
    if (!all_ended(host))
        return;
    whole = timeline_flush(&t->timeline);
    for (int i = 0; i < host->plan->count; i++)
        whole &= !timeline_is_cut(&t->ranks[host->plan->ranks[i]]);
    job_host_send_u32(host, CONTROL_TRACE_TAKEN, whole ? 1 : 0);
}

/* Adds a rank's bytes to the timeline.  The caller has checked the message: its
 * rank is one of the host's. */
int job_trace_bytes(struct job_host *host, const struct control_bytes *m,
                    struct hb_error *err)
{
    struct job_trace *t = host->job->trace;

    if (!t->ranks || t->ended[m->rank])
        return hb_error_set(err, HVD_EPROTO,
                            "a timeline of rank %d that nobody asked for",
                            m->rank);
    if (m->len == 0)
        end_of_rank(host, m->rank);
    else
        timeline_feed(&t->timeline, &t->ranks[m->rank],
                      job_host_is_local(host) ? NULL : &host->clock, m->bytes,
                      m->len);
    (void)timeline_flush(&t->timeline); /* its failure is reported at the end */
    return 0;
}

int job_trace_stats(struct job_host *host, const struct control_bytes *m,
                    struct hb_error *err)
{
    struct job_trace *t = host->job->trace;
    struct worker_stats stats;

    if (t->counted[m->rank] || worker_stats_read(m->bytes, m->len, &stats) < 0)
        return hb_error_set(err, HVD_EPROTO, "malformed statistics");
    t->counted[m->rank] = 1;
    stats_sum_add(&t->stats, host->job->config->plan, &stats);
    job_record_stats(host->job, m->rank, &stats);
    return 0;
}

const struct stats_sum *job_trace_sum(const struct job *job)
{
    return &job->trace->stats;
}

/* ---- The end -------------------------------------------------------- */

static void tell_missing(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (host->was_launched && !all_ended(host))
            job_say(job,
                    "timeline %s is not complete: not all came from host %s",
                    job->config->timeline, host->name);
    }
}

static void tell_bad(struct job *job)
{
    for (int r = 0; r < job->config->plan->size; r++)
        if (job->trace->ranks[r].bad)
            job_say(job, "timeline: %llu lines of rank %d are no events",
                    (unsigned long long)job->trace->ranks[r].bad, r);
}

static void tell_cut(struct job *job)
{
    const struct job_trace *t = job->trace;

    for (int r = 0; r < job->config->plan->size; r++)
        if (timeline_is_cut(&t->ranks[r]))
            job_say(job,
                    "timeline: what rank %d wrote after its first %llu MiB is "
                    "left out",
                    r, (unsigned long long)(t->ranks[r].bytes >> 20));
}

static void end_timeline(struct job *job)
{
    int e = timeline_close(&job->trace->timeline);

    if (e)
        job_say(job, "timeline %s is not complete: %s", job->config->timeline,
                strerror(e));
    tell_missing(job);
    tell_bad(job);
    tell_cut(job);
}

static int was_launched(const struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (job->hosts[i].was_launched)
            return 1;
    return 0;
}

void job_trace_end(struct job *job)
{
    struct job_trace *t = job->trace;
    struct hb_buf text = HB_BUF_INIT;

    if (t->ranks)
        end_timeline(job);
    if (!job->config->stats || !was_launched(job))
        return;
    stats_text(&text, &t->stats, job->config->plan);
    output_message(job->output, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
}
