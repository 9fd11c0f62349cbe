/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the hosts for `ps`, `kill`, `drain` and `clean`; see jobs.h. */
#include "cmd/hvdrun/tools/jobs.h"

#include "cmd/hvdrun/run_job.h"
#include "cmd/hvdrun/tools/tool.h"
#include "lib/base/alloc.h"
#include "lib/job/job.h"
#include "lib/protocol/query.h"

#include <string.h>

enum { END_MARGIN_MS = 10000 }; /* after the grace time: rounds of SIGKILL */

struct jobs {
    int steps;
    struct hb_strv ids;      /* kill: jobs to end */
    struct hb_error trouble; /* why they could not be found */
};

static struct jobs_answer *answers_of(const struct tool *t)
{
    struct jobs_answer *a = hb_xcalloc(t->hosts.count + 1, sizeof(*a));

    for (size_t i = 0; i < t->hosts.count; i++)
        a[i] = (struct jobs_answer){t->survey->hosts[i].name,
                                    t->survey->hosts[i].answer};
    return a;
}

/* Logs hosts that could not be asked; they make the exit code 125. */
static int end_code(const struct tool *t, int rc)
{
    return tool_log_errors(t) > 0 && rc == 0 ? JOB_EXIT_LAUNCHER : rc;
}

/* ---- ps ---- */

static void ps_step(struct tool *t)
{
    struct jobs *jobs = t->arg;
    json_t *question;

    if (jobs->steps++ > 0) {
        tool_end(t);
        return;
    }
    question = json_pack("{s:s}", "what", "ps");
    tool_ask_all(t, question, t->options->start_timeout_ms);
    json_decref(question);
}

static int ps_print(const struct tool *t)
{
    struct jobs_answer *answers = answers_of(t);
    struct hb_buf text = HB_BUF_INIT;
    int rc;

    if (t->options->json) {
        rc = tool_print_json(t, json_pack("{s:o, s:o}", "jobs",
                                          jobs_json(answers, t->hosts.count),
                                          "errors", tool_errors_json(t)));
    } else {
        jobs_table(answers, t->hosts.count, &text);
        rc = tool_print(t, hb_xstrdup(hb_buf_data(&text)));
    }
    hb_buf_free(&text);
    hb_free(answers);
    return end_code(t, rc);
}

int jobs_ps(const struct options *o, const struct hb_log *log)
{
    struct jobs jobs = {.ids = HB_STRV_INIT};
    struct tool t = {.options = o, .log = log, .step = ps_step, .arg = &jobs};
    int rc = tool_run(&t);

    if (rc == 0)
        rc = ps_print(&t);
    tool_fini(&t);
    return rc;
}

/* ---- kill ---- */

static json_t *ids_on(const struct survey_host *h, const struct hb_strv *ids)
{
    json_t *here = json_array(), *job;
    size_t i;

    json_array_foreach(
        json_object_get(h->answer, "jobs"), i,
        job) for (size_t k = 0; k < ids->count;
                  k++) if (strcmp(query_string(job, "id"), ids->items[k]) == 0)
        json_array_append_new(here, json_string(ids->items[k]));
    return here;
}

/* Asks all hosts of a job at once, so that processes which have lost their
 * hvdrun or agent end, too. */
static void kill_ask(struct tool *t)
{
    const struct options *o = t->options;
    struct jobs *jobs = t->arg;
    size_t asked = 0;

    for (size_t i = 0; i < t->hosts.count; i++) {
        json_t *here = ids_on(&t->survey->hosts[i], &jobs->ids);
        json_t *question =
            json_pack("{s:s, s:O, s:I}", "what", "kill", "jobs", here,
                      "grace_ms", (json_int_t)o->spec.grace_ms);

        if (json_array_size(here) > 0) {
            survey_ask(t->survey, i, question,
                       o->spec.grace_ms + END_MARGIN_MS);
            asked++;
        }
        json_decref(question);
        json_decref(here);
    }
    if (asked == 0)
        survey_settle(t->survey);
}

static void kill_step(struct tool *t)
{
    struct jobs *jobs = t->arg;
    struct jobs_answer *answers;
    int rc;

    if (jobs->steps < 1) {
        ps_step(t);
        return;
    }
    if (jobs->steps++ > 1) {
        tool_end(t);
        return;
    }
    answers = answers_of(t);
    rc = jobs_match(answers, t->hosts.count,
                    t->options->all ? NULL : &t->options->command, &jobs->ids,
                    &jobs->trouble);
    hb_free(answers);
    if (rc < 0)
        tool_end(t);
    else
        kill_ask(t);
}

