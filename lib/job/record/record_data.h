/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has happened in a job, for `hvdrun --report` and `--http`.  Pure data:
 * job_record.c fills it in while the job runs, and one function for each kind
 * of file turns it into text.
 *
 * All times are ns since the start of hvdrun's job, on hvdrun's monotonic
 * clock; RECORD_NEVER for what has not happened.  Texts may come from ranks
 * and hosts and may hold any bytes: writers clean them (record_clean) and
 * escape them.  All memory is bounded: of runs and events, those beyond the
 * limits are only counted.
 */
#ifndef HVD_JOB_RECORD_DATA_H
#define HVD_JOB_RECORD_DATA_H

#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/job/trace/stats_text.h"
#include "lib/protocol/status.h"

#include <sys/types.h>

#define RECORD_NEVER (-1)

enum {
    RECORD_FORMAT = 1, /* of the JSON file */
    RECORD_RUNS_MAX = 1 << 17,
    RECORD_EVENTS_MAX = 1000, /* the first and the last half of these */
    RECORD_EVENT_BYTES_MAX = 8 << 10,
    /* The last lines of stderr are kept for this many failed runs, and for the
     * culprit. */
    RECORD_TAILS_MAX = 256,
};

enum record_phase {
    RECORD_CONNECTED, /* all hosts are reached */
    RECORD_ROUTED,    /* their networks are tried: ranks are being started */
    RECORD_STARTED,   /* all ranks are started */
    RECORD_ENDING,    /* ranks are being ended */
    RECORD_ENDED,
    RECORD_PHASES
};

/* Who ended a run. */
enum record_ended {
    RECORD_UNKNOWN, /* nothing was heard of its end */
    RECORD_ITSELF,  /* it exited, or was killed by a signal from elsewhere */
    RECORD_BY_HVDRUN,
    RECORD_WITH_HOST, /* its host was lost */
};

struct record_host {
    char *name;
    int is_local, slots;
    int64_t asked_ns, reached_ns; /* the connection; the agent's answer */
    char *version, *machine;      /* of the agent and its CPU; or NULL */
    char *trouble;                /* the first one, or NULL */
    int64_t trouble_ns;
    int is_reached; /* now: its agent has answered, and has not been lost */
};

/* One process of a rank. */
struct record_run {
    int rank, local_rank;
    int host; /* index in hosts */
    pid_t pid;
    int64_t start_ns, end_ns;
    int exit_code, signal; /* of those that have ended; signal 0: none */
    enum record_ended ended;
    char *how;  /* "exit code 7"; NULL while it runs */
    char *tail; /* the last lines of its stderr, or NULL */
};

struct record_rank {
    int host;       /* index in hosts, where it was last; -1: nowhere */
    int local_rank; /* there */
    int is_planned; /* it was to be started at the start of the job */
    int last_run;   /* index in runs, or -1 */
    /* Sums over all its processes that have sent statistics. */
    int has_stats;
    uint64_t calls, bytes, time_ns, wait_ns;
    /* In a job that is watched: what its present process has counted so far,
     * and what those before it had. */
    struct status_counts so_far, kept;
};

struct record_event {
    int64_t when_ns;
    char *text; /* one or more lines */
};

struct record {
    char job_id[33];
    struct hb_strv argv;
    char *cwd;
    uint64_t wall_ns; /* the start, since 1970 */
    int64_t phases[RECORD_PHASES];
    struct record_host *hosts;
    int host_count, host_cap;
    struct record_rank *ranks;
    int rank_count;
    struct record_run *runs; /* in order of their start */
    int run_count, run_cap, runs_left_out;
    int tail_count;
    struct record_event *events; /* what hvdrun has said, in order */
    int event_count, events_left_out;
    /* The job runs still, and this is a view of it at now_ns. */
    int is_running;
    int64_t now_ns;
    int exit_code;
    int culprit;  /* index in runs of the one that failed first, or -1 */
    char *cause;  /* why the job has failed, one line, or NULL */
    char *report; /* the lines of hvdrun's report of the failure, or NULL */
    const struct stats_sum *stats; /* of all ranks, or NULL */
};

/* Makes an empty record of that many ranks.  Running out of memory ends the
 * program, here and in all functions below. */
void record_init(struct record *r, int ranks);
void record_fini(struct record *r);

