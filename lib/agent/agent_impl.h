/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's insides, shared by agent.c, launch.c and death.c only. */
#ifndef HVD_AGENT_AGENT_IMPL_H
#define HVD_AGENT_AGENT_IMPL_H

#include "lib/agent/agent.h"
#include "lib/agent/cause.h"
#include "lib/agent/endpoint.h"
#include "lib/agent/link.h"
#include "lib/agent/pump.h"
#include "lib/agent/query.h"
#include "lib/agent/route.h"
#include "lib/agent/stack.h"
#include "lib/agent/state.h"

#include "lib/base/log.h"
#include "lib/protocol/control.h"

enum {
    AGENT_LINGER_MS = 250,    /* for what outlives ranks that ended well */
    AGENT_KILL_FIRST_MS = 4,  /* from one round of SIGKILL to the next, */
    AGENT_KILL_MOST_MS = 128, /* doubled each time up to this */
    AGENT_KILL_GIVE_UP_MS = 5000,
    AGENT_KILL_BLIND_MS = 200, /* the same where /proc cannot be read */
    AGENT_EVENTS_MAX = 16,
};

struct agent_rank {
    pid_t pid;
    int pidfd;     /* -1 once it has ended */
    uint64_t sent; /* bit n: we sent signal n */
    siginfo_t info;
    struct rlimit cpu; /* RLIMIT_CPU when it died, and the time used */
    int64_t cpu_ms;
    uint64_t when_ns;
};

/* What a rank has told about its waiting. */
struct agent_told {
    struct worker_stalled m;
    int unsent;
};

/* The answers to hvdrun's questions about ranks that wait. */
struct agent_stall {
    struct agent_told *told; /* by slot; NULL: nobody has */
    int unsent;              /* of these */
    uv_timer_t timer;
    int id;           /* of the question about all ranks under way; 0: none */
    uint64_t *cpu_ns; /* that each rank had used when it came, by slot */
    uint64_t since_ns;
    struct control_stall_ask ask; /* whose stacks are wanted */
    int at;                       /* of these, the next */
    struct stack *stack;          /* being taken, or NULL */
    char *path;                   /* the job's PATH, or NULL */
};

/* Timelines, and what the ranks counted; see trace.c. */
struct agent_trace {
    char *dir;                   /* of the ranks' files; NULL: none */
    int begun;                   /* to send */
    int slot;                    /* whose is sent; rank_count: all were */
    int fd;                      /* of it, or -1 */
    struct worker_stats **stats; /* by slot; NULL: none came */
};

struct agent {
    struct agent_config config;
    pid_t parent; /* the guardian */
    struct hb_log log;
    struct link link;
    struct pump pump;
    struct endpoint endpoint;
    struct cause cause;
    struct query query;
    struct route *route; /* NULL before ROUTE_LISTEN */
    int pump_open, endpoint_open, cause_open;

    struct control_launch job;
    int job_held;
    char *tmpdir;
    struct agent_rank *ranks;
    int live, failed; /* ranks */
    int port_fd;

    int death_fd; /* epoll of the ranks' pidfds, in order of death */
    int signal_fd;
    uv_poll_t death_poll, signal_poll;
    uv_timer_t timer;

    uv_timer_t beat;
    int beats_missed;    /* turns in a row in which hvdrun was silent */
    uint32_t silence_ms; /* of hvdrun that ends the job; 0: none does */

    struct agent_stall stall;
    struct agent_trace trace;

    enum agent_state state;
    enum agent_event events[AGENT_EVENTS_MAX]; /* posted, not yet handled */
    int event_count, stepping;
    uint64_t since_ns, kill_since_ns;
    uint64_t kill_wait_ms;
    int gone; /* hvdrun */
    int closed, rc;
    int reported;                  /* DONE or FAILED is on its way */
    struct control_failed failure; /* of the launch; text NULL: none */
};

/* Handles the event now, or right after the one being handled. */
void agent_post(struct agent *a, enum agent_event event);
/* Posts AGENT_EMPTY or how the ranks ended, if either is the case now. */
void agent_check_empty(struct agent *a);

/* A request of a worker, for hvdrun. */
void agent_ask_rendezvous(void *arg, const struct rdv_request *m);

/* signals.c */
int agent_watch_signals(struct agent *a, struct hb_error *err);

/* beat.c: PING. */
int agent_on_ping(struct agent *a, const struct frame *f, struct hb_error *err);

/* agent.c: hvdrun is gone, or taken for that. */
void agent_hang_up(struct agent *a);

/* stall.c */
void agent_stall_init(struct agent *a);
void agent_stall_close(struct agent *a); /* its handles */
void agent_stall_fini(struct agent *a);  /* its memory */
int agent_on_stall_ask(struct agent *a, const struct frame *f,
                       struct hb_error *err);
/* The link has room again. */
void agent_stall_flush(struct agent *a);
/* For the endpoint: a rank waits too long, or does no more. */
void agent_on_stalled(void *arg, int slot, const struct worker_stalled *m);

/* trace.c.  Before the ranks; 0 or negative with err set. */
int agent_trace_open(struct agent *a, struct hb_error *err);
char *agent_trace_variable(const struct agent *a); /* heap, or NULL */
/* For the endpoint. */
void agent_on_stats(void *arg, int slot, const struct worker_stats *m);
/* Sends what is to be sent, until the link is full; 1 when nothing is, or
 * hvdrun has answered. */
int agent_trace_send(struct agent *a);
/* hvdrun's answer. */
int agent_trace_taken(struct agent *a, uint32_t all, struct hb_error *err);
/* Nobody waits for them. */
void agent_trace_keep(struct agent *a);
void agent_trace_fini(struct agent *a);

/* launch.c: 0 (STARTED is queued), or negative with a->failure set. */
int agent_launch(struct agent *a);

/* route_orders.c: ROUTE_LISTEN and ROUTE_PROBE. */
int agent_on_route(struct agent *a, const struct frame *f,
                   struct hb_error *err);

/* death.c */
int agent_watch_deaths(struct agent *a, struct hb_error *err);
int agent_watch_rank(struct agent *a, int slot, struct hb_error *err);
void agent_reap_orphans(struct agent *a);
void agent_signal_ranks(struct agent *a, int signo);

extern const struct pump_events agent_pump_events;

#endif
