/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct job, shared by
 *
 *     job.c         its life: start, the actions of the state machine, end
 *     job_signal.c  what the user's signals do
 *     job_end.c     why it ends: failed ranks, troubles of hosts, the report
 *     job_wait.c    the wait for hosts: progress, time-out
 *     job_beat.c    heartbeats and clocks
 *     job_host.c    one host's connection, and what is said to its agent
 *     job_frames.c  what agents say
 *     job_io.c      output and input
 *     job_routes.c  the round of routes
 *     job_trace.c   timelines and statistics
 *     job_stall.c   ranks that wait too long
 */
#ifndef HVD_JOB_IMPL_H
#define HVD_JOB_IMPL_H

#include "lib/job/input.h"
#include "lib/job/job.h"
#include "lib/job/offset.h"
#include "lib/job/output.h"
#include "lib/job/rendezvous.h"
#include "lib/job/report.h"
#include "lib/job/routes.h"
#include "lib/job/state.h"
#include "lib/transport/transport.h"

enum host_state {
    HOST_CONNECTING, /* no HELLO yet */
    HOST_CONNECTED,
    HOST_LAUNCHED, /* LAUNCH sent */
    HOST_STARTED,
    HOST_DONE, /* nothing of the job is left there */
    HOST_LOST, /* the connection ended or broke before that */
};

struct job_trace;

struct job_host {
    struct job *job;
    const struct plan_host *plan;
    const char *name;
    int index;
    enum host_state state;
    struct transport *transport; /* NULL after on_close */
    int closing;                 /* nothing is sent, or heard, any more */
    int quitting;                /* the agent has told why it ends */
    struct hb_buf in;            /* not yet a whole frame */
    struct hb_buf complaint;     /* the agent's stderr, a part of a line */
    char *last_words;            /* the last whole line of that; or NULL */
    int lines;                   /* of it and of LOG, so far */
    char stage[96];              /* what is done to reach it; "" */
    size_t ack_len;              /* written out, OUTPUT_ACK not yet sent */
    size_t in_flight;            /* output that was not acknowledged */

    struct offset clock;
    int beats_missed;  /* PINGs in a row after which nothing was heard */
    uint64_t asked_ns; /* the first of them; 0: none */
    int was_launched;  /* LAUNCH was sent, and has not failed */
    int unheard; /* nothing was heard since it was told to end its ranks */
};

struct job {
    const struct job_config *config;
    void (*on_done)(void *arg, int exit_code);
    void *arg;

    enum job_state state;
    uint64_t state_since_ns;
    struct job_host *hosts;
    int started, finished; /* counts of hosts */
    int open_transports;
    struct output *output;
    struct input *input;
    struct routes *routes; /* NULL: one host and nothing to choose */
    struct job_rendezvous *rendezvous;
    struct job_trace *trace;
    struct stall *stall;
    int window;             /* bytes of output in flight, per host */
    uv_timer_t limit_timer; /* --start-timeout, then --timeout */
    uv_timer_t end_timer;   /* hosts that do not end; the notice before */
    uv_timer_t beat_timer;
    uv_timer_t wait_timer; /* progress */
    uv_timer_t stop_timer; /* what is to be sent before this process stops */
    uv_timer_t stall_timer;
    uv_timer_t stall_end_timer; /* ranks hear why before they end */
    uint64_t limit_left_ms;     /* while stopped by SIGTSTP */
    int stop_tries;
    int open_parts; /* handles that close at the end */

    unsigned char *exited; /* [size] ranks that have exited */
    int exited_count;
    /* In order of death, as far as the clocks tell. */
    struct control_exited *failed; /* those that failed by themselves */
    uint64_t *failed_ns;           /* when, by our clock */
    size_t failed_count, failed_cap;
    struct report_trouble *troubles; /* likewise */
    size_t trouble_count, trouble_cap;
    int alive_at_end; /* ranks that ran when the end began */
    size_t failed_before_end;

    int has_verdict; /* the first cause of the end decides */
    int by_failure;  /* it is the first of ranks' failures and hosts' troubles,
                        the report tells which */
    int exit_code;
    char *cause; /* its line; NULL: see by_failure */
    int silent;  /* the cause needs no report */
    int urgent;  /* ended by a signal or a time limit: a reader that does
                    not read must not hold it up */
    int signals; /* INT, TERM, HUP so far */
    int noticed; /* the user knows what is waited for at the end */
};

/* ---- job.c ---- */

/* The state machine takes an event. */
void job_event(struct job *job, enum job_event event);
/* One more connection is gone, or output was written: perhaps the last. */
void job_check_drained(struct job *job);
/* After a host was finished: perhaps the last. */
void job_check_gone(struct job *job);
int job_count_alive(const struct job *job);
void job_start_limit(struct job *job, uint64_t left_ms);
/* Bytes of output in flight per host, so that those of all are bounded. */
int job_window(int hosts);

