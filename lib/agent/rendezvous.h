/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous, as a host's agent has it: what its workers ask goes on to
 * the store in hvdrun, and the answers come back to them.
 *
 * A fence is merged: the values of all local members travel as one request,
 * when the last of them has come, and its one answer is given to all.  A
 * worker may have RELAY_PENDING_MAX requests waiting, with
 * RELAY_PENDING_BYTES of values; one that goes away
 * cancels its own, and what it gave to a fence stays.  Pure: what is to be
 * sent goes through callbacks.
 */
#ifndef HVD_AGENT_RENDEZVOUS_H
#define HVD_AGENT_RENDEZVOUS_H

#include "lib/protocol/control.h"
#include "lib/protocol/rendezvous.h"

enum {
    RELAY_PENDING_MAX = 256,
    RELAY_FENCES_MAX = 256,        /* under way at a time */
    RELAY_PENDING_BYTES = 4 << 20, /* of values not yet answered */
};

struct relay_pending;
struct relay_fence;
struct relay_absence;

#define RELAY_ALL_EPOCHS UINT64_MAX

struct relay_config {
    const struct control_launch *job; /* borrowed */
    /* a request for hvdrun; its id is the relay's */
    void (*ask)(void *arg, const struct rdv_request *m);
    /* a reply for the worker in this slot; its id is the worker's */
    void (*reply)(void *arg, int slot, const struct rdv_reply *m);
    void *arg;
};

struct relay {
    struct relay_config config;
    struct relay_pending *pending;
    struct relay_fence *fences;
    int *counts;                    /* of pending requests, by slot */
    size_t *bytes;                  /* of their values */
    struct relay_absence *absences; /* by slot */
    int fence_count;
    uint32_t last_id, absence_count;
};

void relay_init(struct relay *r, const struct relay_config *config);
void relay_fini(struct relay *r);

/* A request of the worker in this slot, its own id in it.  0, or
 * -HVD_EPROTO when it has too many waiting. */
int relay_request(struct relay *r, int slot, const struct rdv_request *m);
/* What hvdrun answered. */
void relay_answer(struct relay *r, const struct rdv_reply *m);
/* The worker in this slot is gone, or another takes its place. */
void relay_slot_gone(struct relay *r, int slot);
/* The rank in this slot comes to no fence of this epoch and before; hvdrun
 * is told.  Or to none, because its process has ended: that others tell
 * hvdrun. */
void relay_rank_gone(struct relay *r, int slot, uint64_t epoch,
                     const char *why);
/* After it was gone from an epoch; hvdrun is told. */
void relay_rank_back(struct relay *r, int slot);

#endif
