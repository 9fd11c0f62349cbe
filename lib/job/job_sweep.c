/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second connection to a host whose agent was lost while the ranks ran.
 *
 * Usually the agent, or the guardian above it, has seen the first connection
 * end, and ends the ranks.  If both were killed at once, processes that the
 * ranks had started live on.  So another agent is started there, as `hvdrun
 * kill` does, and asked to end the processes that bear the job's mark.  The job
 * ends when that is done, or failed, or takes too long; the user is then told
 * on which hosts, why, and which command to use.
 *
 * A local host needs none of that: hvdrun is a subreaper.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/hosts/hostfold.h"
#include "lib/job/output/xbuf.h"
#include "lib/job/survey.h"
#include "lib/protocol/query.h"
#include "lib/remote/remote.h"

enum {
    /* Time to connect again: this, and twice what the first time took. */
    SWEEP_REACH_MS = 2000,
    SWEEP_REACH_MOST_MS = 10000,
    /* Time beyond the grace time, for the agent's rounds of SIGKILL. */
    SWEEP_END_MS = 5000,
};

/* ---- Results ------------------------------------------------------------- */

/* Ends the sweep of a host.  Keeps `text` for the end of the job; "": nothing
 * to report. */
static void finish(struct job_host *host, int failed, const char *text)
{
    struct job *job = host->job;

    if (host->swept)
        return;
    host->swept = 1;
    host->sweep_failed = failed;
    if (text[0]) {
        host->sweep_text = hb_xstrdup(text);
        /* part of it may come from the host */
        hb_text_sanitize(host->sweep_text);
    }
    hb_log(job->config->log, HB_LOG_DEBUG, "host %s: second connection: %s",
           host->name, text[0] ? text : "nothing was left");
    job->sweeping--;
    survey_close(host->sweep);
}

static void fail(struct job_host *host, const char *why)
{
    char *text = hb_xasprintf("what the job may have left there could not be "
                              "ended: %s",
                              why);

    finish(host, 1, text);
    hb_free(text);
}

/* Takes the answer to `kill`; the first of its jobs is ours. */
static void take_answer(struct job_host *host, const json_t *answer)
{
    const json_t *one = json_array_get(json_object_get(answer, "ended"), 0);
    json_int_t count = query_int(one, "processes", 0);
    json_int_t left = query_int(one, "left", 0);
    const char *trouble = query_string(answer, "error");
    char *text = NULL;

    if (!one) {
        fail(host, trouble[0] ? trouble : "its answer makes no sense");
        return;
    }
    if (left > 0)
        text = hb_xasprintf("%lld process%s of the job could not be ended",
                            (long long)left, left == 1 ? "" : "es");
    else if (query_true(one, "found") && !query_true(one, "had_agent"))
        text = hb_xasprintf("ended %lld process%s that the job had left there",
                            (long long)count, count == 1 ? "" : "es");
    finish(host, left > 0, text ? text : "");
    hb_free(text);
}

/* ---- The connection ------------------------------------------------------ */

static json_t *question(const struct job_config *config)
{
    return json_pack("{s:s, s:[s], s:I}", "what", "kill", "jobs",
                     config->job_id, "grace_ms",
                     (json_int_t)config->spec.grace_ms);
}

static void fail_to_ask(struct job_host *host, const struct survey_host *h)
{
    char *last = agent_link_last(&h->link), *why;

    if (h->error.status != -HVD_ETIMEOUT)
        why = hb_xasprintf("a second connection failed: %s", h->error.text);
    else if (h->link.phase != AGENT_CONNECTING)
        why = hb_xstrdup("on a second connection the agent did not answer");
    else
        why = hb_xasprintf("a second connection took too long%s", last);
    fail(host, why);
    hb_free(why);
    hb_free(last);
}

