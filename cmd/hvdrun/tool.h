/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ps, kill, clean and doctor have in common: the hosts, the loop, the
 * signals, and a survey that goes from step to step.
 *
 *     struct tool t = {.options = o, .log = log, .step = ask, .arg = me};
 *     rc = tool_run(&t);          calls step in every settled round, until
 *                                 one of them calls tool_end
 *     ... t.survey->hosts holds what was found ...
 *     tool_fini(&t);
 */
#ifndef HVDRUN_TOOL_H
#define HVDRUN_TOOL_H

#include "cmd/hvdrun/options.h"
#include "lib/job/survey.h"

#include <signal.h>

struct tool {
    const struct options *options;
    const struct hb_log *log;
    void (*step)(struct tool *t);
    int (*on_frame)(struct tool *t, size_t host, const struct frame *f,
                    struct hb_error *err);        /* NULL: none expected */
    void (*on_lost)(struct tool *t, size_t host); /* may be NULL */
    void *arg;

    struct hostlist hosts;
    unsigned char *is_local; /* [hosts.count] */
    struct survey *survey;

    /* its own */
    char *agent_path, *plugin_dir;
    struct remote_options remote_options;
    struct remote *remote;
    uv_loop_t loop;
    uv_poll_t signal_poll;
    int signal_fd;
    sigset_t signals;
    int progress, shown;
    int exit_code;
};

/* 0 when it went through; else hvdrun's exit code, what is wrong being
 * told: 2 for a host list that is none, 125, 128+n for signal n. */
int tool_run(struct tool *t);
void tool_end(struct tool *t);
void tool_fini(struct tool *t);

/* Asks every host that is there. */
void tool_ask_all(struct tool *t, const json_t *question, int64_t timeout_ms);

/* The error of a lost host, or of one whose answer is an error, as "host
 * NAME: text": a heap string, or NULL when it answered. */
char *tool_host_error(const struct tool *t, size_t host);
/* Logs those; how many there were. */
size_t tool_log_errors(const struct tool *t);
/* [{"host", "error"}] */
json_t *tool_errors_json(const struct tool *t);

/* Writes text to stdout: 0, or 125 with a line on stderr.  Takes both. */
int tool_print(const struct tool *t, char *text);
int tool_print_json(const struct tool *t, json_t *value);

#endif
