/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker endpoint: where libhvd meets its agent (worker.h).
 *
 * An abstract Unix socket with a random name.  Accepted are only descendants of
 * this process with our own uid (or root).  When all local ranks have joined
 * the same epoch they get the shared segment; when one of them dies, the
 * segment and the sockets tell the others at once.
 *
 * What a worker may do to the agent is bounded: frames have a limit, there are
 * at most two connections per rank (and a few), a peer that does not read what
 * it is sent is dropped, and no number of connections keeps the loop from its
 * other work.  Only rendezvous replies are queued, up to ENDPOINT_QUEUE_MAX.
 *
 * SIGPIPE must be blocked or ignored by the owner.
 */
#ifndef HVD_AGENT_ENDPOINT_H
#define HVD_AGENT_ENDPOINT_H

#include "lib/agent/elastic/members.h"
#include "lib/agent/rdv_relay.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "lib/protocol/worker_stats.h"

#include <uv.h>

enum {
    /* When a connection ends without LEAVE, the agent waits this long to see
     * the process die, which explains more than a lost connection. */
    ENDPOINT_LOST_MS = 50,
    ENDPOINT_QUEUE_MAX = 32 << 20, /* bytes of queued replies per worker */
    ENDPOINT_ACCEPTS_PER_TURN = 64,
};

struct endpoint_conn;

struct endpoint_slot {
    struct endpoint_conn *conn; /* NULL: not connected */
    uint32_t epoch;             /* the epoch joined and not yet left; 0: none */
    uint64_t bytes;             /* size of the segment that it asked for */
    /* joined, but the segment is not yet handed out */
    int waiting;
    int lost;          /* the connection ended without LEAVE */
    int is_ready;      /* has said HELLO and waits for a generation */
    pid_t pid;         /* of the connected process, for messages */
    char *gone;        /* how the rank ended; NULL while it lives */
    uint64_t leave_ns; /* it is to leave, and is killed then; 0: it is not */
    char *removed;     /* why it is in no generation any more, or NULL */
    /* 1 + the rank it fails because of, or 0; see struct control_exited */
    int blames;
    int late; /* has sent LATE */
};

struct endpoint {
    uv_loop_t *loop;
    const struct hb_log *log;
    const struct control_launch *job;
    int cpus;
    uint32_t *domains; /* by local rank; NULL: one domain */
    int fd;
    char name[64]; /* unix:@..., the value of HVD_RENDEZVOUS */
    uv_poll_t poll;
    uv_timer_t lost_timer;
    uv_timer_t pause;            /* delays the next accept after a refusal */
    struct endpoint_slot *slots; /* by local rank */
    struct endpoint_conn *conns; /* list of all */
    int conn_count;
    int stranger_count; /* connections of processes that are no descendants */
    struct relay relay;
    /* Sends a rendezvous request to hvdrun; NULL: there is no rendezvous. */
    void (*ask)(void *arg, const struct rdv_request *m);
    void *ask_arg;
    /* A rank reports that it waits, or has stopped waiting; may be NULL. */
    void (*on_stalled)(void *arg, int local_rank,
                       const struct worker_stalled *m);
    /* A rank gives up waiting in hvd_init, after `ms`; may be NULL. */
    void (*on_late)(void *arg, int local_rank, uint32_t ms);
    /* A rank gets no answer from the host of another, a rank of the plan; may
     * be NULL. */
    void (*on_no_answer)(void *arg, int local_rank, int peer);
    void *stalled_arg; /* for on_stalled, on_late and on_no_answer */
    /* A rank's statistics; may be NULL. */
    void (*on_stats)(void *arg, int local_rank, const struct worker_stats *m);
    void *stats_arg;
    struct members members;
    /* In an elastic job: a rank has become ready for a generation, or is so no
     * longer; may be NULL. */
    void (*on_ready)(void *arg, int local_rank, int ready);
    void *ready_arg;
    struct segment_head *head; /* of the epoch in use, or NULL */
    uint32_t head_ranks;       /* number of ranks that share it */
    uint32_t head_epoch;
    uint32_t changed; /* the last generation that endpoint_change was for */
    int aborted;      /* endpoint_abort was called */
    int first_gone;   /* 1 + the local rank that ended first; 0: all live */
    /* The first failure, of the generation in an elastic job, else of the job:
     * no epoch can begin after it. */
    char *failed;
    uint32_t failed_rank;
    enum hvd_status failed_status;
};

/* Opens the socket.  0, or negative with err set.  `job` must outlive the
 * endpoint. */
int endpoint_init(struct endpoint *e, uv_loop_t *loop,
                  const struct control_launch *job, int cpus,
                  const struct hb_log *log, struct hb_error *err);
/* Sets the cache domains that WELCOME tells the ranks (worker.h): one number
 * per local rank, in a heap array that the endpoint takes over. */
void endpoint_set_domains(struct endpoint *e, uint32_t *domains);
/* Closes everything; the loop must run once more before endpoint_fini. */
void endpoint_close(struct endpoint *e);
void endpoint_fini(struct endpoint *e);

/* Passes requests to the rendezvous to `ask`; give hvdrun's replies to
 * endpoint_answer. */
void endpoint_set_rendezvous(struct endpoint *e,
                             void (*ask)(void *arg,
                                         const struct rdv_request *m),
                             void *arg);
void endpoint_answer(struct endpoint *e, const struct rdv_reply *m);

/* Notes that a rank's process has ended; `failed` unless with exit code 0,
 * `why` is the line for its peers.  Aborts the epoch that it was in, and all
 * ranks that wait for it; the reason they get is the job's first failure if
 * there is one. */
void endpoint_rank_ended(struct endpoint *e, int local_rank, int failed,
                         const char *why);
/* Begins a generation: tells its members, which have all been ready.  Takes
 * over what `m` holds.  Returns 0, or -HVD_EPROTO with err set. */
int endpoint_generation(struct endpoint *e, struct control_generation *m,
                        struct hb_error *err);
/* Tells the ranks of that generation that others wait to be members. */
void endpoint_change(struct endpoint *e, uint32_t generation);
/* Tells a rank that it is to leave, and until when, by CLOCK_MONOTONIC;
 * UINT64_MAX: at any time. */
void endpoint_notice(struct endpoint *e, uint32_t rank, uint64_t until_ns);
/* Notes that a rank was removed, and tells it once it is ready. */
void endpoint_removed(struct endpoint *e, uint32_t rank, const char *why);
/* Notes that a rank is not started yet. */
void endpoint_rank_idle(struct endpoint *e, int local_rank);
/* Notes that a rank that had ended, or was idle, is started. */
void endpoint_rank_restarted(struct endpoint *e, int local_rank);
/* Ends the epoch because of `rank`: HVD_EPEER if it died on another host,
 * HVD_ETIMEOUT if it kept others waiting too long.  Later calls do nothing. */
void endpoint_abort(struct endpoint *e, uint32_t rank, enum hvd_status status,
                    const char *why);
/* Writes into the segment for which rank the others wait (or SEGMENT_NO_RANK)
 * and why; ranks that give up name it.  `why` "": nobody waits. */
void endpoint_blame(struct endpoint *e, uint32_t rank, const char *why);

#endif
