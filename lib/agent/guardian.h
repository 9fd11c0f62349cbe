/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guardian: the process above the agent that outlives it.
 *
 * It is a child subreaper with every catchable signal blocked, and does
 * nothing but sleep until the agent ends; then it kills whatever of the
 * job is left.  It also sees hvdrun hang up: an agent that is stopped or
 * wedged is killed a second after the grace time.  One that is stopped
 * while hvdrun is there is told on stderr, and killed when it has been
 * silent for as long as hvdrun allows.
 */
#ifndef HVD_AGENT_GUARDIAN_H
#define HVD_AGENT_GUARDIAN_H

#include "lib/agent/cgroup.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    GUARDIAN_MARGIN_MS = 1000,
    GUARDIAN_GIVE_UP_MS = 10000, /* on a process that SIGKILL cannot end */
    GUARDIAN_BLIND_MS = 200,     /* the same where /proc cannot be read */
    GUARDIAN_GRACE_MS = 5000,    /* before the agent knows better */
};

/* What the agent tells the guardian, in memory that both map. */
struct guardian_shared {
    _Atomic uint32_t grace_ms;
    _Atomic uint32_t silence_ms; /* 0: it may be stopped for ever */
};

struct guardian_shared *guardian_share(void); /* NULL when out of memory */

/* Watches the child `agent` and the connection `fd`, which is closed as
 * soon as the agent is dead.  Returns the agent's exit status as a shell
 * would see it, when no descendant is left and the cgroup is removed. */
int guardian_run(pid_t agent, int fd, const struct guardian_shared *shared,
                 struct cgroup *cgroup);

#endif
