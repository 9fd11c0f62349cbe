/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: runs the ranks of one job on one host, for the hvdrun at the
 * other end of a control connection (lib/protocol/control/control.h).
 *
 * It must be a child subreaper, have SIGCHLD, SIGPIPE and the signals that
 * end it blocked (it reads SIGCHLD, SIGTERM, SIGINT and SIGHUP from a
 * signalfd), and be the only part of its process that has children.
 */
#ifndef HVD_AGENT_AGENT_H
#define HVD_AGENT_AGENT_H

#include "lib/base/error.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <uv.h>

struct agent;

struct agent_config {
    uv_loop_t *loop;
    int in_fd, out_fd;
    /* RLIMIT_NOFILE of the workers; the agent's own limit may be higher. */
    struct rlimit nofile;
    /* Memory shared with the guardian: the agent stores the job's grace time
     * there. May be NULL. */
    _Atomic uint32_t *grace_ms;
    /* The same, for the silence that the last PING allows; may be NULL. */
    _Atomic uint32_t *silence_ms;
    /* The same, for the path of the directory of the ranks' timelines
     * (guardian.h); may be NULL. */
    char *trace_dir;
    char *wireup_dir; /* the same, for that of the ranks' MPI */
};

/* Creates the agent, queues HELLO and waits for orders.  0, or negative with
 * err set.  The loop runs empty when the agent has ended. */
int agent_start(const struct agent_config *config, struct agent **out,
                struct hb_error *err);
/* Frees the agent after the loop has run empty.  Returns the exit status for
 * the process: 0 after an orderly end, 1 if hvdrun went away first. */
int agent_finish(struct agent *a);

#endif
