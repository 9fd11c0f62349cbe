/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends a job on this machine from outside (`hvdrun kill`, `clean`), by the
 * marks that jobscan.h finds.
 *
 * A job's agent gets SIGTERM: it ends its ranks with their grace time and tells
 * its hvdrun, which ends the job on every other host.  An orphaned job's
 * processes get SIGTERM themselves.  What is left after the grace time is
 * killed.  Blocks; for a process that has nothing else to do.
 */
#ifndef HVD_AGENT_JOBEND_H
#define HVD_AGENT_JOBEND_H

#include <stddef.h>

struct jobend_result {
    int found;        /* 0: no such job here */
    int had_agent;    /* 0: the job was orphaned */
    size_t processes; /* of the job when it was found */
    size_t left;      /* still there after SIGKILL */
};

void jobend(const char *id, int grace_ms, struct jobend_result *result);

#endif