static void on_settled(void *arg)
{
    struct job_host *host = arg;
    struct job *job = host->job;
    struct survey_host *h = &host->sweep->hosts[0];
    json_t *ask;

    if (host->swept)
        return;
    if (h->state == SURVEY_LOST) {
        fail_to_ask(host, h);
    } else if (host->sweep_steps++ == 0) {
        ask = question(job->config);
        survey_ask(host->sweep, 0, ask,
                   job->config->spec.grace_ms + SWEEP_END_MS);
        json_decref(ask);
        return;
    } else {
        take_answer(host, h->answer);
    }
    job_check_gone(job);
}

static void on_closed(void *arg)
{
    struct job_host *host = arg;

    survey_free(host->sweep);
    host->sweep = NULL;
    host->job->open_transports--;
    job_check_drained(host->job);
    job_grow_soon(host->job); /* perhaps it may be reached again */
}

void job_sweep(struct job_host *host)
{
    static const unsigned char elsewhere[1] = {0};
    struct job *job = host->job;
    int64_t reach_ms = SWEEP_REACH_MS + 2 * host->reached_ms;
    struct survey_config config = {
        .loop = job->config->loop,
        .log = job->config->log,
        .remote = job->config->remote,
        .agent_path = job->config->agent_path,
        .entries = host->plan->entry,
        .is_local = elsewhere,
        .count = 1,
        .on_settled = on_settled,
        .on_closed = on_closed,
        .arg = host,
    };

    if (!host->was_launched || host->sweep || host->swept ||
        job_host_is_local(host) || job->state >= JOB_DRAINING)
        return;
    if (reach_ms > SWEEP_REACH_MOST_MS)
        reach_ms = SWEEP_REACH_MOST_MS;
    config.start_timeout_ms = reach_ms;
    remote_try_for(job->config->remote, reach_ms);
    job->sweeping++;
    job->open_transports++;
    host->sweep = survey_open(&config);
}

/* ---- The end ------------------------------------------------------------- */

void job_sweep_give_up(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (!host->sweep || host->swept)
            continue;
        survey_cancel(host->sweep);
        fail(host, "there was no time for that");
    }
}

void job_sweep_notice(struct job *job)
{
    int count = job->config->plan->host_count;
    const char **names = hb_xcalloc((size_t)count, sizeof(*names));
    size_t n = 0;

    for (int i = 0; i < count; i++)
        if (job->hosts[i].sweep && !job->hosts[i].swept)
            names[n++] = job->hosts[i].name;
    if (n > 0) {
        char *folded = hostfold(names, n);

        job_say(job,
                "connecting again to host%s %s, where the agent was lost, to "
                "end what the job may have left there",
                n == 1 ? "" : "s", folded);
        hb_free(folded);
    }
    hb_free((void *)names);
}

/* Reports what was swept; hosts with the same result share a line. */
void job_sweep_report(struct job *job)
{
    int count = job->config->plan->host_count;
    struct report_trouble *troubles =
        hb_xcalloc((size_t)count, sizeof(*troubles));
    const char **names = hb_xcalloc((size_t)count, sizeof(*names));
    struct hb_buf text = HB_BUF_INIT;
    size_t n = 0, failed = 0;

    for (int i = 0; i < count; i++) {
        const struct job_host *host = &job->hosts[i];

        if (!host->sweep_text)
            continue;
        troubles[n++] =
            (struct report_trouble){.host = i, .text = host->sweep_text};
        if (host->sweep_failed)
            names[failed++] = host->name;
    }
    report_troubles(&text, "hvdrun: ", job->config->plan, troubles, n);
    if (failed > 0) {
        char *folded = hostfold(names, failed);

        hb_must(hb_buf_printf(&text,
                              "hvdrun: when %s be reached, end what is left "
                              "with: hvdrun clean -H '%s'\n",
                              failed == 1 ? "the host can" : "the hosts can",
                              folded));
        hb_free(folded);
    }
    job_message(job, &text);
    hb_buf_free(&text);
    hb_free(troubles);
    hb_free((void *)names);
}

void job_sweep_free(struct job_host *host)
{
    hb_free(host->sweep_text);
    host->sweep_text = NULL;
}
