/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an elastic job, for job_elastic.c and job_restart.c only. */
#ifndef HVD_JOB_ELASTIC_IMPL_H
#define HVD_JOB_ELASTIC_IMPL_H

#include "lib/job/elastic/generations.h"
#include "lib/job/elastic/restarts.h"
#include "lib/job/job_impl.h"

struct elastic {
    struct generations generations;
    struct restarts restarts;
    pid_t *pids;         /* [size] 0: not known */
    unsigned char *gone; /* [size] ranks that were lost with their host */
    int *members;        /* [count] of the current generation */
    int count;
    /* The first loss since the generation began: its line, and its time by our
     * clock; NULL and 0: none. */
    char *why;
    uint64_t stopped_ns;
    struct report_lost *lost; /* all ranks that were lost */
    size_t lost_count, lost_cap;
    int tails; /* reported so far */
};

/* ---- job_elastic.c ---- */

/* Carries out what an event has led to. */
void elastic_act(struct job *job, enum generations_action action);
/* Removes a rank from the ranks that were lost. */
void elastic_forget_lost(struct elastic *e, int rank);

/* ---- job_restart.c ---- */

/* Plans a restart of the rank that has just failed, if it may have one: none is
 * started once others have finished.  Returns when, or 0. */
uint64_t elastic_plan_restart(struct job *job, int rank);
/* Starts the timer for the next restart, or stops it. */
void elastic_set_restart_timer(struct job *job);
/* Ends the agents once no rank lives or will be started: those that could start
 * ranks again wait to be told. */
void elastic_end_idle_agents(struct job *job);

#endif
