/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process on the loop, as started to reach an agent: hvd-agent itself,
 * ssh, a command template, a proxy.
 *
 * The child leads a session of its own, so that Ctrl-C at the terminal does not
 * reach it: hvdrun decides when it ends.  Its stdin and stdout are one
 * descriptor that the caller passes; its stderr is a pipe that is read here.
 * Its exit is learned from a pidfd, without a SIGCHLD handler, and only this
 * module reaps it, so its pid cannot be reused before.
 *
 * on_exit comes once, after all stderr; on_close after child_close, when the
 * child has been reaped and its handles are closed.
 */
#ifndef HVD_TRANSPORT_CHILD_H
#define HVD_TRANSPORT_CHILD_H

#include "lib/base/log.h"

#include <stddef.h>
#include <sys/resource.h>
#include <uv.h>

struct child;

struct child_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *host;            /* for the log */
    const char *what;            /* for the log: "agent"; a constant */
    const char *path;            /* NULL: argv[0], looked up in PATH */
    char *const *argv;           /* NULL-terminated; not kept */
    char *const *env;            /* NULL: this process's; not kept */
    const struct rlimit *nofile; /* NULL: this process's */
    /* 1: signals go to the whole group, SIGTERM first.  0: to the process
     * alone, and SIGKILL only. */
    int group;
    /* 1, with group and without path: its stdin is /dev/null, and fd its stdout
     * only.  What is left of its group is killed when it exits, and all of it
     * when this process dies, if only by SIGKILL.  A shell executes it once
     * that is certain, and ends with 127 if it cannot. */
    int tied;
    void (*on_stderr)(void *arg, const char *bytes, size_t len);
    void (*on_exit)(void *arg, int wstatus);
    void (*on_close)(void *arg);
    void *arg;
};

/* Starts the child with fd as its stdin and stdout; the caller closes its copy.
 * 0, or a negative errno with nothing left behind. */
int child_open(const struct child_config *config, int fd, struct child **out);

/* Gives the child wait_ms to end by itself, then kills it; 0 kills it now.  May
 * be called again with a shorter time. */
void child_close(struct child *c, int wait_ms);

#endif
