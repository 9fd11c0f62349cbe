/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process on the loop: what the ways to an agent start (hvd-agent
 * itself, ssh, a command template, a proxy).
 *
 * The child leads a session of its own, so that Ctrl-C at the terminal does
 * not reach it: hvdrun decides when it ends.  Its 0 and 1 are one
 * descriptor that the caller gives, its 2 a pipe that is read here.  Its
 * end is learned from a pidfd: no SIGCHLD handler, and a pid that cannot be
 * confused with another, because it is reaped here only.
 *
 * on_exit comes once, after what it had written to stderr; on_close after
 * child_close, when it has been reaped and its handles are gone.
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
    const char *what;            /* likewise: "agent"; a constant */
    const char *path;            /* NULL: argv[0], looked up in PATH */
    char *const *argv;           /* NULL at its end; not kept */
    const struct rlimit *nofile; /* NULL: this process's */
    /* Signals go to the whole group, SIGTERM first; else to the process
     * alone, and SIGKILL only. */
    int group;
    void (*on_stderr)(void *arg, const char *bytes, size_t len);
    void (*on_exit)(void *arg, int wstatus);
    void (*on_close)(void *arg);
    void *arg;
};

/* fd becomes the child's 0 and 1; the caller closes its copy.  0, or a
 * negative errno with nothing left behind. */
int child_open(const struct child_config *config, int fd, struct child **out);

/* It shall end by itself within wait_ms, else it is killed; 0: is killed
 * now.  May be called again with a shorter time. */
void child_close(struct child *c, int wait_ms);

#endif
