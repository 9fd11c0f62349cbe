/* SPDX-License-Identifier: Apache-2.0 */
/* `hvdrun ps`, `kill`, `drain` and `clean`: the agent's part; see query.h. */
#include "lib/agent/query/agent_query.h"

#include "lib/agent/query/account.h"
#include "lib/agent/query/jobend.h"
#include "lib/agent/query/jobscan.h"
#include "lib/agent/trace_dir.h"
#include "lib/base/alloc.h"
#include "lib/protocol/control/control_generation.h"
#include "lib/protocol/query.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COMMAND_MAX = 1024, GRACE_MAX_MS = 86400000 };

/* Returns argv joined by blanks, or the name in brackets, as ps does. */
static json_t *command_of(const struct tree_proc *p)
{
    char path[64], text[COMMAND_MAX];
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)p->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, sizeof(text) - 1);
        close(fd);
    }
    while (n > 0 && text[n - 1] == '\0')
        n--;
    if (n <= 0) {
        snprintf(text, sizeof(text), "[%s]", p->name);
        return query_text(text);
    }
    for (ssize_t i = 0; i < n; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    text[n] = '\0';
    return query_text(text);
}

static json_t *pack_proc(const struct jobscan_proc *p)
{
    char state[2] = {p->proc.state, '\0'};

    return json_pack("{s:i, s:i, s:i, s:b, s:s, s:I, s:I, s:I, s:o}", "pid",
                     (int)p->proc.pid, "ppid", (int)p->proc.ppid, "rank",
                     p->rank, "top", p->top, "state", state, "elapsed_ms",
                     (json_int_t)p->elapsed_ms, "cpu_ms", (json_int_t)p->cpu_ms,
                     "rss_bytes", (json_int_t)p->rss_bytes, "command",
                     command_of(&p->proc));
}

static json_t *pack_job(const struct jobscan_job *job)
{
    json_t *procs = json_array();

    for (size_t i = 0; i < job->count; i++)
        json_array_append_new(procs, pack_proc(&job->procs[i]));
    return json_pack("{s:s, s:i, s:i, s:o}", "id", job->id, "agent",
                     (int)job->agent.pid, "guardian", (int)job->guardian.pid,
                     "procs", procs);
}

static json_t *blind(void)
{
    return json_pack("{s:s}", "error",
                     "/proc is not mounted, or hides processes");
}

json_t *query_ps(void)
{
    struct jobscan s = JOBSCAN_INIT;
    json_t *jobs;

    if (jobscan_read(&s) < 0)
        return blind();
    jobs = json_array();
    for (size_t i = 0; i < s.count; i++)
        json_array_append_new(jobs, pack_job(&s.jobs[i]));
    jobscan_free(&s);
    return json_pack("{s:o, s:o}", "user", account_user(), "jobs", jobs);
}

static int grace_of(const json_t *question)
{
    json_int_t ms = query_int(question, "grace_ms", 0);

    if (ms < 0)
        return 0;
    return ms > GRACE_MAX_MS ? GRACE_MAX_MS : (int)ms;
}

static json_t *end_one(const char *id, int grace_ms)
{
    struct jobend_result r;

    jobend(id, grace_ms, &r);
    return json_pack("{s:o, s:b, s:b, s:I, s:I}", "id", query_text(id), "found",
                     r.found, "had_agent", r.had_agent, "processes",
                     (json_int_t)r.processes, "left", (json_int_t)r.left);
}

json_t *query_kill(const json_t *question)
{
    const json_t *ids = json_object_get(question, "jobs");
    json_t *ended = json_array(), *removed = json_array();
    json_t *id;
    size_t i;

    if (!tree_can_read()) {
        json_decref(ended);
        json_decref(removed);
        return blind();
    }
    json_array_foreach(ids, i, id)
    {
        if (!json_is_string(id))
            continue;
        json_array_append_new(
            ended, end_one(json_string_value(id), grace_of(question)));
        trace_dir_clean("", json_string_value(id), 0, removed);
    }
    return json_pack("{s:o, s:o}", "ended", ended, "removed", removed);
}

/* ---- Hosts that will go ---- */

/* Tells an agent that its host goes: drain() in signals.c. */
static int tell_going(const struct tree_proc *agent, int within_ms)
{
    return agent->pid > 0 && tree_signal_value(agent, SIGUSR1, within_ms);
}

json_t *query_drain(const json_t *question)
{
    json_int_t within_ms = query_int(question, "within_ms", -1);
    const char *id = query_string(question, "job");
    struct jobscan s = JOBSCAN_INIT;
    json_t *drained;

    if (jobscan_read(&s) < 0)
        return blind();
    if (within_ms < 0 || within_ms > CONTROL_LEFT_MAX_MS)
        within_ms = -1;
    drained = json_array();
    for (size_t i = 0; i < s.count; i++) {
        const struct jobscan_job *job = &s.jobs[i];
        int notified;

        if (strncmp(job->id, id, strlen(id)) != 0)
            continue;
        notified = job->is_elastic && tell_going(&job->agent, (int)within_ms);
        json_array_append_new(
            drained, json_pack("{s:s, s:b, s:b}", "id", job->id, "elastic",
                               job->is_elastic, "told", notified));
    }
    jobscan_free(&s);
    return json_pack("{s:o}", "drained", drained);
}

/* ---- What is left over ---- */

static json_t *clean_jobs(const json_t *question, int dry)
{
    struct jobscan s = JOBSCAN_INIT;
    json_t *ended = json_array();

    (void)jobscan_read(&s);
    for (size_t i = 0; i < s.count; i++) {
        const struct jobscan_job *job = &s.jobs[i];

        if (job->agent.pid)
            continue;
        json_array_append_new(
            ended,
            dry ? json_pack("{s:s, s:b, s:b, s:I, s:I}", "id", job->id, "found",
                            1, "had_agent", 0, "processes",
                            (json_int_t)job->count, "left", (json_int_t)0)
                : end_one(job->id, grace_of(question)));
    }
    jobscan_free(&s);
    return ended;
}

json_t *query_clean(const json_t *question)
{
    int dry = query_true(question, "dry_run");
    json_t *ended, *removed;

    if (!tree_can_read())
        return blind();
    ended = clean_jobs(question, dry);
    removed = account_clean("", dry);
    trace_dir_clean("", NULL, dry, removed);
    return json_pack("{s:o, s:o}", "ended", ended, "removed", removed);
}
