/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The internals of struct job, shared by
 *
 *     job.c         life cycle: start, the state machine's actions, end
 *     job_signal.c  what the user's signals do
 *     job_end.c     why it ends: failed ranks, troubles of hosts, the report
 *     job_wait.c    the wait for hosts: progress, time-out
 *     job_beat.c    heartbeats and clocks
 *     job_host.c    one host: losing it, messages to its agent
 *     job_frames.c  messages from agents
 *     job_io.c      output and input
 *     job_routes.c  the round of routes
 *     job_same.c    several names of one host
 *     job_deadline.c the end of the batch system's job
 *     job_trace.c   timelines and statistics
 *     job_record.c  the files of --report
 *     job_serve.c   the server of --http
 *     job_counts.c  what ranks have counted so far
 *     job_elastic.c generations of an elastic job
 *     job_grow.c    hosts and ranks that an elastic job gets while it runs
 *     job_grow_routes.c    the routes to these hosts
 *     job_withdraw.c       hosts and slots that are not offered any more
 *     job_leave.c   ranks of one that are asked to leave
 *     job_preempt.c who says which hosts go away
 *     job_apart.c   hosts that do not reach each other
 *     job_stall.c   ranks that wait too long
 *     job_sweep.c   ending what lost hosts may still run
 */
#ifndef HVD_JOB_IMPL_H
#define HVD_JOB_IMPL_H

#include "lib/hosts/going.h"
#include "lib/job/agent_link.h"
#include "lib/job/job.h"
#include "lib/job/job_rendezvous.h"
#include "lib/job/job_state.h"
#include "lib/job/output/input.h"
#include "lib/job/output/output.h"
#include "lib/job/report.h"
#include "lib/job/route/routes.h"
#include "lib/job/trace/offset.h"

enum host_state {
    HOST_CONNECTING, /* no HELLO yet */
    HOST_CONNECTED,
    HOST_LAUNCHED, /* LAUNCH sent */
    HOST_STARTED,
    HOST_DONE, /* nothing of the job is left there */
    HOST_LOST, /* the connection ended or broke before that */
};

struct elastic;
struct job_preempt;
struct job_record;
struct job_serve;
struct job_status;
struct job_trace;
struct record;
struct stats_sum;
struct status_counts;
struct survey;
struct worker_stats;

struct job_host {
    struct job *job;
    const struct plan_host *plan;
    const char *name;
    int index;
    enum host_state state;
    struct agent_link link;
    int quitting;     /* the agent has told why it ends */
    char *identity;   /* equal for names of one host; NULL: unknown */
    size_t ack_len;   /* written out, OUTPUT_ACK not yet sent */
    size_t in_flight; /* output not yet acknowledged */

    struct offset clock;
    int beats_missed;     /* PINGs in a row without any message after them */
    uint64_t asked_ns;    /* time of the first of these PINGs; 0: none */
    int was_launched;     /* LAUNCH was sent, and FAILED has not come */
    uint64_t since_ns;    /* start of the connection */
    int64_t reached_ms;   /* time from start to HELLO; 0 before HELLO */
    struct survey *sweep; /* the second connection (job_sweep.c), or NULL */
    int sweep_steps, swept, sweep_failed;
    char *sweep_text; /* its result, reported at the end, or NULL */
    int unheard;      /* no message since KILL was sent */
    int owes_answer;  /* no message since job_apart.c asked for one */
    /* Added while the ranks run, and none of its ranks was started yet: how
     * many are to be; else 0.  Its failure concerns nobody else. */
    int newcomers;
    int in_round;   /* takes part in job_grow_routes.c's round */
    int counts_due; /* the answer to COUNTS_ASK has not come */
    int ports_due;  /* answers to ROUTE_LISTEN that have not come */
    int is_ending;  /* KILL was sent, as it goes and no rank runs there */

