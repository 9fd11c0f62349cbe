/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script of the user that is run again and again: --host-discovery-script and
 * --preempt-script.
 *
 * It is a command for /bin/sh.  Its stdin is /dev/null, and its environment is
 * hvdrun's without what belongs to another job or its rank (worker_env.h).  A
 * run ends when the shell does, whoever still holds its stdout or stderr.  All
 * processes of its process group are killed then, so it leaves nothing behind
 * but what has a group of its own.  They are killed, too, when this process
 * dies, if only by SIGKILL.
 *
 * A script that takes longer than limit_ms, or prints more than bytes_max, gets
 * SIGTERM, and SIGKILL half a second later, and its run has failed.
 */
#ifndef HVD_JOB_SCRIPT_H
#define HVD_JOB_SCRIPT_H

#include "lib/base/error.h"
#include "lib/base/log.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct script;

struct script_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *what;    /* for the log: "discovery script"; a constant */
    const char *command; /* must live until on_close */
    size_t bytes_max;
    int64_t limit_ms;
    /* A run has ended: with its output, or with the reason why it has failed,
     * one line, and no output.  Another may be started inside. */
    void (*on_end)(void *arg, const char *text, size_t len, const char *why);
    void (*on_close)(void *arg);
    void *arg;
};

struct script *script_new(const struct script_config *config);
/* Starts a run; none may be in progress.  0, or an error without on_end. */
int script_run(struct script *s, struct hb_error *err);
/* Ends a run in progress, without on_end, and frees the script: on_close, from
 * the loop. */
void script_close(struct script *s);

#endif
