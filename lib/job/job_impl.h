/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct job, shared by job.c (life, end, report) and
 * job_host.c (one host's connection and what its agent says).
 */
#ifndef HVD_JOB_IMPL_H
#define HVD_JOB_IMPL_H

#include "lib/job/input.h"
#include "lib/job/job.h"
#include "lib/job/output.h"
#include "lib/job/rendezvous.h"
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

struct job_host {
    struct job *job;
    const struct plan_host *plan;
    const char *name;
    int index;
    enum host_state state;
    struct transport *transport; /* NULL when closed */
    struct hb_buf in;            /* not yet a whole frame */
    struct hb_buf complaint;     /* the agent's stderr, a part of a line */
    char stage[96];              /* what is done to reach it; "" */
    size_t ack_len;              /* written out, OUTPUT_ACK not yet sent */
};

struct job {
    const struct job_config *config;
    void (*on_done)(void *arg, int exit_code);
    void *arg;

    enum job_state state;
    uint64_t state_since_ns;
    struct job_host *hosts;
    int connected, started, finished; /* counts of hosts */
    int open_transports;
    struct output *output;
    struct input *input;
    struct job_rendezvous *rendezvous;
    struct routes *routes;  /* NULL: one host and nothing to choose */
    uv_timer_t limit_timer; /* --start-timeout, then --timeout */
    uv_timer_t end_timer;   /* hosts that do not end; the notice before */
    uint64_t limit_left_ms; /* while stopped by SIGTSTP */
    int open_parts;         /* handles that close at the end */

    unsigned char *exited; /* [size] ranks that have exited */
    int exited_count;
    struct control_exited *failed; /* those that failed by themselves */
    size_t failed_count, failed_cap;
    int alive_at_end; /* ranks that ran when the end began */
    size_t failed_before_end;

    int has_verdict; /* the first cause of the end decides */
    int exit_code;
    char *cause; /* its line; NULL: the first failed rank */
    int silent;  /* the cause needs no report */
    int urgent;  /* ended by a signal or a time limit: a reader that does
                    not read must not hold it up */
    int signals; /* INT, TERM, HUP so far */
};

/* The state machine takes an event. */
void job_event(struct job *job, enum job_event event);
/* Keeps the first cause of the job's end. `fmt` NULL: the failed rank. */
void job_verdict(struct job *job, int exit_code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void job_say(struct job *job, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* An agent's EXITED; takes the message's strings. */
void job_rank_exited(struct job *job, struct control_exited *m);
/* One more connection is gone, or output was written: perhaps the last. */
void job_check_drained(struct job *job);

int job_open_output(struct job *job, struct hb_error *err);
/* If the config asks for it; ranks run. */
void job_open_input(struct job *job);

/* job_routes.c: between the last HELLO and JOB_EV_CONNECTED. */
int job_routes_open(struct job *job, struct hb_error *err);
int job_routes_hello(struct job_host *host, const struct control_hello *m,
                     struct hb_error *err);
void job_routes_begin(struct job *job);
int job_routes_frame(struct job_host *host, const struct frame *f,
                     struct hb_error *err);
/* host_index, peers and the ranks' variables; until _release. */
void job_routes_fill(const struct job_host *host, struct control_launch *m);
void job_routes_release(const struct job_host *host, struct control_launch *m);

void job_host_open(struct job_host *host);
void job_host_close(struct job_host *host);
void job_host_launch(struct job_host *host);
/* Sends if the agent is there to hear it; -HVD_ECLOSED otherwise. */
int job_host_send(struct job_host *host, const struct hb_buf *frame);
int job_host_send_u32(struct job_host *host, enum control_type type,
                      uint32_t value);
void job_host_ack(struct job_host *host, size_t len);
const char *host_state_name(enum host_state state);

#endif
