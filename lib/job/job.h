/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: the ranks of one hvdrun command, from the first connection to
 * the last exit.
 *
 * The job owns one transport per host of the plan, walks the state
 * machine in state.h, decides on failure (first failure ends the job),
 * writes the ranks' output through output.h, forwards stdin, and ends by
 * calling on_done once, when nothing of the job is left on any host.
 *
 * Exit code: 0 when every rank exited 0; else that of the first rank that
 * failed (in order of death, by one clock for all hosts: offset.h), 128+n for
 * a signal; 124
 * after --timeout; 125 when the launcher itself failed, or when output was
 * lost; 126 / 127 when the
 * program could not be run / found; 128+n when hvdrun was asked to stop by
 * signal n.
 */
#ifndef HVD_JOB_H
#define HVD_JOB_H

#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/hosts/plan.h"
#include "lib/protocol/control.h"

#include <uv.h>

enum { JOB_STDIN_NONE = -1, JOB_STDIN_ALL = -2 }; /* else a rank */

enum { JOB_EXIT_TIMEOUT = 124, JOB_EXIT_LAUNCHER = 125 };

struct remote;

struct job_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const struct plan *plan;
    const char *agent_path;
    /* [plan->host_count]: 1 where the host is this machine; the others are
     * reached through `remote`. */
    const unsigned char *host_is_local;
    struct remote *remote; /* NULL: no host needs it */
    int progress;          /* show on a terminal who is waited for */
    int heartbeat_ms;      /* a host silent for so long is lost; 0: never */
    /* --network-interfaces: names and CIDRs, comma-separated; or NULL */
    const char *network_interfaces;
    /* After SIGTSTP, when the agents have been told: this process may be
     * stopped now.  The job goes on when it returns.  May be NULL; gets
     * job_start's arg. */
    void (*on_stop)(void *arg);
    char job_id[33]; /* 32 hex digits, random */
    unsigned char secret[32];
    struct hb_strv argv;       /* the ranks' command */
    struct hb_strv env;        /* common environment, complete */
    struct hb_strv remote_env; /* the same for hosts that are not this one */
    struct hb_strv *rank_env;  /* [plan->size]: per-rank additions */
    const char *cwd;
    enum control_bind bind;
    int gpus_per_rank;
    int bind_gpu, share_gpus; /* as in control_launch */
    int grace_ms;
    int64_t start_timeout_ms;
    int64_t timeout_ms;     /* 0: none */
    int stdin_rank;         /* JOB_STDIN_NONE, JOB_STDIN_ALL or a rank */
    int tag;                /* prefix lines with [rank]<stdout>: */
    int timestamp;          /* and a time before that */
    unsigned color;         /* tags in colour: 1 stdout, 2 stderr */
    const char *output_dir; /* NULL: terminal only */
    const char *timeline;   /* the file for all ranks' timelines, or NULL */
    int stats;              /* a table of what the ranks counted, at the end */
};

struct job;

/* Starts the job.  0, or negative with err set when output_dir cannot be
 * used: nothing was started and there is no callback.  An agent that cannot
 * be started is a failure of the job, told through on_done.  The config
 * (and what it points to) must live until on_done; env and rank_env are
 * read from the loop only, so that a caller can prepare them while the
 * agents start.  on_done runs from a later loop iteration. */
int job_start(const struct job_config *config,
              void (*on_done)(void *arg, int exit_code), void *arg,
              struct job **out, struct hb_error *err);

/* A signal reached hvdrun; `sender`, "pid 812 (slurmstepd)", or NULL for
 * a terminal and where the system does not tell.  SIGINT, SIGTERM, SIGHUP: the
 * first ends the job with the grace time, the second kills at once.  SIGTSTP
 * and SIGCONT stop and continue every rank (see on_stop); SIGUSR1, SIGUSR2,
 * SIGWINCH and SIGQUIT go to every rank. */
void job_signal(struct job *job, int signo, const char *sender);

/* Writes a line for hvdrun's user to stderr, in order with the ranks'
 * output and without blocking; for the sink of config->log. */
void job_print(struct job *job, const char *line);

void job_free(struct job *job); /* after on_done */

#endif
