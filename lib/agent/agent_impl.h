/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's internals, shared by its own .c files only. */
#ifndef HVD_AGENT_AGENT_IMPL_H
#define HVD_AGENT_AGENT_IMPL_H

#include "lib/agent/agent.h"
#include "lib/agent/agent_state.h"
#include "lib/agent/endpoint.h"
#include "lib/agent/horovod/horovod_rdv.h"
#include "lib/agent/link.h"
#include "lib/agent/query/agent_query.h"
#include "lib/agent/rank/cause.h"
#include "lib/agent/rank/pump.h"
#include "lib/agent/route/route.h"
#include "lib/agent/stall/stack.h"
#include "lib/agent/wireup/wireup.h"

#include "lib/base/log.h"
#include "lib/protocol/control/control.h"

enum {
    /* grace for descendants after all ranks exited 0 */
    AGENT_LINGER_MS = 250,
    AGENT_KILL_FIRST_MS = 4,  /* delay before the second round of SIGKILL, */
    AGENT_KILL_MOST_MS = 128, /* doubled after each round up to this */
    AGENT_KILL_GIVE_UP_MS = 5000,
    AGENT_KILL_BLIND_MS = 200, /* give-up time where /proc cannot be read */
    AGENT_EVENTS_MAX = 16,
    AGENT_FAULT_MS = 50, /* for a rank that called MPI_Abort to exit */
};

struct agent_rank {
    pid_t pid;
    int pidfd;     /* -1 once it has ended */
    uint64_t sent; /* bit n: we sent signal n */
    siginfo_t info;
    struct rlimit cpu; /* RLIMIT_CPU at its death */
    int64_t cpu_ms;
    uint64_t when_ns;
    /* Why the rank counts as failed, whatever its process does: it has called
     * MPI_Abort, or has ended without MPI_Finalize. */
    struct {
        char *text; /* NULL: it does not */
        int exit_code, blames;
    } fault;
    char *evicted; /* why hvdrun had it killed, or NULL */
    /* The end of its process was reported, but the process has not been reaped:
     * it is dying. */
    int is_reported;
    int is_awaited; /* hvdrun wants the rank started again after that */
};

/* The last STALLED of a rank. */
struct agent_stall_report {
    struct worker_stalled m;
    int unsent;
};

/* What this host knows of waiting ranks, and hvdrun's questions about them
 * (STALL_ASK). */
struct agent_stall {
    /* by slot; NULL before the first STALLED */
    struct agent_stall_report *reports;
    int unsent; /* how many reports have unsent set */
    uv_timer_t timer;
    int id;           /* of the question in progress about all ranks; 0: none */
    uint64_t *cpu_ns; /* by slot: CPU time used when that question came */
    uint64_t since_ns;
    struct control_stall_ask ask; /* the ranks whose stacks are wanted */
    int at;                       /* index into ask of the next rank */
    struct stack *stack;          /* the one being taken, or NULL */
    char *path;                   /* the job's PATH, or NULL */
};

/* Timelines and statistics of the ranks; see trace.c. */
struct agent_trace {
    char *dir;        /* where the ranks write their files; NULL: none */
    int lock;         /* descriptor that holds the lock on dir, or -1 */
    int send_started; /* sending has begun */
    int slot;         /* whose file is being sent; rank_count: all are sent */
    int fd;           /* that file, or -1 */
    off_t *sent;      /* by slot: bytes sent while the ranks run */
    int turn;         /* the slot to begin with next time */
    uv_timer_t timer;
    struct worker_stats **stats; /* by slot; NULL: none received */
};

struct launch;

struct agent {
    struct agent_config config;
    pid_t parent; /* the guardian */
    struct hb_log log;
    struct link link;
    struct pump pump;
    struct endpoint endpoint;
    struct cause cause;
    struct query query;
    struct route *route;     /* NULL before ROUTE_LISTEN */
    struct route *old_route; /* closed: of the round before; or NULL */
    int pump_open, endpoint_open, cause_open;

