/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an elastic job, for the files of this folder only. */
#ifndef HVD_JOB_ELASTIC_IMPL_H
#define HVD_JOB_ELASTIC_IMPL_H

#include "lib/job/elastic/apart.h"
#include "lib/job/elastic/generations.h"
#include "lib/job/elastic/restarts.h"
#include "lib/job/elastic/strikes.h"
#include "lib/job/job_impl.h"

/* A rank that is asked to leave. */
struct elastic_leaving {
    char *why;       /* one line; NULL: it is not */
    uint64_t due_ns; /* it is killed then; 0: never */
    int with_host;   /* only because another rank of its host has failed */
    int with_slot;   /* only because its host has fewer slots than before */
};

/* The state of a job that gets new hosts and ranks. */
struct grow {
    struct hostlist offered;
    int *at;   /* [offered.count]: index of the host in the plan, or -1 */
    int keeps; /* a host that is no longer listed is kept for its state */
    struct strikes strikes;
    /* Owns the entries of added hosts, to which the plan points. */
    struct hostlist **entries;
    size_t entry_count;
};

struct elastic {
    struct generations generations;
    struct grow *grow;    /* NULL: the job gets no new ranks */
    struct routes *round; /* in progress, to add hosts; or NULL */
    struct restarts restarts;
    struct apart apart;  /* hosts that do not reach each other */
    pid_t *pids;         /* [size] 0: not known */
    unsigned char *gone; /* [size] ranks that were lost with their host */
    struct elastic_leaving *leaving; /* [size] */
    uint64_t due_ns; /* no deadline of `leaving` is earlier; 0: there is none */
    int gathers;     /* requests to leave: see job_leave.c */
    uint64_t stop_due_ns; /* all ranks are to have stopped then; 0: never */
    int stop_code;        /* exit code if they have not */
    int has_stopped;      /* all ranks were removed, as asked */
    int *members;         /* [count] of the current generation, ascending */
    int count;
    /* The first loss since the generation began: its line, and its time by our
     * clock; NULL and 0: none. */
    char *why;
    int why_code; /* the exit code that goes with it */
    uint64_t stopped_ns;
    struct report_lost *lost; /* all ranks that were lost */
    size_t lost_count, lost_cap;
    uint32_t progress; /* the last generation known to have committed */
    int fruitless;     /* generations that have failed since without a commit */
    int tails;         /* reported so far */
    int is_done;       /* only ranks are left that are not needed */
    int has_said;      /* that too few ranks are left, in this generation */
};

/* ---- job_elastic.c ---- */

/* Carries out what an event has led to. */
void elastic_act(struct job *job, enum generations_action action);

/* ---- job_grow.c ---- */

void elastic_grow_open(struct job *job);
/* Returns whether the job gets new ranks: none once one has exited with 0, or
 * all are to stop. */
int elastic_grows(const struct job *job);
/* Returns how many slots an offered host has: 1 if that was not said. */
int elastic_slots(const struct host_entry *entry);
void elastic_grow_free(struct job *job);
/* Returns whether the rank's host may be used, as far as discovery says. */
int elastic_is_offered(const struct job *job, int rank);
/* Reacts to a rank that is ready: it may replace one of a host that goes. */
void elastic_grow_ready(struct job *job);

/* ---- job_withdraw.c ---- */

/* Asks the ranks to leave whose host or slot is no longer offered. */
void elastic_withdraw(struct job *job);

/* ---- job_grow_routes.c ---- */

/* Begins to add the hosts that are connected and have no ranks, unless others
 * are being added. */
void elastic_begin_round(struct job *job);
/* ---- job_lost.c ---- */

/* Reports a rank's failure, with its last lines if that helps. */
void elastic_report_failed(struct job *job, const struct control_exited *m);
/* Notes that a rank was lost; takes over the phrase that says how. */
void elastic_keep_lost(struct elastic *e, int rank, char *phrase);
/* Removes a rank from the ranks that were lost. */
void elastic_forget_lost(struct elastic *e, int rank);

/* ---- job_leave.c ---- */

/* Asks all ranks of a host to leave, and tells the user.  Returns 0, or -1 if
 * too few would stay. */
int elastic_leave_host(struct job_host *host, int64_t left_ms, const char *why);
/* Returns whether the host goes away, or ranks there were asked to leave: no
 * rank is started there unless the job would have too few without it. */
int elastic_host_goes(const struct job_host *host);
/* Clears the request to leave of a rank number that a new rank gets. */
void elastic_forget_leaving(struct job *job, int rank);
/* Ends the agent of a host that goes, when no rank runs there any more, so that
 * the host can be reached anew later. */
void elastic_end_unused(struct job_host *host);

/* Starts the timer for the next deadline, or stops it. */
void elastic_set_leave_timer(struct job *job);
/* Notes that all ranks were removed, and says so. */
void elastic_stopped(struct job *job);
/* Lets the other ranks of a rank's host leave, if enough stay: it has failed
 * for good, as `line` says. */
void elastic_leave_with(struct job *job, int rank, const char *line);
/* Returns whether all ranks were removed, and none runs on the host. */
int elastic_stopped_there(const struct job_host *host);
/* Tells the ranks that were removed. */
void elastic_tell_removed(struct job *job);
/* Reports the failure of a rank that was removed before; returns whether it was
 * one. */
int elastic_removed_failed(struct job *job, const struct control_exited *m);

/* ---- job_restart.c ---- */

/* Starts a rank that has no process.  Returns 0, or negative if its host cannot
 * be told. */
int elastic_start(struct job *job, int rank);

/* Plans a restart of the rank that has just failed, if it may have one: none is
 * started once others have finished.  Returns when, or 0. */
uint64_t elastic_plan_restart(struct job *job, int rank);
/* Starts the timer for the next restart, or stops it. */
void elastic_set_restart_timer(struct job *job);
/* Ends the host's agent, and with it ranks that still live there. */
void elastic_end_agent(struct job_host *host);
/* Ends the agents, and with them the ranks that still live: the job has all
 * that it needs. */
void elastic_end_agents(struct job *job);
/* Ends the agents once no rank lives or will be started: those that could start
 * ranks again wait to be told. */
void elastic_end_idle_agents(struct job *job);
/* Ends the job after GENERATIONS_TOO_FEW: with the failure of a rank, or, if
 * none has failed, with "rank N" and `why`. */
void elastic_end_too_few(struct job *job, enum generations_action action,
                         int rank, const char *why);

#endif
