/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: runs the ranks of one job on one host, for the hvdrun at the
 * other end of a control connection (lib/protocol/control.h).
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
    /* The workers' limit on descriptors; the agent's own may be higher. */
    struct rlimit nofile;
    /* Where the job's grace time is published for the guardian, or NULL. */
    _Atomic uint32_t *grace_ms;
    /* The same for the silence that PING allows. */
    _Atomic uint32_t *silence_ms;
};

/* Sends HELLO and waits for orders.  The loop runs empty when the agent has
 * ended. */
int agent_start(const struct agent_config *config, struct agent **out,
                struct hb_error *err);
/* After the loop has run empty.  Returns the exit status for the process:
 * 0 after an orderly end, 1 when hvdrun went away first. */
int agent_finish(struct agent *a);

#endif