/* Returns the index of the host with this name, which is added if need be. */
int record_host(struct record *r, const char *name);
/* Notes the host's first trouble. */
void record_trouble(struct record *r, int host, int64_t when_ns,
                    const char *text);

/* Says where a rank of the plan is to run. */
void record_place(struct record *r, int rank, int host, int local_rank);
/* Adds a process of a rank; the one before it has ended. */
void record_run_started(struct record *r, int rank, pid_t pid, int64_t when_ns);
/* Returns the rank's process that runs, or NULL. */
struct record_run *record_running(const struct record *r, int rank);
/* Ends a process that runs; copies `how`, and `tail` (may be NULL) if it is
 * among the first. */
void record_run_ended(struct record *r, struct record_run *run, int64_t when_ns,
                      enum record_ended ended, const char *how,
                      const char *tail);
/* Makes a rank's last process the one that failed first; its last lines are
 * kept in any case. */
void record_culprit(struct record *r, int rank, const char *tail);

/* Adds the statistics that a rank has sent. */
void record_stats(struct record *r, int rank, const struct worker_stats *m);

/* Notes what a rank's present process has counted so far. */
void record_counts(struct record *r, int rank, const struct status_counts *c);

/* Adds an event: lines that hvdrun has printed.  Removes "hvdrun: " at their
 * start. */
void record_event(struct record *r, int64_t when_ns, const char *text,
                  size_t len);
/* Sets the report of the failure, and its first line as the cause if there is
 * none. */
void record_report(struct record *r, const char *text);

/* Notes a phase, unless it was noted before. */
void record_reach(struct record *r, enum record_phase phase, int64_t when_ns);

/* ---- For the writers ---- */

/* Returns a copy of the text without escape sequences of terminals, its
 * controls replaced by '?' and what is not UTF-8 as well; but line ends stay,
 * and tabs become blanks.  A heap string (hb_free); "" for NULL. */
char *record_clean(const char *text);
/* Appends the text, cleaned, with &, <, >, " and ' escaped for XML and HTML. */
void record_escape(struct hb_buf *out, const char *text);
/* Appends the command line, quoted as for a shell. */
void record_command(struct hb_buf *out, const struct record *r);
/* Appends a time since 1970 as "2026-01-31T12:00:00Z". */
void record_time(struct hb_buf *out, uint64_t wall_ns);
/* Returns how long the job took, or has taken until now; 0 if neither is
 * known. */
int64_t record_duration_ns(const struct record *r);
/* Returns how a process has ended, in a few words; never NULL. */
const char *record_how(const struct record_run *run);
/* Sums the counts of all processes of a rank.  While the job runs, the sum
 * includes processes that have not sent their statistics.  Returns 0 if nothing
 * is known. */
int record_counted(const struct record *r, int rank, struct status_counts *sum);
/* Returns whether a process runs still, as far as is known. */
int record_is_alive(const struct record *r, const struct record_run *run);
/* Returns the last process of a rank; NULL if none was started. */
const struct record_run *record_last_run(const struct record *r, int rank);
/* Returns the indexes of all processes, sorted by rank, those of a rank in
 * order (hb_free); sets first[rank] to where the rank's are, and first[ranks]
 * to their number, unless `first` is NULL. */
int *record_by_rank(const struct record *r, int *first);
/* Returns whether the files list the rank: it was planned, or was started. */
int record_has_rank(const struct record *r, int rank);
/* Returns whether the process failed by itself, or was lost. */
int record_failed(const struct record_run *run);
/* Returns for how long the other ranks have waited for this one. */
uint64_t record_waited_for_ns(const struct record *r, int rank);

struct record_late {
    int rank;
    uint64_t waited_ns;
};

/* Returns the ranks that others have waited for, in descending order of that
 * time; an element with waited_ns 0 ends the array (hb_free). */
struct record_late *record_late(const struct record *r);

/* ---- The files ---- */

void record_json(struct hb_buf *out, const struct record *r);
void record_junit(struct hb_buf *out, const struct record *r);
void record_html(struct hb_buf *out, const struct record *r);

/* Appends the same page for a job that runs.  Its only script, which the nonce
 * allows, replaces what is in its element main by what record_html_main
 * appends, each time that the stream of events at `events` has sent it. */
void record_html_live(struct hb_buf *out, const struct record *r,
                      const char *nonce);
/* Appends what is in the page's element main. */
void record_html_main(struct hb_buf *out, const struct record *r);

#endif
