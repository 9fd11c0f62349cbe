/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side of the protocol with its agent (lib/protocol/worker.h).
 * Used by one thread at a time unless a function says otherwise; every wait
 * ends at a deadline.
 */
#ifndef HVD_CORE_AGENT_CLIENT_H
#define HVD_CORE_AGENT_CLIENT_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/rendezvous.h"
#include "lib/protocol/worker.h"

#include <pthread.h>
#include <stdint.h>

/* A request that waits for its reply; protected by the agent's lock. */
struct hvd__agent_call {
    struct hvd__agent_call *next;
    uint32_t id;
    int event_fd; /* readable: look at what follows */
    int done;
    int status; /* of the reply: 0 or an enum hvd_status */
    int culprit;
    struct hb_buf value; /* of the reply, or its text */
};

struct hvd__agent {
    int fd; /* -1: not connected */
    struct hb_buf in;
    int memfd; /* received, not yet returned by join; or -1 */
    /* While the world runs: protects the socket's bytes and what follows. */
    pthread_mutex_t lock;
    struct hvd__agent_call *calls; /* agent_call.h */
    uint32_t last_id;
    int interrupted;
};

/* clang-format off */
#define HVD__AGENT_INIT \
    { .fd = -1, .in = HB_BUF_INIT, .memfd = -1, \
      .lock = PTHREAD_MUTEX_INITIALIZER }
/* clang-format on */

/*
 * Connects to the agent at `unix:@NAME` or `unix:/path`, checks that it runs as
 * this user, sends HELLO and stores the answer in *w.
 *
 * deadline_ns is on hb_now_ns's clock.  On failure the connection is closed.
 * Returns 0, or with err set:
 *   -HVD_EINVAL    the address is malformed
 *   -HVD_ESYSTEM   a system call failed
 *   -HVD_EPERM     another user's socket, or the agent refused this rank
 *   -HVD_EREMOVED  this rank is in no generation any more, as was asked
 *   -HVD_ETIMEOUT  the deadline has passed
 *   -HVD_ECLOSED   the agent closed the connection
 *   -HVD_EPROTO    the agent sent something malformed or unexpected
 *   -HVD_ENOMEM
 */
int hvd__agent_open(struct hvd__agent *a, const char *address, uint32_t rank,
                    uint64_t deadline_ns, struct worker_welcome *w,
                    struct hb_error *err);

/* Joins an epoch and waits until all local ranks have.  *memfd receives the
 * descriptor of the segment, which the caller closes.  Returns as
 * hvd__agent_open, or -HVD_EPEER when a rank dies meanwhile; a failure leaves
 * the connection open. */
int hvd__agent_join(struct hvd__agent *a, uint32_t epoch,
                    uint64_t segment_bytes, uint64_t deadline_ns, int *memfd,
                    struct hb_error *err);

/* Asks for the job's routes: addresses[i] is the numeric address at which this
 * host reaches host i of the plan; for this host itself, the address to listen
 * on ("": all).  Returns as hvd__agent_join. */
int hvd__agent_routes(struct hvd__agent *a, uint64_t deadline_ns,
                      uint32_t host_count,
                      char (*addresses)[WORKER_ADDRESS_MAX],
                      struct hb_error *err);

/* An exchange among all ranks of the job: each gives a value to the fence named
 * `scope`, and receives all values when the last rank has given its own. */
struct hvd__fence {
    const char *scope; /* the same on all ranks, each used once */
    const void *value; /* at most WORKER_VALUE_MAX bytes */
    size_t len;
    uint32_t size; /* ranks of the job */
    /* Called with the values, indexed by rank and valid during the call. */
    int (*take)(void *arg, const struct worker_value *values,
                struct hb_error *err);
    void *arg;
};

/* Exchanges values with all ranks by a fence.  Returns what `take` returned, or
 * fails as hvd__agent_join. */
int hvd__agent_fence(struct hvd__agent *a, const struct hvd__fence *fence,
                     uint64_t deadline_ns, struct hb_error *err);

/* Sends a request to the job's store (lib/protocol/rendezvous.h): put, get,
 * delete, or a fence of some ranks.  Sets m->id.  The reply passed to `take` is
 * valid during that call only.  A get that waits does so until the deadline.
 * Returns what take returned, -HVD_EINVAL for a malformed request, or fails as
 * hvd__agent_join. */
int hvd__agent_ask(struct hvd__agent *a, struct rdv_request *m,
                   int (*take)(void *arg, const struct rdv_reply *m), void *arg,
                   uint64_t deadline_ns, struct hb_error *err);

/* Polls the agent without blocking; any thread.  Returns 0 if there is nothing
 * new, or with err set:
 *   -HVD_EPEER     a rank has died
 *   -HVD_ETIMEOUT  the job ends because a rank waited too long
 *   -HVD_ECLOSED   the agent is gone
 *   -HVD_EPROTO    the agent sent something malformed or unexpected
 * Out of memory counts as nothing new; the next call tries again. */
int hvd__agent_check(struct hvd__agent *a, struct hb_error *err);

/* ---- For agent_call.c ---------------------------------------------------- */

/* Polls as hvd__agent_check; the caller holds the lock. */
int hvd__agent_check_locked(struct hvd__agent *a, struct hb_error *err);
/* Sends `out`; the caller holds the lock.  Returns 0, -HVD_ECLOSED,
 * -HVD_ESYSTEM or -HVD_ETIMEOUT with err set. */
int hvd__agent_send(struct hvd__agent *a, struct hb_buf *out,
                    uint64_t deadline_ns, struct hb_error *err);
/* Makes a call look at what has changed. */
void hvd__agent_wake(const struct hvd__agent_call *c);

/* ---- Short messages ------------------------------------------------------ */

/* Sends a short frame, whole or not at all: it is dropped if the socket's
 * buffer is full.  Any thread, at any time. */
void hvd__agent_say(struct hvd__agent *a, const void *frame, size_t len);

/* Tells the agent, if there is one, that this rank has waited in hvd_init since
 * begun_ns and gives up.  If the agent answers soon which ranks are missing,
 * err is replaced by that.  Returns err's status. */
int hvd__agent_late(struct hvd__agent *a, uint64_t begun_ns,
                    struct hb_error *err);

/* Tells the agent that this rank leaves; dropped if the socket's buffer is
 * full. */
void hvd__agent_leave(struct hvd__agent *a, uint32_t epoch);

void hvd__agent_close(struct hvd__agent *a); /* idempotent */

#endif