static int kill_print(const struct tool *t)
{
    const struct jobs *jobs = t->arg;
    struct jobs_answer *answers;
    struct hb_buf text = HB_BUF_INIT;
    size_t left = 0, errors = tool_log_errors(t);
    int rc;

    if (jobs->trouble.status) {
        hb_log(t->log, HB_LOG_ERROR, "kill: %s", jobs->trouble.text);
        if (jobs->trouble.status != -HVD_ENOENT)
            return EXIT_USAGE;
        return errors ? JOB_EXIT_LAUNCHER : JOBS_EXIT_NONE;
    }
    answers = answers_of(t);
    for (size_t i = 0; i < t->hosts.count; i++)
        left += jobs_ended(&answers[i], 0, &text);
    hb_free(answers);
    rc = tool_print(t, hb_xstrdup(hb_buf_data(&text)));
    hb_buf_free(&text);
    return rc == 0 && (left || errors) ? JOB_EXIT_LAUNCHER : rc;
}

int jobs_kill(const struct options *o, const struct hb_log *log)
{
    struct jobs jobs = {.ids = HB_STRV_INIT, .trouble = HB_ERROR_INIT};
    struct tool t = {.options = o, .log = log, .step = kill_step, .arg = &jobs};
    int rc = tool_run(&t);

    if (rc == 0)
        rc = kill_print(&t);
    hb_strv_free(&jobs.ids);
    tool_fini(&t);
    return rc;
}

/* ---- drain ---- */

static void drain_step(struct tool *t)
{
    const struct options *o = t->options;
    struct jobs *jobs = t->arg;
    json_t *question;

    if (jobs->steps++ > 0) {
        tool_end(t);
        return;
    }
    question = json_pack("{s:s, s:s, s:I}", "what", "drain", "job",
                         o->job ? o->job : "", "within_ms",
                         (json_int_t)(o->within_ms > 0 ? o->within_ms : -1));
    tool_ask_all(t, question, o->start_timeout_ms);
    json_decref(question);
}

static int drain_print(const struct tool *t)
{
    struct jobs_answer *answers = answers_of(t);
    struct hb_buf text = HB_BUF_INIT;
    size_t staying = 0;
    int rc, none;

    for (size_t i = 0; i < t->hosts.count; i++)
        staying += jobs_drained(&answers[i], &text);
    hb_free(answers);
    none = hb_buf_len(&text) == 0;
    rc = tool_print(t, hb_xstrdup(hb_buf_data(&text)));
    hb_buf_free(&text);
    rc = end_code(t, rc);
    if (rc == 0 && none)
        hb_log(t->log, HB_LOG_ERROR, "drain: no job of yours runs there");
    return rc == 0 && (none || staying) ? JOBS_EXIT_NONE : rc;
}

int jobs_drain(const struct options *o, const struct hb_log *log)
{
    struct jobs jobs = {.ids = HB_STRV_INIT};
    struct tool t = {
        .options = o, .log = log, .step = drain_step, .arg = &jobs};
    int rc = tool_run(&t);

    if (rc == 0)
        rc = drain_print(&t);
    tool_fini(&t);
    return rc;
}

/* ---- clean ---- */

static void clean_step(struct tool *t)
{
    const struct options *o = t->options;
    struct jobs *jobs = t->arg;
    json_t *question;

    if (jobs->steps++ > 0) {
        tool_end(t);
        return;
    }
    question = json_pack("{s:s, s:b, s:I}", "what", "clean", "dry_run",
                         o->dry_run, "grace_ms", (json_int_t)o->spec.grace_ms);
    tool_ask_all(t, question, o->spec.grace_ms + END_MARGIN_MS);
    json_decref(question);
}

static int clean_print(const struct tool *t)
{
    struct jobs_answer *answers = answers_of(t);
    struct hb_buf text = HB_BUF_INIT;
    int dry = t->options->dry_run, rc;
    size_t left = 0;

    for (size_t i = 0; i < t->hosts.count; i++) {
        left += jobs_ended(&answers[i], dry, &text);
        jobs_removed(&answers[i], dry, &text);
    }
    hb_free(answers);
    rc = tool_print(t, hb_xstrdup(hb_buf_data(&text)));
    hb_buf_free(&text);
    return end_code(t, rc == 0 && left ? JOB_EXIT_LAUNCHER : rc);
}

int jobs_clean(const struct options *o, const struct hb_log *log)
{
    struct jobs jobs = {.ids = HB_STRV_INIT};
    struct tool t = {
        .options = o, .log = log, .step = clean_step, .arg = &jobs};
    int rc = tool_run(&t);

    if (rc == 0)
        rc = clean_print(&t);
    tool_fini(&t);
    return rc;
}
