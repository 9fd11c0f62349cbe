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

#include "cmd/hvdrun/main_loop.h"
#include "cmd/hvdrun/options/options.h"
#include "lib/job/survey.h"

struct tool {
    const struct options *options;
    const struct hb_log *log;
    void (*step)(struct tool *t);
    /* as in struct survey_config; their argument is the tool */
    int (*on_frame)(void *tool, size_t host, const struct frame *f,
                    struct hb_error *err);
    void (*on_lost)(void *tool, size_t host);
    void *arg;

    struct hostlist hosts;
    unsigned char *is_local; /* [hosts.count] */
    struct survey *survey;

    /* private */
    char *agent_path;
    struct main_loop main;
    int progress, shown;
    int exit_code;
};

/* Runs the steps.  0 if all went through; else hvdrun's exit code, after a
 * message: 2 for a bad host list, 125, 128+n for signal n. */
int tool_run(struct tool *t);
void tool_end(struct tool *t);
void tool_fini(struct tool *t);

/* Sends `question` to every connected host. */
void tool_ask_all(struct tool *t, const json_t *question, int64_t timeout_ms);

/* Logs the hosts' errors; returns how many there were. */
size_t tool_log_errors(const struct tool *t);
/* Returns a new array of {"host", "error"}. */
json_t *tool_errors_json(const struct tool *t);

/* Writes to stdout and releases the argument.  0, or 125 with a line on
 * stderr. */
int tool_print(const struct tool *t, char *text);
int tool_print_json(const struct tool *t, json_t *value);

#endif
