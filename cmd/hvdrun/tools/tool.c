/* SPDX-License-Identifier: Apache-2.0 */
/* See tool.h. */
#include "cmd/hvdrun/tools/tool.h"

#include "cmd/hvdrun/host_plan.h"
#include "cmd/hvdrun/reach.h"
#include "cmd/hvdrun/run_job.h"
#include "lib/base/alloc.h"
#include "lib/hosts/hostfold.h"
#include "lib/job/job.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/query.h"
#include "lib/remote/remote.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROGRESS_NAMES_MAX = 60 };

/* ---- Hosts ---- */

static int find_hosts(struct tool *t, struct hb_error *err)
{
    char hostname[HOST_NAME_MAX + 1] = "localhost";
    struct host_origin from;
    int rc;

    gethostname(hostname, sizeof(hostname) - 1);
    rc = host_plan_read(t->options, hostname, t->log, &t->hosts, &from, err);
    hb_free(from.name);
    if (rc < 0)
        return rc;
    t->is_local = hb_xcalloc(t->hosts.count, 1);
    for (size_t i = 0; i < t->hosts.count; i++)
        t->is_local[i] =
            (unsigned char)reach_is_local(&t->hosts.entries[i], hostname);
    return 0;
}

/* ---- Progress on a terminal ---- */

static void clear_progress(struct tool *t)
{
    if (t->shown)
        (void)!write(2, "\r\033[K", 4);
    t->shown = 0;
}

static void on_progress(void *arg)
{
    struct tool *t = arg;
    const struct survey *s = t->survey;
    size_t total = s ? s->config.count : 0, count = 0;
    const char **names;
    char *list, *line;

    if (!t->progress || total < 2)
        return;
    names = hb_xcalloc(total, sizeof(*names));
    for (size_t i = 0; i < total; i++)
        if (s->hosts[i].state == SURVEY_CONNECTING ||
            s->hosts[i].state == SURVEY_ASKED)
            names[count++] = s->hosts[i].name;
    list = hostfold(names, count);
    line =
        hb_xasprintf("\r\033[K%zu/%zu hosts%s%.*s", total - count, total,
                     count ? ", waiting for " : "", PROGRESS_NAMES_MAX, list);
    (void)!write(2, line, strlen(line));
    t->shown = 1;
    hb_free(line);
    hb_free(list);
    hb_free(names);
}

/* ---- Signals ---- */

/* Ends the tool; a second signal takes its default action. */
static void on_signal(void *arg, const struct signalfd_siginfo *info)
{
    struct tool *t = arg;

    t->exit_code = 128 + (int)info->ssi_signo;
    main_loop_unblock(&t->main);
    tool_end(t);
}

/* ---- The survey ---- */

static void on_settled(void *arg)
{
    struct tool *t = arg;

    clear_progress(t);
    t->step(t);
}

static void on_closed(void *arg)
{
    struct tool *t = arg;

    clear_progress(t);
    main_loop_stop(&t->main);
}

static int open_remote(struct tool *t, struct hb_error *err)
{
    size_t remote = 0;

    for (size_t i = 0; i < t->hosts.count; i++)
        remote += !t->is_local[i];
    return remote ? main_loop_reach(&t->main, t->options, t->agent_path, t->log,
                                    err)
                  : 0;
}

static void open_survey(struct tool *t)
{
    struct survey_config config = {
        .loop = &t->main.loop,
        .log = t->log,
        .remote = t->main.remote,
        .agent_path = t->agent_path,
        .entries = t->hosts.entries,
        .is_local = t->is_local,
        .count = t->hosts.count,
        .start_timeout_ms = t->options->start_timeout_ms,
        .on_settled = on_settled,
        .on_closed = on_closed,
        .on_frame = t->on_frame,
        .on_lost = t->on_lost,
        .on_progress = on_progress,
        .arg = t,
    };

    t->survey = survey_open(&config);
    if (t->main.remote) /* no host is reached a second time */
        remote_release_keys(t->main.remote);
    on_progress(t);
}

void tool_end(struct tool *t)
{
    survey_close(t->survey);
}

static int run_loop(struct tool *t, struct hb_error *err)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    int rc;

    t->exit_code = JOB_EXIT_LAUNCHER;
    rc = main_loop_open(&t->main, signals, sizeof(signals) / sizeof(signals[0]),
                        on_signal, t, err);
    if (rc < 0)
        return rc;
    rc = open_remote(t, err);
    if (rc == 0) {
        t->exit_code = 0;
        open_survey(t);
    } else {
        t->exit_code = EXIT_USAGE;
        main_loop_stop(&t->main);
    }
    main_loop_run(&t->main);
    return rc;
}

int tool_run(struct tool *t)
{
    struct hb_error err = HB_ERROR_INIT;

    signal(SIGPIPE, SIG_IGN);
    t->progress = isatty(2);
    t->exit_code = EXIT_USAGE;
    t->agent_path = reach_agent_path(t->options, &err);
    if (!t->agent_path || find_hosts(t, &err) < 0 || run_loop(t, &err) < 0)
        hb_log(t->log, HB_LOG_ERROR, "%s", err.text);
    return t->exit_code;
}

void tool_fini(struct tool *t)
{
    survey_free(t->survey);
    main_loop_fini(&t->main);
    hostlist_free(&t->hosts);
    hb_free(t->is_local);
    hb_free(t->agent_path);
}

void tool_ask_all(struct tool *t, const json_t *question, int64_t timeout_ms)
{
    for (size_t i = 0; i < t->hosts.count; i++)
        survey_ask(t->survey, i, question, timeout_ms);
}

/* ---- What went wrong ---- */

/* Returns "host NAME: text" for a host that was lost or whose answer is an
 * error, a heap string; NULL if it answered. */
static char *host_error(const struct tool *t, size_t host)
{
    const struct survey_host *h = &t->survey->hosts[host];
    const char *text = h->error.text;

    if (h->state != SURVEY_LOST)
        text = query_string(h->answer, "error");
    if (!*text)
        return NULL;
    return hb_xasprintf("host %s: %s", h->name, text);
}

size_t tool_log_errors(const struct tool *t)
{
    size_t count = 0;

    for (size_t i = 0; i < t->hosts.count; i++) {
        char *text = host_error(t, i);

        if (text)
            hb_log(t->log, HB_LOG_ERROR, "%s", text);
        count += text != NULL;
        hb_free(text);
    }
    return count;
}

json_t *tool_errors_json(const struct tool *t)
{
    json_t *list = json_array();

    for (size_t i = 0; i < t->hosts.count; i++) {
        char *text = host_error(t, i);

        if (text)
            json_array_append_new(
                list, json_pack("{s:o, s:o}", "host",
                                query_text(t->survey->hosts[i].name), "error",
                                query_text(text)));
        hb_free(text);
    }
    return list;
}

/* ---- Output ---- */

int tool_print(const struct tool *t, char *text)
{
    int rc = 0;

    if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
        hb_log(t->log, HB_LOG_ERROR, "write to stdout: %s", strerror(errno));
        rc = JOB_EXIT_LAUNCHER;
    }
    hb_free(text);
    return rc;
}

int tool_print_json(const struct tool *t, json_t *value)
{
    /* JSON_ENSURE_ASCII: strings from hosts must not control the terminal. */
    char *text =
        json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    char *line = hb_xasprintf("%s\n", text);

    hb_free(text);
    json_decref(value);
    return tool_print(t, line);
}