    /* Of the host itself, not of its connection: kept when it is reached
     * again. */
    int is_listed;    /* among the hosts that job_offer_hosts has named last */
    int is_withdrawn; /* it was left out, and its ranks are to leave */
    int slots;        /* as offered last; 0: never */
    int has_fewer_slots;    /* than before, and perhaps more ranks */
    uint64_t goes_until_ns; /* it goes away, and is not used before; 0: no */
    /* Who has said so while other hosts were still starting (heap), or NULL;
     * and when it goes, 0: not known. */
    char *goes_who;
    uint64_t goes_ns;
};

enum job_exit {
    JOB_RANK_ENDED = 1, /* ended by hvdrun */
    JOB_RANK_EXITED,    /* ended by itself, or by a signal from elsewhere */
};

struct job {
    const struct job_config *config;
    void (*on_done)(void *arg, int exit_code);
    void *arg;

    enum job_state state;
    uint64_t state_since_ns;
    struct job_host *hosts;
    int started, finished; /* counts of hosts */
    int sweeping;          /* second connections in progress */
    int open_transports;
    struct output *output;
    struct input *input;
    struct routes *routes; /* NULL: one host without --network-interfaces */
    struct job_rendezvous *rendezvous;
    struct job_trace *trace;
    struct job_record *record; /* NULL: nobody wants one */
    struct job_serve *serve;   /* NULL: no --http */
    struct job_status *status; /* NULL: no line of --status was shown */
    struct stall *stall;
    struct elastic *elastic;     /* NULL: the first failure ends the job */
    struct job_preempt *preempt; /* NULL: nobody tells which hosts go */
    int window;                  /* bytes of output in flight, per host */
    uv_timer_t limit_timer;      /* --start-timeout, then --timeout */
    /* hosts that are overdue; before that, the notice */
    uv_timer_t end_timer;
    uv_timer_t beat_timer;
    uv_timer_t wait_timer; /* progress */
    uv_timer_t stop_timer; /* waits for queued messages before a stop */
    uv_timer_t stall_timer;
    uv_timer_t stall_end_timer; /* lets ranks read why before they are ended */
    uv_timer_t blame_timer;     /* lets a blamed rank end by itself */
    uv_timer_t settle_timer;    /* lets ranks that have left come back */
    uv_timer_t elastic_timer;   /* --elastic-timeout */
    uv_timer_t restart_timer;   /* of ranks that have failed */
    uv_timer_t grow_timer;      /* until a host may be used again */
    uv_timer_t leave_timer;     /* deadlines of ranks that are to leave */
    uv_timer_t counts_timer;    /* until agents are asked again */
    uv_timer_t deadline_timer;  /* until the batch system's job is to end */
    uv_timer_t apart_timer;     /* lets more ranks report silent hosts */
    int deadline_is_near;       /* and it has been said */
    uint64_t watched_until_ns;  /* they are asked until then */
    uint64_t limit_left_ms;     /* of limit_timer, while stopped by SIGTSTP */
    int stop_tries;
    int open_parts; /* handles that close at the end */

    unsigned char *exited; /* [size] ranks that have exited: enum job_exit */
    int exited_count;
    /* In order of death, by our clock. */
    struct control_exited *failed; /* ranks that failed by themselves */
    uint64_t *failed_ns;           /* times of death, by our clock */
    size_t failed_count, failed_cap;
    struct report_trouble *troubles; /* in order of time */
    size_t trouble_count, trouble_cap;
    int alive_at_end; /* number of ranks that ran when the end began */
    size_t failed_before_end;

    int has_verdict; /* the cause of the end is known */
    /* the cause is the first of the failures and troubles, of which an earlier
     * one may still be heard of */
    int by_failure;
    int verdict_code; /* exit code of another cause */
    char *cause;      /* the line that states the cause; NULL: see by_failure */
    int same_host;    /* ended because two names are one host */
    int output_failed; /* ranks' output was lost */
    int silent;        /* the cause needs no report */
    /* ended by a signal or a time limit, which a slow reader of the output must
     * not delay */
    int urgent;
    int signals; /* SIGINT, SIGTERM, SIGHUP so far */
    int noticed; /* the user was told which ranks are waited for */
};

/* ---- job.c ---- */