/* ---- job_end.c ---- */

/* Keeps the first cause of the job's end.  `fmt` NULL: nothing to say. */
void job_verdict(struct job *job, int exit_code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void job_say(struct job *job, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* An agent's EXITED; takes the message's strings. */
void job_rank_exited(struct job *job, struct job_host *host,
                     struct control_exited *m);
/* A trouble of that host, which is a cause of the job's end. */
void job_host_trouble(struct job_host *host, int exit_code, uint64_t when_ns,
                      int takes_ranks, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* What is waited for, once. */
void job_notice(struct job *job);
void job_report(struct job *job);
void job_end_free(struct job *job);

/* ---- job_wait.c ---- */

void job_wait_start(struct job *job); /* hosts are being connected to */
void job_wait_end(struct job *job);
/* A host was reached, or cannot be. */
void job_check_connected(struct job *job);
/* The hosts that are waited for, and what they do. */
void job_start_timeout(struct job *job);

/* ---- job_beat.c ---- */

void job_beat_start(struct job *job);
void job_beat_end(struct job *job);
/* Asks for the host's clock and tells it what silence means. */
void job_beat_ping(struct job_host *host);
void job_beat_heard(struct job_host *host); /* anything */
int job_beat_pong(struct job_host *host, const struct frame *f,
                  struct hb_error *err);
/* This process is about to stop: its silence means nothing; and goes on. */
void job_beat_pause(struct job *job);
void job_beat_resume(struct job *job);
/* The job has been ending for its whole grace time. */
void job_beat_give_up(struct job *job);

/* ---- job_io.c ---- */

int job_open_output(struct job *job, struct hb_error *err);
/* If the config asks for it; ranks run. */
void job_open_input(struct job *job);

/* ---- job_trace.c ---- */

/* Makes the file.  0 or negative with err set. */
int job_trace_open(struct job *job, struct hb_error *err);
void job_trace_free(struct job *job);
/* TRACE and STATS; the rank is the host's. */
int job_trace_bytes(struct job_host *host, const struct control_bytes *m,
                    struct hb_error *err);
int job_trace_stats(struct job_host *host, const struct control_bytes *m,
                    struct hb_error *err);
/* All hosts have ended: what there is to be said. */
void job_trace_end(struct job *job);

/* ---- job_routes.c: between JOB_EV_CONNECTED and JOB_EV_ROUTED ---- */

int job_routes_open(struct job *job, struct hb_error *err);
int job_routes_hello(struct job_host *host, const struct control_hello *m,
                     struct hb_error *err);
void job_routes_begin(struct job *job);
int job_routes_frame(struct job_host *host, const struct frame *f,
                     struct hb_error *err);
/* host_index, peers and the ranks' variables; until _release. */
void job_routes_fill(const struct job_host *host, struct control_launch *m);
void job_routes_release(const struct job_host *host, struct control_launch *m);

/* ---- job_stall.c ---- */

void job_stall_open(struct job *job);
void job_stall_end(struct job *job); /* the ranks are being ended */
/* The ranks hear that the job is over, and the first to do so may end. */
int job_stall_ending(const struct job *job);
void job_stall_rank_gone(struct job *job, int rank);
void job_stall_resumed(struct job *job); /* the ranks had been stopped */
int job_stall_frame(struct job_host *host, const struct frame *f,
                    struct hb_error *err);

/* ---- job_host.c ---- */

void job_host_open(struct job_host *host);
void job_host_free(struct job_host *host); /* what it holds */
void job_host_close(struct job_host *host);
/* Without waiting for what is at the other end, where that is elsewhere. */
void job_host_cancel(struct job_host *host);
int job_host_finished(const struct job_host *host);
void job_host_finish(struct job_host *host, enum host_state state);
/* The connection broke, or cannot be trusted. */
void job_host_lost(struct job_host *host, const char *why);
/* Nothing was heard for too long, since asked_ns. */
void job_host_silent(struct job_host *host, const char *why);
void job_host_launch(struct job_host *host);
/* Sends if the agent is there to hear it; -HVD_ECLOSED otherwise. */
int job_host_send(struct job_host *host, const struct hb_buf *frame);
int job_host_send_u32(struct job_host *host, enum control_type type,
                      uint32_t value);
void job_host_ack(struct job_host *host, size_t len);
int job_host_is_local(const struct job_host *host);
const char *host_state_name(enum host_state state);

/* ---- job_frames.c ---- */

int job_on_frame(struct job_host *host, const struct frame *f,
                 struct hb_error *err);

#endif
