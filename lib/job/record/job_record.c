/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's part of --report: notes what happens in a job, and writes the files
 * at its end; --http and --status show it while it runs.  In a job without
 * these, all functions do nothing.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"
#include "lib/job/record/record_file.h"

#include <signal.h>
#include <string.h>

struct job_record {
    struct record record;
    uint64_t start_ns; /* our monotonic clock at time 0 */
    int is_written;
};

/* Converts our monotonic clock to the record's; never before its start. */
static int64_t time_of(const struct job_record *jr, uint64_t when_ns)
{
    return when_ns > jr->start_ns ? (int64_t)(when_ns - jr->start_ns) : 0;
}

static int64_t now(const struct job_record *jr)
{
    return time_of(jr, hb_now_ns());
}

/* Returns the record's index of the host, which mostly is the plan's. */
static int index_of(const struct job_host *host)
{
    struct record *r = &host->job->record->record;

    if (host->index < r->host_count &&
        strcmp(r->hosts[host->index].name, host->name) == 0)
        return host->index;
    return record_host(r, host->name);
}

/* ---- Start and end ---- */

static void add_plan(struct record *r, const struct job_config *config)
{
    const struct plan *plan = config->plan;

    for (int i = 0; i < plan->host_count; i++) {
        const struct plan_host *h = &plan->hosts[i];
        int at = record_host(r, h->entry->name);

        r->hosts[at].slots = h->entry->slots;
        r->hosts[at].is_local =
            !config->host_is_local || config->host_is_local[i];
        for (int k = 0; k < h->count; k++) {
            record_place(r, h->ranks[k], at, k);
            r->ranks[h->ranks[k]].is_planned =
                !plan->ranks[h->ranks[k]].is_idle;
        }
    }
}

static size_t report_count(const struct job *job)
{
    return job->config->reports ? job->config->reports->count : 0;
}

int job_record_open(struct job *job, struct hb_error *err)
{
    const struct job_config *config = job->config;
    struct job_record *jr;

    if (report_count(job) == 0 && !config->http && !config->status)
        return 0;
    for (size_t i = 0; i < report_count(job); i++) {
        const char *path = config->reports->items[i];

        if (config->timeline && strcmp(path, config->timeline) == 0)
            return hb_error_set(err, HVD_EINVAL,
                                "--report %s: this is the file of the timeline",
                                path);
        if (record_file_check(path, config->job_id, err) < 0)
            return hb_error_context(err, "--report %s", path);
    }
    jr = hb_xcalloc(1, sizeof(*jr));
    jr->start_ns = hb_now_ns();
    record_init(&jr->record, config->plan->size);
    jr->record.wall_ns = hb_wall_ns();
    memcpy(jr->record.job_id, config->job_id, sizeof(jr->record.job_id));
    for (size_t i = 0; i < config->argv.count; i++)
        hb_must(hb_strv_add(&jr->record.argv, config->argv.items[i]));
    jr->record.cwd = config->cwd ? hb_xstrdup(config->cwd) : NULL;
    add_plan(&jr->record, config);
    job->record = jr;
    return 0;
}

void job_record_free(struct job *job)
{
    if (!job->record)
        return;
    record_fini(&job->record->record);
    hb_free(job->record);
    job->record = NULL;
}

static void find_culprit(struct job *job, struct record *r)
{
    const struct control_exited *m = job_culprit(job);

    if (m)
        record_culprit(r, m->rank, m->stderr_tail);
}

/* Sets the cause of a job that ends without a report of a failure. */
static char *signal_cause(const struct job *job, int signo)
{
    struct hb_buf out = HB_BUF_INIT;
    char name[HB_SIGNAL_NAME_MAX], *text;

    hb_must(
        hb_buf_printf(&out, "%s ended the job", hb_signal_name(signo, name)));
    job_deadline_note(job, &out);
    text = hb_xstrdup(hb_buf_data(&out));
    hb_buf_free(&out);
    return text;
}

static void find_cause(const struct job *job, struct record *r)
{
    if (r->cause || r->exit_code == 0)
        return;
    if (job->silent && r->exit_code == 128 + SIGPIPE)
        r->cause = hb_xstrdup("nobody reads hvdrun's output any more");
    else if (job->silent)
        r->cause = signal_cause(job, r->exit_code - 128);
    else if (r->exit_code == JOB_EXIT_STOPPED)
        r->cause = hb_xstrdup("all ranks have stopped at a commit, as asked");
    else if (job->output_failed)
        r->cause = hb_xstrdup("the output of the ranks was not written");
}

void job_record_end(struct job *job)
{
    struct job_record *jr = job->record;
    int exit_code = job_exit_code(job);

    if (!jr || jr->is_written || exit_code == JOB_EXIT_SAME_HOST)
        return;
    jr->is_written = 1;
    record_reach(&jr->record, RECORD_ENDED, now(jr));
    jr->record.exit_code = exit_code;
    jr->record.stats = job_trace_sum(job);
    find_culprit(job, &jr->record);
    find_cause(job, &jr->record);
    for (size_t i = 0; i < report_count(job); i++) {
        struct hb_error err = HB_ERROR_INIT;
        const char *path = job->config->reports->items[i];

        if (record_file_write(path, &jr->record, &err) < 0)
            job_say(job, "report %s was not written: %s", path, err.text);
    }
    jr->record.stats = NULL;
}

