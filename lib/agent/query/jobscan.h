/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose processes run on this machine, for `hvdrun ps`, `kill` and
 * `clean`.
 *
 * A process belongs to a job if its environment holds that job's HVD_JOB_ID,
 * which cannot be guessed, or if it has no HVD_JOB_ID and descends from a
 * process with that one.  Only processes of the caller's user count.  A job's
 * agent is the parent of such processes that is named hvd-agent; names decide
 * nothing else.
 */
#ifndef HVD_AGENT_JOBSCAN_H
#define HVD_AGENT_JOBSCAN_H

#include "lib/agent/rank/tree.h"

enum { JOBSCAN_ID_DIGITS = 32 };

struct jobscan_proc {
    struct tree_proc proc;
    int rank;        /* HVD_RANK, own or inherited; -1: none */
    int top;         /* its parent is not of the job: mostly a rank itself */
    uint64_t cpu_ms; /* CPU time used, with that of its dead children */
    uint64_t elapsed_ms;
    uint64_t rss_bytes;
};

struct jobscan_job {
    char id[JOBSCAN_ID_DIGITS + 1];
    struct tree_proc agent, guardian; /* pid 0: none, the job is orphaned */
    struct jobscan_proc *procs;       /* in order of pid; no zombies */
    size_t count;
    int is_elastic; /* a rank of it says so: HVD_ELASTIC */
};

struct jobscan {
    struct jobscan_job *jobs;
    size_t count;
};

/* clang-format off */
#define JOBSCAN_INIT { NULL, 0 }
/* clang-format on */

/* Reads /proc into *s, replacing what it held.  0, or -HVD_ESYSTEM if /proc
 * cannot be read. */
int jobscan_read(struct jobscan *s);
void jobscan_free(struct jobscan *s); /* leaves it empty and usable */

/* Returns the job with exactly this id, or NULL. */
const struct jobscan_job *jobscan_find(const struct jobscan *s, const char *id);

#endif