/* Runs the state machine for an event. */
void job_event(struct job *job, enum job_event event);
/* Posts JOB_EV_DRAINED if all connections are closed and all output written. */
void job_check_drained(struct job *job);
/* Posts JOB_EV_GONE if all hosts have finished. */
void job_check_gone(struct job *job);
int job_count_alive(const struct job *job);
void job_start_limit(struct job *job, uint64_t left_ms);
/* Returns the most bytes of output in flight per host, chosen so that the total
 * is bounded. */
int job_window(int hosts);

/* ---- job_end.c ---- */

/* Sets the cause of the job's end, unless there is one; `fmt` NULL: no line. */
void job_verdict(struct job *job, int exit_code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes whole lines of hvdrun's own to stderr and into the record. */
void job_message(struct job *job, const struct hb_buf *text);
void job_say(struct job *job, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Handles an agent's EXITED; takes over the message's strings. */
void job_rank_exited(struct job *job, struct job_host *host,
                     struct control_exited *m);
/* Ends the job because of the first failure, if an elastic job does not go on;
 * but waits a moment while the culprit still runs, because ending the job would
 * kill it by a signal before it returns its own exit code. */
void job_check_failure(struct job *job);
/* Records a trouble of the host, which may be the cause of the job's end;
 * takes_ranks: its ranks end with it. */
void job_host_trouble(struct job_host *host, int exit_code, uint64_t when_ns,
                      int takes_ranks, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Decides the exit code from what is known now.  In this order: the first
 * failure or trouble by the common clock, another cause, two names of one host,
 * lost output; 0: none of these. */
int job_exit_code(const struct job *job);
/* Returns the end of the rank whose failure is the cause of the job's end; NULL
 * if there is another cause. */
const struct control_exited *job_culprit(const struct job *job);
/* Tells the user once which ranks are waited for. */
void job_notice(struct job *job);
void job_report(struct job *job);
/* Appends the death as other ranks are told of it: one line. */
void job_death_text(const struct job *job, struct hb_buf *out,
                    const struct control_exited *m);
/* Forgets failures and troubles: the job goes on in spite of them. */
void job_forget_failures(struct job *job);
/* Forgets the failures of a rank that is started again. */
void job_forget_failure(struct job *job, int rank);
void job_end_free(struct job *job);

/* ---- job_wait.c ---- */

void job_wait_start(struct job *job); /* starts the progress line */
void job_wait_end(struct job *job);
/* Returns how long a line on the terminal may be. */
size_t job_terminal_width(void);
/* Checks whether every host has connected or failed. */
void job_check_connected(struct job *job);
/* Turns the setbacks of hosts that are still being tried into troubles, and
 * sorts the troubles in the order of the hosts: the start has failed. */
void job_start_failed(struct job *job);
/* Makes --start-timeout the cause: names the hosts waited for and their
 * state. */
void job_start_timeout(struct job *job);

/* ---- job_beat.c ---- */

void job_beat_start(struct job *job);
void job_beat_end(struct job *job);
/* Sends PING: asks for the host's clock, sets the silence that it allows us. */
void job_beat_ping(struct job_host *host);
void job_beat_heard(void *host); /* any message came */
int job_beat_pong(void *host, const struct frame *f, struct hb_error *err);
/* Suspends the limit on our own silence before this process stops, and restores
 * it afterwards. */
void job_beat_pause(struct job *job);
void job_beat_resume(struct job *job);
/* Loses the hosts that have not answered since KILL: the grace time is over. */
void job_beat_give_up(struct job *job);

/* ---- job_io.c ---- */

int job_open_output(struct job *job, struct hb_error *err);
/* Opens stdin if the config asks for it; the ranks run. */
void job_open_input(struct job *job);

/* ---- job_trace.c ---- */

/* Creates the timeline file.  0, or negative with err set. */
int job_trace_open(struct job *job, struct hb_error *err);
void job_trace_free(struct job *job);
/* Handles TRACE or STATS; the caller has checked that the rank is the
 * host's. */
/* Expects a timeline and statistics of the rank again: it is another process,
 * perhaps on another host. */
void job_trace_renew(struct job *job, int rank);
int job_trace_bytes(struct job_host *host, const struct control_bytes *m,
                    struct hb_error *err);
int job_trace_stats(struct job_host *host, const struct control_bytes *m,
                    struct hb_error *err);
/* Completes the file and reports what is missing; prints the statistics. */
void job_trace_end(struct job *job);

/* Returns the sum of the ranks' statistics, which the trace keeps. */
const struct stats_sum *job_trace_sum(const struct job *job);

/* ---- job_record.c: without --report, --http and --status, these do nothing
 * ---- */

/* Checks that the files can be written.  0, or negative with err set. */
int job_record_open(struct job *job, struct hb_error *err);
void job_record_free(struct job *job);
void job_record_state(struct job *job); /* job->state is a new one */
void job_record_reached(const struct job_host *host,
                        const struct control_hello *m);
void job_record_trouble(const struct job_host *host, const char *text);
/* Notes that a rank's process was started; pid 0: not known yet. */
void job_record_started(const struct job_host *host, int rank, pid_t pid);
/* Adds a rank's end to the record; job->exited[rank] is already set. */
void job_record_exited(const struct job_host *host,
                       const struct control_exited *m, uint64_t when_ns);
/* Marks the host's ranks as ended if the host was lost. */
void job_record_lost(const struct job_host *host);
void job_record_stats(struct job *job, int rank, const struct worker_stats *m);
/* Adds what a running rank has counted so far. */
void job_record_counts(struct job *job, int rank,
                       const struct status_counts *c);
/* Adds lines that hvdrun has printed to the record's events. */
void job_record_event(struct job *job, const char *text, size_t len);
/* Keeps the text of the failure report; "" if there is none. */
void job_record_report(struct job *job, const char *text);
/* Writes the files, once, and reports those that cannot be written. */
void job_record_end(struct job *job);
/* Sets *view to the record of the job as it is now.  The view borrows the job's
 * memory: it is valid until control returns to the loop, and is not freed. */
void job_record_view(const struct job *job, struct record *view);

/* ---- job_deadline.c ---- */

void job_deadline_start(struct job *job); /* all ranks run */
void job_deadline_end(struct job *job);
/* Appends that the batch system's job was about to end, if it was. */
void job_deadline_note(const struct job *job, struct hb_buf *out);

/* ---- job_serve.c: without --http, these do nothing ---- */

/* Listens and starts to answer.  0, or negative with err set. */
int job_serve_open(struct job *job, struct hb_error *err);
void job_serve_tell(struct job *job); /* prints where the status is */
/* Stops answering: calls `closed` later, as often as it returns. */
int job_serve_close(struct job *job, void (*closed)(struct job *job));
/* Undoes job_serve_open in a job that has not started. */
void job_serve_abandon(struct job *job);
void job_serve_free(struct job *job);

/* ---- job_counts.c ---- */

/* Notes that somebody watches the job: agents are asked for a while. */
void job_counts_watch(struct job *job);
/* Starts to show the line of --status, if it is wanted: all ranks run. */
void job_status_start(struct job *job);
void job_status_end(struct job *job); /* removes the line; idempotent */
int job_counts_frame(void *host, const struct frame *f, struct hb_error *err);

/* ---- job_routes.c: between JOB_EV_CONNECTED and JOB_EV_ROUTED ---- */

int job_routes_open(struct job *job, struct hb_error *err);
int job_routes_hello(struct job_host *host, const struct control_hello *m,
                     struct hb_error *err);
void job_routes_begin(struct job *job);
int job_routes_frame(void *host, const struct frame *f, struct hb_error *err);
/* Sets host_index, peers and the ranks' variables in m; undo with _release. */
void job_routes_fill(const struct job_host *host, struct control_launch *m);
void job_routes_release(const struct job_host *host, struct control_launch *m);

/* ---- job_same.c ---- */

/* Keeps what HELLO says about the host's identity. */
void job_same_hello(struct job_host *host, const struct control_hello *m);
/* Fills in config->same_as; 1 if two names are of one host, else 0. */
int job_same_found(const struct job *job);

/* ---- job_stall.c ---- */

void job_stall_open(struct job *job);
void job_stall_start(struct job *job); /* all ranks run */
void job_stall_end(struct job *job);   /* the ranks are being ended */
/* Returns 1 while ranks are being told that the job is over because of a stall;
 * the first of them may end meanwhile. */
int job_stall_ending(const struct job *job);
void job_stall_rank_gone(struct job *job, int rank);
void job_stall_absent(struct job *job, int rank); /* it is not started */
/* Notes which ranks are in the generation that begins. */
void job_stall_members(struct job *job, const int *ranks, int count);
void job_stall_resumed(struct job *job); /* the ranks had been stopped */
/* Notes that a rank gets no answer from the host of another. */
void job_stall_no_answer(struct job *job, int rank, int peer);
int job_stall_frame(void *host, const struct frame *f, struct hb_error *err);

/* ---- job_elastic.c: in other jobs, these do nothing and return 0 ---- */

void job_elastic_open(struct job *job);
void job_elastic_free(struct job *job);
/* Returns whether the ranks that are left go on by themselves. */
int job_elastic_goes_on(const struct job *job);
/* Returns whether the rank was lost with its host. */
int job_elastic_is_gone(const struct job *job, int rank);
/* Returns whether only ranks are left that the job does not need. */
int job_elastic_is_done(const struct job *job);
/* Keeps a rank's pid, for messages. */
void job_elastic_started(struct job *job, int rank, pid_t pid);
int job_elastic_frame(void *host, const struct frame *f, struct hb_error *err);
int job_elastic_progress(void *host, const struct frame *f,
                         struct hb_error *err);
int job_apart_frame(void *host, const struct frame *f, struct hb_error *err);
void job_elastic_finished(struct job *job, int rank); /* exit code 0 */
/* Handles the failure of a rank, or the loss of a host, and reports it.
 * Returns 1 if the job goes on; if 0, the failure is to end it. */
int job_elastic_failed(struct job *job, const struct control_exited *m,
                       uint64_t when_ns);
int job_elastic_host_lost(struct job_host *host, uint64_t when_ns,
                          const char *why);
void job_elastic_end(struct job *job);     /* the ranks are being ended */
void job_elastic_resumed(struct job *job); /* the ranks had been stopped */
/* Returns the number of the job's generation; -1 if the job is not elastic. */
int job_elastic_generation(const struct job *job);
/* Reports which ranks were lost in a job that ends well. */
void job_elastic_report(struct job *job);

/* ---- job_grow.c: in jobs that do not grow, these do nothing ---- */

/* Starts ranks and reaches hosts, as far as there are hosts for them. */
void job_grow(struct job *job);
/* Handles the HELLO of a host that was added while the ranks run. */
int job_grow_hello(struct job_host *host, struct hb_error *err);
void job_grow_started(struct job_host *host); /* its agent can start ranks */
/* Notes a failure of the host: its ranks', or its own.  It is left alone for a
 * while. */
void job_grow_strike(struct job_host *host);
/* Reports why a host could not be added.  Returns 0 if it was not being
 * added. */
int job_grow_trouble(struct job_host *host, const char *why);
void job_grow_end(struct job *job); /* gives up hosts that are being added */
/* Calls job_grow when the present event has been handled. */
void job_grow_soon(struct job *job);

/* ---- job_grow_routes.c: the same ---- */

int job_grow_route_frame(struct job_host *host, const struct frame *f,
                         struct hb_error *err);
void job_grow_host_gone(struct job_host *host);

/* ---- job_leave.c ---- */

/* Asks ranks to leave at their next commit: the others go on without them, and
 * hvd_sync returns -HVD_EREMOVED in them.  Those that have not exited after
 * left_ms (-1: never) are killed.  `why` is one line: "host n2 goes".  Ranks
 * that have ended are skipped, and will not be started again.  Returns 0, or -1
 * with nothing done: the job is not elastic or ends, or too few ranks would
 * stay. */
int job_remove_ranks(struct job *job, const int *ranks, int count,
                     int64_t left_ms, const char *why);
/* Asks all ranks of a host to leave, as job_remove_ranks, and tells the user;
 * if too few would stay, asks all ranks to stop.  `who` says it goes.  The host
 * is not used until a while after left_ms.  While hosts are still starting, it
 * is kept for job_hosts_go. */
void job_host_goes(struct job *job, int host, int64_t left_ms, const char *who);
/* Asks the ranks of all listed hosts to leave at the same commit.  `find`
 * returns a host's index by its name, or -1 if the job does not have it. */
void job_these_hosts_go(struct job *job, const struct going *list, size_t count,
                        int (*find)(void *arg, const char *name), void *arg,
                        const char *who);
/* Handles GOING. */
int job_going_frame(void *host, const struct frame *f, struct hb_error *err);
/* Asks all ranks to leave at one commit, after which the job ends with
 * JOB_EXIT_STOPPED.  If they have not exited after left_ms, it ends them, with
 * late_code.  Returns 0, or -1 with nothing done: the job is not elastic, does
 * not run, or stops already. */
int job_stop_at_commit(struct job *job, int64_t left_ms, int late_code,
                       const char *why);
/* Returns whether all ranks have left at a commit (job_stop_at_commit). */
int job_elastic_stopped(const struct job *job);
/* Handles what job_host_goes has kept: all hosts have started. */
void job_hosts_go(struct job *job);
/* Ends the host's agent if the host goes and no rank runs there any more, or
 * all agents if all ranks have left at a commit: those that could start ranks
 * again wait to be told.  Called when a rank of the host has ended. */
void job_elastic_end_left(struct job_host *host);
/* Kills a rank; why: "by hvdrun: ...".  It counts as one that has died. */
void job_evict_rank(struct job *job, int rank, const char *why);

/* Kills ranks of an elastic job that have kept others waiting, if enough are
 * left then or they will be started again: 1, or 0 with nothing done. */
int job_evict_hanging(struct job *job, const int *ranks, int count,
                      int64_t waited_ms);

/* ---- job_preempt.c ---- */

/* Starts to ask which hosts go away; the ranks run. */
void job_preempt_open(struct job *job);
/* Stops asking: calls `closed` later, as often as it returns. */
int job_preempt_close(struct job *job, void (*closed)(struct job *job));
void job_preempt_free(struct job *job);

/* ---- job_sweep.c ---- */

/* Opens another connection to a host whose agent is lost, and ends what may be
 * left there, before JOB_EV_GONE. */
void job_sweep(struct job_host *host);
/* Gives up on sweeps in progress: there is no time left. */
void job_sweep_give_up(struct job *job);
/* Tells the user which hosts are being connected to again. */
void job_sweep_notice(struct job *job);
void job_sweep_report(struct job *job);
void job_sweep_free(struct job_host *host);

/* ---- job_host.c ---- */

void job_host_open(struct job_host *host);
void job_host_free(struct job_host *host); /* frees its contents */
/* Stops waiting for the other end of a remote connection that is closing. */
void job_host_cancel(struct job_host *host);
int job_host_finished(const struct job_host *host);
void job_host_finish(struct job_host *host, enum host_state state);
/* Loses the host, because nothing was heard of it since asked_ns. */
void job_host_silent(struct job_host *host, const char *why);
/* Loses a host that hvdrun reaches: `why` says what is wrong there. */
void job_host_give_up(struct job_host *host, const char *why);
void job_host_launch(struct job_host *host);
/* Appends HOSTS as the host gets it. */
void job_host_encode_hosts(const struct job_host *host, struct hb_buf *frame);
/* Queues a frame for a host, unless its connection is closing or closed. */
void job_send(void *job, int host, const struct hb_buf *frame);
int job_host_send_u32(struct job_host *host, enum control_type type,
                      uint32_t value);
void job_host_ack(struct job_host *host, size_t len);
int job_host_is_local(const struct job_host *host);
const char *host_state_name(enum host_state state);

/* ---- job_frames.c ---- */

extern const struct agent_message job_messages[AGENT_MESSAGES];
int job_host_hello(void *host, struct hb_error *err); /* handles HELLO */
/* Checks that the rank is one of the host's: 0, or -HVD_EPROTO. */
int job_check_rank(const struct job_host *host, int rank, struct hb_error *err);

#endif