void job_record_view(const struct job *job, struct record *view)
{
    const struct job_record *jr = job->record;

    *view = jr->record;
    view->is_running = !jr->is_written;
    view->now_ns = now(jr);
    view->stats = job_trace_sum(job);
}

/* ---- What happens ---- */

void job_record_state(struct job *job)
{
    static const int phases[JOB_STATE_COUNT] = {
        [JOB_ROUTING] = RECORD_CONNECTED, [JOB_LAUNCHING] = RECORD_ROUTED,
        [JOB_RUNNING] = RECORD_STARTED,   [JOB_ENDING] = RECORD_ENDING,
        [JOB_DRAINING] = RECORD_ENDING,
    };
    struct job_record *jr = job->record;

    if (!jr || job->state < JOB_ROUTING || job->state > JOB_DRAINING)
        return;
    record_reach(&jr->record, (enum record_phase)phases[job->state], now(jr));
}

void job_record_reached(const struct job_host *host,
                        const struct control_hello *m)
{
    struct job_record *jr = host->job->record;
    struct record_host *h;

    if (!jr)
        return;
    h = &jr->record.hosts[index_of(host)];
    h->is_local = job_host_is_local(host);
    h->is_reached = 1;
    if (h->reached_ns != RECORD_NEVER)
        return;
    h->asked_ns = time_of(jr, host->since_ns);
    h->reached_ns = now(jr);
    h->version = m->version ? hb_xstrdup(m->version) : NULL;
    h->machine = m->cpu ? hb_xstrdup(m->cpu) : NULL;
}

void job_record_trouble(const struct job_host *host, const char *text)
{
    struct job_record *jr = host->job->record;
    struct record_host *h;

    if (!jr)
        return;
    h = &jr->record.hosts[index_of(host)];
    if (h->asked_ns == RECORD_NEVER)
        h->asked_ns = time_of(jr, host->since_ns);
    record_trouble(&jr->record, index_of(host), now(jr), text);
}

void job_record_started(const struct job_host *host, int rank, pid_t pid)
{
    struct job_record *jr = host->job->record;
    struct record_run *run;

    if (!jr)
        return;
    run = record_running(&jr->record, rank);
    if (run) {
        run->pid = pid;
        return;
    }
    record_place(&jr->record, rank, index_of(host),
                 host->job->config->plan->ranks[rank].local_rank);
    record_run_started(&jr->record, rank, pid, now(jr));
}

void job_record_exited(const struct job_host *host,
                       const struct control_exited *m, uint64_t when_ns)
{
    struct job *job = host->job;
    struct job_record *jr = job->record;
    struct hb_buf how = HB_BUF_INIT;
    int ours = job->exited[m->rank] == JOB_RANK_ENDED;
    struct record_run *run;

    if (!jr || !(run = record_running(&jr->record, m->rank)))
        return;
    if (m->pid > 0)
        run->pid = m->pid;
    run->exit_code = m->exit_code;
    run->signal = m->signal;
    hb_must(control_exited_phrase(&how, m));
    record_run_ended(&jr->record, run, time_of(jr, when_ns),
                     ours ? RECORD_BY_HVDRUN : RECORD_ITSELF, hb_buf_data(&how),
                     !ours && m->exit_code ? m->stderr_tail : NULL);
    hb_buf_free(&how);
}

void job_record_lost(const struct job_host *host)
{
    struct job_record *jr = host->job->record;
    char *how;

    if (!jr || host->state != HOST_LOST)
        return;
    how = hb_xasprintf("lost with host %s", host->name);
    for (int i = 0; i < host->plan->count; i++) {
        struct record_run *run =
            record_running(&jr->record, host->plan->ranks[i]);

        if (run)
            record_run_ended(&jr->record, run, now(jr), RECORD_WITH_HOST, how,
                             NULL);
    }
    hb_free(how);
}

void job_record_stats(struct job *job, int rank, const struct worker_stats *m)
{
    if (job->record)
        record_stats(&job->record->record, rank, m);
}

void job_record_counts(struct job *job, int rank, const struct status_counts *c)
{
    if (job->record && record_running(&job->record->record, rank))
        record_counts(&job->record->record, rank, c);
}

void job_record_event(struct job *job, const char *text, size_t len)
{
    if (job->record && len > 0)
        record_event(&job->record->record, now(job->record), text, len);
}

void job_record_report(struct job *job, const char *text)
{
    struct job_record *jr = job->record;

    if (!jr)
        return;
    jr->record.exit_code = job_exit_code(job);
    if (job->silent)
        find_cause(job, &jr->record);
    if (*text)
        record_report(&jr->record, text);
}
