/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: the ranks of one hvdrun command, from the first connection to the last
 * exit.
 *
 * The job owns one transport per host of the plan, runs the state machine of
 * state.h, decides on failure (the first failure ends the job, unless it is
 * elastic), writes the ranks' output through output.h, forwards stdin, and
 * calls on_done once, when nothing of the job is left on any host.
 *
 * Exit code:
 * - 0: every rank exited with 0; in an elastic job (spec.elastic), every rank
 *   that the job did not go on without
 * - that of the first rank that failed (in order of death, by one clock for all
 *   hosts: offset.h); 128+n for signal n
 * - 1: an elastic job has reached --reset-limit
 * - 75: all ranks have stopped at a commit, as asked
 * - 124: --timeout, or ranks waited longer than the stall limit or, in
 *   hvd_init, than --start-timeout, or in hvd_sync than --elastic-timeout
 * - 125: the launcher itself failed, or output was lost
 * - 126 / 127: the program could not be run / found
 * - 128+n: signal n asked hvdrun to stop
 */
#ifndef HVD_JOB_H
#define HVD_JOB_H

#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/hosts/slot_plan.h"
#include "lib/protocol/control/control.h"

#include <uv.h>

/* else the rank that gets stdin */
enum { JOB_STDIN_NONE = -1, JOB_STDIN_ALL = -2 };

enum {
    JOB_EXIT_STOPPED = 75,
    JOB_EXIT_TIMEOUT = 124,
    JOB_EXIT_LAUNCHER = 125,
    JOB_EXIT_SAME_HOST = -1, /* see job_config.same_as */
};

struct remote;

struct job_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    struct plan *plan; /* changed only with `most` */
    const char *agent_path;
    /* [plan->host_cap]: 1 if the host is this machine; the others are reached
     * through `remote`. */
    unsigned char *host_is_local;
    struct remote *remote; /* NULL if all hosts are local */
    /* [plan->host_count], or NULL.  If the agents show that several names of
     * the plan are one host, same_as of each is set to the index of the first,
     * and the job ends with JOB_EXIT_SAME_HOST before it starts a rank, so that
     * the caller can make a new plan; otherwise local ranks and GPUs would be
     * counted twice. */
    int *same_as;
    int progress;     /* show on a terminal which hosts are waited for */
    int heartbeat_ms; /* silence after which a host is lost; 0: never */
    /* --network-interfaces: names and CIDRs, comma-separated; or NULL */
    const char *network_interfaces;
    /* Called after SIGTSTP, when the agents have been told: this process may
     * stop now.  The job continues when it returns.  May be NULL; gets
     * job_start's arg. */
    void (*on_stop)(void *arg);
    char job_id[33]; /* 32 hex digits, random */
    unsigned char secret[32];
    struct hb_strv argv; /* the ranks' command */
    /* complete environment, common to the local ranks */
    struct hb_strv env;
    struct hb_strv remote_env; /* the same for ranks on other hosts */
    struct hb_strv *rank_env;  /* [plan->size]: per-rank additions */
    const char *cwd;
    struct control_spec spec;
    int64_t start_timeout_ms;
    int64_t timeout_ms; /* 0: none */
    /* With spec.elastic.  The job goes on while the ranks that live and those
     * that have exited with 0 are at least min_np. */
    int min_np;
    int reset_limit; /* generations after the first; -1: any number */
    int64_t elastic_timeout_ms;
    int restart_failed; /* with spec.restart: how often each rank */
    /* Most ranks of a job that gets new ranks while it runs, on the hosts that
     * job_offer_hosts names; 0: it gets none.  The plan has room for them
     * (plan_reserve), and spec.restart is set. */
    int most;
    int spares; /* ranks beyond `most` that wait until they are needed */
    /* With `most`: returns whether a host that is offered is this machine; gets
     * job_start's arg. */
    int (*is_local)(void *arg, const struct host_entry *entry);
    /* With spec.elastic: returns the name by which the plan has a host, which
     * may have several; the name itself if it has none by that.  NULL: each has
     * one name.  Gets job_start's arg. */
    const char *(*known_name)(void *arg, const char *name);
    int multiple;     /* a generation has a multiple of it; 0: any number */
    int whole_hosts;  /* a rank that has failed takes its host out */
    int names_differ; /* each name is a host of its own */
    int64_t cooldown_least_ms, cooldown_most_ms; /* strikes.h */
    int stop_at_commit;                          /* what SIGTERM does first */
    /* The batch system's job in which this one runs, such as "Slurm job 17",
     * and when it ends, in seconds since 1970; 0: not known. */
    const char *within;
    int64_t ends_s;
    /* With spec.elastic: who says which hosts go away; or NULL. */
    const char *preempt_file, *preempt_script;
    int stdin_rank;         /* JOB_STDIN_NONE, JOB_STDIN_ALL or a rank */
    int tag;                /* prefix lines with [rank]<stdout>: */
    int timestamp;          /* and the time before that */
    unsigned color;         /* coloured tags: 1 stdout, 2 stderr */
    const char *output_dir; /* NULL: terminal only */
    const char *timeline;   /* the file for all ranks' timelines, or NULL */
    /* print the table of the ranks' statistics at the end */
    int stats;
    /* Paths of the files that --report asks for (record_file.h), or NULL. */
    const struct hb_strv *reports;
    /* --http: where to serve the status (serve_address.h), the token that the
     * user has chosen, and the plug-in that serves; each may be NULL. */
    const char *http, *http_token, *http_plugin;
    int status; /* show a line about the ranks on the terminal */
};

struct job;

/* Starts the job.  0, or negative with err set if output_dir, the timeline, a
 * report, the address of the status or the networks cannot be used: then
 * nothing was started and no callback follows.  An agent that cannot be started
 * is a failure of the job, reported through on_done, which runs from a later
 * loop iteration.  The config (and what it points to) must live until on_done.
 */
int job_start(const struct job_config *config,
              void (*on_done)(void *arg, int exit_code), void *arg,
              struct job **out, struct hb_error *err);

/* Says which hosts the job may use from now on, in order of preference; the
 * list is copied.  Hosts that it does not name get no new ranks, and those that
 * run there are asked to leave, unless it names none. */
void job_offer_hosts(struct job *job, const struct hostlist *hosts);

/* Handles a signal that reached hvdrun.  `sender`: "pid 812 (slurmstepd)", or
 * NULL for a terminal and where the system does not tell.
 * - SIGINT, SIGTERM, SIGHUP: the first ends the job with the grace time, the
 *   second kills at once.  With stop_at_commit, the first SIGTERM asks all
 * ranks to stop at a commit within the grace time.
 * - SIGTSTP, SIGCONT: stop and continue every rank (see on_stop).
 * - SIGUSR1, SIGUSR2, SIGWINCH, SIGQUIT: go to every rank. */
void job_signal(struct job *job, int signo, const char *sender);

/* Writes a line to stderr, in order with the ranks' output and without
 * blocking; for the sink of config->log. */
void job_print(struct job *job, const char *line);

void job_free(struct job *job); /* after on_done */

#endif
