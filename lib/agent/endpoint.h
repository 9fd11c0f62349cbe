/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker endpoint: where libhvd meets its agent (worker.h).
 *
 * An abstract Unix socket with a random name; only our own uid (or root)
 * is listened to.  When all local ranks have joined the same epoch they
 * get the shared segment; when one of them dies, the others learn it from
 * the segment and from their sockets before anything else happens.
 *
 * What a worker may do to the agent is bounded: frames have a limit, there
 * are at most two connections per rank (and a few), and a peer that does
 * not read what it is sent is dropped: nothing is queued but the answers of
 * the rendezvous, up to ENDPOINT_QUEUE_MAX.
 *
 * SIGPIPE must be blocked or ignored by the owner.
 */
#ifndef HVD_AGENT_ENDPOINT_H
#define HVD_AGENT_ENDPOINT_H

#include "lib/agent/rendezvous.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/protocol/control.h"
#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "lib/protocol/worker_stats.h"

#include <uv.h>

enum {
    /* A connection that ends without LEAVE is blamed on the rank's death
     * if that is seen within this time, else on the connection. */
    ENDPOINT_LOST_MS = 50,
    ENDPOINT_QUEUE_MAX = 32 << 20, /* bytes for one worker */
};

struct endpoint_conn;

struct endpoint_slot {
    struct endpoint_conn *conn; /* NULL: not connected */
    uint32_t epoch;             /* joined and not left; 0: none */
    uint64_t bytes;             /* segment wanted */
    int waiting;                /* joined, no segment yet */
    int lost;                   /* connection ended without LEAVE */
    pid_t pid;                  /* the peer's, for messages */
    char *gone;                 /* why it has ended; NULL while alive */
};

struct endpoint {
    uv_loop_t *loop;
    const struct hb_log *log;
    const struct control_launch *job;
    int cpus;
    uint32_t *domains; /* by local rank; NULL: not known */
    int fd;
    char name[64]; /* unix:@... for HVD_RENDEZVOUS */
    uv_poll_t poll;
    uv_timer_t lost_timer;
    struct endpoint_slot *slots; /* by local rank */
    struct endpoint_conn *conns; /* list of all */
    int conn_count;
    struct relay relay;
    /* Takes requests for hvdrun; NULL: there is none to be asked. */
    void (*ask)(void *arg, const struct rdv_request *m);
    void *ask_arg;
    /* A rank waits too long, or does no more; NULL: nobody wants to know. */
    void (*on_stalled)(void *arg, int local_rank,
                       const struct worker_stalled *m);
    void *stalled_arg;
    /* What a rank counted; NULL: nobody wants to know. */
    void (*on_stats)(void *arg, int local_rank, const struct worker_stats *m);
    void *stats_arg;
    struct segment_head *head; /* of the epoch in use, or NULL */
    char *aborted;             /* the world is over: why */
    uint32_t abort_rank;
    enum hvd_status abort_status;
};

/* Opens the socket.  `job` must outlive the endpoint. */
int endpoint_init(struct endpoint *e, uv_loop_t *loop,
                  const struct control_launch *job, int cpus,
                  const struct hb_log *log, struct hb_error *err);
/* Tells the ranks which of them are near each other (worker.h); takes the
 * array, one number per local rank, over. */
void endpoint_set_domains(struct endpoint *e, uint32_t *domains);
/* Closes everything; the loop must run once more before endpoint_fini. */
void endpoint_close(struct endpoint *e);
void endpoint_fini(struct endpoint *e);

/* Requests to the rendezvous go to `ask`, and hvdrun's replies come back by
 * endpoint_answer. */
void endpoint_set_rendezvous(struct endpoint *e,
                             void (*ask)(void *arg,
                                         const struct rdv_request *m),
                             void *arg);
void endpoint_answer(struct endpoint *e, const struct rdv_reply *m);

/* A rank's process has ended; `why` is the line for its peers.  Aborts the
 * epoch it was in and whoever waits for it. */
void endpoint_rank_ended(struct endpoint *e, int local_rank, const char *why);
/* The world is over: a rank on another host died (HVD_EPEER), or one was
 * waited for for too long (HVD_ETIMEOUT). */
void endpoint_abort(struct endpoint *e, uint32_t rank, enum hvd_status status,
                    const char *why);
/* For ranks that give up waiting by themselves: whom they wait for, or
 * SEGMENT_NO_RANK; why "": nobody waits any more. */
void endpoint_blame(struct endpoint *e, uint32_t rank, const char *why);

#endif
