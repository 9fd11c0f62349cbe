/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending a job of this machine from outside (`hvdrun kill`, `clean`), by
 * the marks that jobscan.h finds.
 *
 * A job's agent is asked with SIGTERM: it ends its ranks with their grace
 * time and tells its hvdrun, which ends the job on every other host.  What
 * has no agent gets SIGTERM itself.  What is left after the grace time is
 * killed.  Blocks; for a process that has nothing else to do.
 */
#ifndef HVD_AGENT_JOBEND_H
#define HVD_AGENT_JOBEND_H

#include <stddef.h>

struct jobend_result {
    int found;        /* 0: no such job here */
    int had_agent;    /* else it was orphaned */
    size_t processes; /* of the job when it was found */
    size_t left;      /* that even SIGKILL did not end */
};

void jobend(const char *id, int grace_ms, struct jobend_result *result);

#endif