    struct control_launch job;
    int job_held;
    char *tmpdir;
    /* Until the ranks have been started; with spec.restart as long as the
     * agent. */
    struct launch *launch;
    struct wireup wireup;
    struct horovod_rdv *horovod; /* NULL: none */
    uv_timer_t fault_timer;      /* until ranks with a fault are killed */
    struct agent_rank *ranks;
    int live, failed;       /* numbers of ranks */
    uint32_t told_progress; /* last generation that PROGRESS was sent for */
    int port_fd;

    int death_fd; /* epoll of the ranks' pidfds, in order of death */
    int signal_fd;
    uv_poll_t death_poll, signal_poll;
    uv_timer_t dying_timer; /* in elastic jobs */
    uv_timer_t timer;

    uv_timer_t beat;
    /* consecutive turns of the timer without a message from hvdrun */
    int beats_missed;
    uint32_t silence_ms; /* silence of hvdrun that ends the job; 0: no limit */

    struct agent_stall stall;
    struct agent_trace trace;

    enum agent_state state;
    enum agent_event events[AGENT_EVENTS_MAX]; /* posted, not yet handled */
    int event_count, stepping;
    uint64_t since_ns, kill_since_ns;
    uint64_t kill_wait_ms;
    int going;  /* GOING was sent: this host will go away */
    int warned; /* by a first SIGTERM */
    int gone;   /* hvdrun is gone */
    int idle;   /* it was given nothing to do, and hvdrun has hung up */
    int closed, rc;
    int reported;                  /* DONE or FAILED is on its way */
    struct control_failed failure; /* of the launch; text NULL: none */
};

/* Handles `event` now, or right after the one in progress. */
void agent_post(struct agent *a, enum agent_event event);
/* Posts AGENT_EMPTY if there are no descendants left, or AGENT_RANKS_OK or
 * AGENT_RANKS_BAD if the last rank has just ended. */
void agent_check_empty(struct agent *a);

/* Passes a worker's rendezvous request on to hvdrun. */
void agent_ask_rendezvous(void *arg, const struct rdv_request *m);

/* ---- signals.c ---- */
int agent_watch_signals(struct agent *a, struct hb_error *err);
/* Handles the signals that have come so far. */
void agent_read_signals(struct agent *a);

/* ---- beat.c ---- */

/* Handles PING. */
int agent_on_ping(struct agent *a, const struct frame *f, struct hb_error *err);

/* ---- agent.c ---- */

/* Ends the job, because hvdrun is gone or was silent for too long. */
void agent_hang_up(struct agent *a);

/* ---- stall/agent_stall.c ---- */
void agent_stall_init(struct agent *a);
void agent_stall_close(struct agent *a); /* its handles */
void agent_stall_fini(struct agent *a);  /* its memory */
int agent_on_stall_ask(struct agent *a, const struct frame *f,
                       struct hb_error *err);
/* Returns the rank's status in shared memory; NULL: it has none. */
struct segment_status *agent_status_of(struct agent *a, int slot);
/* Sends what could not be sent while the link was full. */
void agent_stall_flush(struct agent *a);
/* Handles what the endpoint reports of a rank: that it waits or has stopped
 * waiting; that it gives up waiting in hvd_init. */
void agent_on_stalled(void *arg, int slot, const struct worker_stalled *m);
void agent_on_late(void *arg, int slot, uint32_t ms);
void agent_on_no_answer(void *arg, int slot, int peer);

/* ---- stall/agent_counts.c ---- */

int agent_on_counts_ask(struct agent *a, const struct frame *f,
                        struct hb_error *err);

/* ---- elastic/agent_generation.c ---- */

/* Kills the process group of a rank that has just failed, but is not reaped
 * yet, if the job goes on. */
void agent_end_group(struct agent *a, int slot);
/* Tells hvdrun that a rank is ready for a generation, or no longer. */
void agent_on_ready(void *arg, int slot, int ready);
int agent_on_generation(struct agent *a, const struct frame *f,
                        struct hb_error *err);
int agent_on_change(struct agent *a, const struct frame *f,
                    struct hb_error *err);
