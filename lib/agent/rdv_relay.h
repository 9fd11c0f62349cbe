/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The relay: passes rendezvous requests of a host's workers on to the store in
 * hvdrun, and the replies back to them.
 *
 * A fence is merged: the values of all local members travel as one request once
 * the last of them has come, and its reply is given to all.  A worker may have
 * RELAY_PENDING_MAX requests pending, with RELAY_PENDING_BYTES of values.  When
 * a worker goes, its own requests are cancelled, but its contribution to a
 * fence stays.  Pure: sends through callbacks only.
 *
 * The agent itself may ask, too (relay_own_request, relay_own_fence), for what
 * it does on behalf of all its ranks, such as the wire-up of MPI programs.
 */
#ifndef HVD_AGENT_RENDEZVOUS_H
#define HVD_AGENT_RENDEZVOUS_H

#include "lib/agent/elastic/members.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/rendezvous.h"

enum {
    RELAY_PENDING_MAX = 256,
    RELAY_FENCES_MAX = 256,        /* at a time */
    RELAY_PENDING_BYTES = 4 << 20, /* of values in pending requests */
    RELAY_OWN_MAX = 4096,          /* pending requests of the agent itself */
    RELAY_OWN_VALUE_MAX = 8 << 20, /* bytes of one value of the agent itself */
};

struct relay_pending;
struct relay_fence;
struct relay_absence;

#define RELAY_ALL_EPOCHS UINT64_MAX

/* Takes the reply to a request of the agent itself.  `m` and its value are
 * valid during the call, which may make other requests. */
typedef void (*relay_own_cb)(void *arg, const struct rdv_reply *m);

struct relay_config {
    const struct control_launch *job; /* borrowed */
    /* Who is meant by libhvd's numbers of ranks, in requests of workers and in
     * replies to them; borrowed.  NULL: both numbers are the same. */
    const struct members *members;
    /* sends a request to hvdrun; its id is the relay's */
    void (*ask)(void *arg, const struct rdv_request *m);
    /* sends a reply to the worker in `slot`; its id is the worker's */
    void (*reply)(void *arg, int slot, const struct rdv_reply *m);
    void *arg;
};

struct relay {
    struct relay_config config;
    struct relay_pending *pending;
    struct relay_fence *fences;
    int *counts;                    /* by slot: number of pending requests */
    size_t *bytes;                  /* by slot: bytes of their values */
    struct relay_absence *absences; /* by slot */
    int fence_count;
    int own_count; /* pending requests of the agent itself */
    uint32_t last_id, absence_count;
};

void relay_init(struct relay *r, const struct relay_config *config);
void relay_fini(struct relay *r);

/* Handles a request of the worker in `slot`, with the worker's own id.  0, or
 * -HVD_EPROTO if it has too many pending. */
int relay_request(struct relay *r, int slot, const struct rdv_request *m);
/* Handles hvdrun's reply. */
void relay_answer(struct relay *r, const struct rdv_reply *m);
/* Sends a request of the agent itself: PUT, GET, DELETE or END_ROUND; its id is
 * not used. `cb` is called once, with hvdrun's reply, but never from inside
 * this call. Returns a number for relay_own_cancel, or 0 if RELAY_OWN_MAX
 * requests are pending or the value exceeds RELAY_OWN_VALUE_MAX: then nothing
 * was sent. relay_fini cancels without a call. */
uint32_t relay_own_request(struct relay *r, const struct rdv_request *m,
                           relay_own_cb cb, void *arg);
/* Contributes `len` bytes for this host to a fence of all hosts of the job, as
 * relay_own_request.  The reply has a record for each rank: that of a host's
 * first rank holds what the host gave, the others are empty.  If a rank of the
 * job has ended, the fence fails with HVD_EPEER.  Each host may contribute once
 * to a fence of that name. */
uint32_t relay_own_fence(struct relay *r, const char *scope, const void *value,
                         size_t len, relay_own_cb cb, void *arg);
/* Cancels a request: its callback will not be called.  Does nothing if it has
 * been answered. */
void relay_own_cancel(struct relay *r, uint32_t id);
/* Cancels the requests of `slot`: its worker is gone, or is being replaced. */
void relay_slot_gone(struct relay *r, int slot);
/* Notes that the rank in `slot` comes to no fence of `epoch` or before, and
 * tells hvdrun.  RELAY_ALL_EPOCHS: its process has ended; hvdrun learns that by
 * other ways. */
void relay_rank_gone(struct relay *r, int slot, uint64_t epoch,
                     const char *why);
/* Undoes relay_rank_gone when the rank joins again, and tells hvdrun. */
void relay_rank_back(struct relay *r, int slot);
/* Undoes relay_rank_gone of a process that has ended; hvdrun, which starts the
 * rank again, knows that. */
void relay_rank_restarted(struct relay *r, int slot);

#endif
