/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guardian: the agent's parent process, which outlives it.
 *
 * It is a child subreaper with every catchable signal blocked.  It sleeps until
 * the agent ends, then kills what is left of the job and, if the agent was
 * killed, removes the directories of the ranks' timelines and of their MPI.
 *
 * It also watches the agent.  When hvdrun hangs up, an agent that is stopped or
 * stuck is killed a second after the grace time.  When the agent is stopped
 * while hvdrun lives, the guardian says so on stderr and kills it after the
 * silence that hvdrun allows.
 */
#ifndef HVD_AGENT_GUARDIAN_H
#define HVD_AGENT_GUARDIAN_H

#include "lib/agent/machine/cgroup.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    GUARDIAN_PATH_MAX = 4096,
    GUARDIAN_MARGIN_MS = 1000,
    GUARDIAN_GIVE_UP_MS = 10000, /* on a process that SIGKILL cannot end */
    GUARDIAN_BLIND_MS = 200,     /* give-up time where /proc cannot be read */
    /* until the agent stores the job's grace time */
    GUARDIAN_GRACE_MS = 5000,
};

/* What the agent tells the guardian, in memory that both map. */
struct guardian_shared {
    _Atomic uint32_t grace_ms;
    _Atomic uint32_t silence_ms; /* 0: it may stay stopped for ever */
    /* Of the ranks' timelines; "" when the agent has removed the directory or
     * it is to stay.  Read after the agent's death. */
    char trace_dir[GUARDIAN_PATH_MAX];
    /* Of the files of the ranks' MPI, likewise. */
    char wireup_dir[GUARDIAN_PATH_MAX];
};

struct guardian_shared *guardian_share(void); /* NULL when out of memory */

/* Watches the child `agent` and the connection `fd`, closing fd as soon as the
 * agent is dead.  Returns when no descendant is left and the cgroup is removed:
 * the agent's exit status as a shell would see it.  The process then gets no
 * signal any more when its parent dies. */
int guardian_run(pid_t agent, int fd, const struct guardian_shared *shared,
                 struct cgroup *cgroup);

#endif
