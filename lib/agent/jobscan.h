/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose processes run on this machine, for `hvdrun ps`, `kill` and
 * `clean`.
 *
 * A process belongs to a job when its environment holds that job's
 * HVD_JOB_ID, which cannot be guessed, or when it descends from one that
 * does and has no mark of its own.  Only processes of the caller's user
 * count.  A job's agent is the parent of such processes that calls itself
 * hvd-agent; names decide nothing else.
 */
#ifndef HVD_AGENT_JOBSCAN_H
#define HVD_AGENT_JOBSCAN_H

#include "lib/agent/tree.h"

enum { JOBSCAN_ID_DIGITS = 32 };

struct jobscan_proc {
    struct tree_proc proc;
    int rank;        /* of HVD_RANK, inherited like the mark; -1: none */
    int top;         /* its parent is not of the job: a rank itself, mostly */
    uint64_t cpu_ms; /* used, with what its dead children used */
    uint64_t elapsed_ms;
    uint64_t rss_bytes;
};

struct jobscan_job {
    char id[JOBSCAN_ID_DIGITS + 1];
    struct tree_proc agent, guardian; /* pid 0: none, the job is orphaned */
    struct jobscan_proc *procs;       /* in order of pid; no zombies */
    size_t count;
};

struct jobscan {
    struct jobscan_job *jobs;
    size_t count;
};

/* clang-format off */
#define JOBSCAN_INIT { NULL, 0 }
/* clang-format on */

/* 0 or -HVD_ESYSTEM when /proc cannot be read; replaces what *s held. */
int jobscan_read(struct jobscan *s);
void jobscan_free(struct jobscan *s); /* leaves it empty and usable */

/* The job of exactly this id, or NULL. */
const struct jobscan_job *jobscan_find(const struct jobscan *s, const char *id);

#endif