int agent_on_notice(struct agent *a, const struct frame *f,
                    struct hb_error *err);
int agent_on_evict(struct agent *a, const struct frame *f,
                   struct hb_error *err);
/* Starts the rank of a slot again, whose last process is gone. */
void agent_start_again(struct agent *a, int slot);
/* Frees what says how a rank has ended. */
void agent_forget_end(struct agent_rank *r);
int agent_on_removed(struct agent *a, const struct frame *f,
                     struct hb_error *err);
int agent_on_restart(struct agent *a, const struct frame *f,
                     struct hb_error *err);
int agent_on_hosts(struct agent *a, const struct frame *f,
                   struct hb_error *err);

/* ---- trace.c ---- */

/* Creates the timelines' directory, before any rank starts.  0, or negative
 * with err set. */
int agent_trace_open(struct agent *a, struct hb_error *err);
void agent_trace_init(struct agent *a);
void agent_trace_close(struct agent *a); /* its handle */
/* Returns NAME=VALUE for the ranks' environment as a heap string, or NULL. */
char *agent_trace_variable(const struct agent *a);
/* Keeps a rank's statistics; called by the endpoint. */
void agent_on_stats(void *arg, int slot, const struct worker_stats *m);
/* Sends statistics and timelines until the link is full.  1 if there is no
 * timeline, or hvdrun has confirmed it; else 0: call again. */
int agent_trace_send(struct agent *a);
/* Handles TRACE_TAKEN. */
int agent_trace_taken(struct agent *a, uint32_t all, struct hb_error *err);
/* Gives up sending: the timelines stay where they are. */
void agent_trace_keep(struct agent *a);
void agent_trace_fini(struct agent *a);

/* ---- launch.c ---- */

/* Prepares all ranks and starts them: WIREUP_NOW (STARTED is queued), or
 * WIREUP_LATER: the wire-up opens, and on_open follows; or negative with
 * a->failure set. */
int agent_launch(struct agent *a);
/* Starts the ranks once the wire-up is open: 0, or negative as above. */
int agent_launch_ranks(struct agent *a);
/* Gives up: the wire-up did not open.  Returns err->status. */
int agent_launch_failed(struct agent *a, const struct hb_error *err);
/* Frees what was kept to start the ranks. */
void agent_launch_drop(struct agent *a);
/* Starts a rank that has ended or was idle, in a job with spec.restart. Returns
 * 0, or negative with the failure in *failed, released by control_failed_fini.
 */
int agent_launch_again(struct agent *a, int slot,
                       struct control_failed *failed);

/* ---- agent_wireup.c ---- */

extern const struct wireup_events agent_wireup_events;

/* Notes why the rank in `slot` counts as failed; the first reason counts. */
void agent_fault(struct agent *a, int slot, const struct wireup_abort *m);
/* Sends EXITED for ranks that were never started, if hvdrun has ended the job
 * before that. */
void agent_report_unstarted(struct agent *a);

/* ---- route_orders.c ---- */

int agent_on_route_listen(struct agent *a, const struct frame *f,
                          struct hb_error *err);
int agent_on_route_probe(struct agent *a, const struct frame *f,
                         struct hb_error *err);

/* ---- death.c ---- */
int agent_watch_deaths(struct agent *a, struct hb_error *err);
int agent_watch_rank(struct agent *a, int slot, struct hb_error *err);
/* Watches for ranks that are dying, in an elastic job. */
void agent_watch_dying(struct agent *a);
void agent_reap_orphans(struct agent *a);
void agent_signal_ranks(struct agent *a, int signo);
/* Handles the end of a rank after the wire-up has told how it ended. */
void agent_rank_settled(struct agent *a, int slot, enum wireup_end how);

/* ---- rank_io.c ---- */
int agent_on_stdin(struct agent *a, const struct frame *f,
                   struct hb_error *err);
int agent_on_output_ack(struct agent *a, const struct frame *f,
                        struct hb_error *err);

extern const struct pump_events agent_pump_events;

#endif
