/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's event loop, with its signals and the way to other hosts, for jobs
 * and tools alike:
 *
 *     main_loop_open(&l, ...)       and main_loop_reach for other hosts
 *     ... open a job or a survey on l.loop ...
 *     main_loop_run(&l)             returns after main_loop_stop(&l)
 *     ... the same again ...        with the same way to other hosts
 *     main_loop_fini(&l)
 *
 * Begins zeroed.
 */
#ifndef HVDRUN_MAIN_LOOP_H
#define HVDRUN_MAIN_LOOP_H

#include "cmd/hvdrun/options/options.h"
#include "lib/base/log.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <uv.h>

struct main_loop {
    uv_loop_t loop;
    struct remote *remote; /* NULL: every host is this machine */

    /* private */
    struct remote_options remote_options;
    char *plugin_dir;
    uv_poll_t signal_poll;
    int signal_fd;
    sigset_t signals; /* those that were not ignored */
    void (*on_signal)(void *arg, const struct signalfd_siginfo *info);
    void *arg;
};

/* Opens the loop and blocks those of the `count` signals that are not ignored:
 * on_signal gets them from the loop.  0, or negative with err set and nothing
 * to close. */
int main_loop_open(struct main_loop *l, const int *signals, size_t count,
                   void (*on_signal)(void *arg,
                                     const struct signalfd_siginfo *info),
                   void *arg, struct hb_error *err);
/* Opens l->remote, unless it is open; agent_path must live until
 * main_loop_fini. */
int main_loop_reach(struct main_loop *l, const struct options *o,
                    const char *agent_path, const struct hb_log *log,
                    struct hb_error *err);
/* Gives the signals their default actions again. */
void main_loop_unblock(const struct main_loop *l);
/* Takes no more signals, so that the loop ends with the caller's handles. */
void main_loop_stop(struct main_loop *l);
/* Runs until all handles are closed, and closes the loop. */
void main_loop_run(struct main_loop *l);
void main_loop_fini(struct main_loop *l);

#endif
