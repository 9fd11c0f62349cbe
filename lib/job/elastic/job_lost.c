/* SPDX-License-Identifier: Apache-2.0 */
/* What an elastic job tells about itself: the ranks that it has lost, for the
 * report at its end, and its generation. */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"

/* Deaths that are reported with the rank's last lines. */
enum { ELASTIC_TAILS_MAX = 16 };

void elastic_keep_lost(struct elastic *e, int rank, char *phrase)
{
    if (e->lost_count == e->lost_cap) {
        e->lost_cap = e->lost_cap ? 2 * e->lost_cap : 8;
        e->lost = hb_xrealloc_array(e->lost, e->lost_cap, sizeof(*e->lost));
    }
    e->lost[e->lost_count++] = (struct report_lost){rank, phrase};
}

void elastic_forget_lost(struct elastic *e, int rank)
{
    size_t kept = 0;

    for (size_t i = 0; i < e->lost_count; i++)
        if (e->lost[i].rank == rank)
            hb_free(e->lost[i].phrase);
        else
            e->lost[kept++] = e->lost[i];
    e->lost_count = kept;
}

int job_elastic_generation(const struct job *job)
{
    return job->elastic ? (int)job->elastic->generations.number : -1;
}

void job_elastic_report(struct job *job)
{
    struct elastic *e = job->elastic;
    struct hb_buf text = HB_BUF_INIT;

    if (!e || e->lost_count == 0 || e->has_stopped)
        return;
    report_finish(
        &text, job->config->plan, e->generations.lives[GENERATIONS_FINISHED],
        e->generations.config.size - e->generations.lives[GENERATIONS_ABSENT],
        e->lost, e->lost_count);
    job_message(job, &text);
    hb_buf_free(&text);
}

void elastic_report_failed(struct job *job, const struct control_exited *m)
{
    struct elastic *e = job->elastic;
    struct hb_buf text = HB_BUF_INIT;

    /* What a rank says that fails because of another is not the cause. */
    report_death(&text, job->config->plan, m,
                 !m->blames && e->tails++ < ELASTIC_TAILS_MAX);
    job_message(job, &text);
    hb_buf_free(&text);
}
