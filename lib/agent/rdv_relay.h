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
 */
#ifndef HVD_AGENT_RENDEZVOUS_H
#define HVD_AGENT_RENDEZVOUS_H

#include "lib/protocol/control/control.h"
#include "lib/protocol/rendezvous.h"

enum {
    RELAY_PENDING_MAX = 256,
    RELAY_FENCES_MAX = 256,        /* at a time */
    RELAY_PENDING_BYTES = 4 << 20, /* of values in pending requests */
};

struct relay_pending;
struct relay_fence;
struct relay_absence;

#define RELAY_ALL_EPOCHS UINT64_MAX

struct relay_config {
    const struct control_launch *job; /* borrowed */
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
    uint32_t last_id, absence_count;
};

void relay_init(struct relay *r, const struct relay_config *config);
void relay_fini(struct relay *r);

/* Handles a request of the worker in `slot`, with the worker's own id.  0, or
 * -HVD_EPROTO if it has too many pending. */
int relay_request(struct relay *r, int slot, const struct rdv_request *m);
/* Handles hvdrun's reply. */
void relay_answer(struct relay *r, const struct rdv_reply *m);
/* Cancels the requests of `slot`: its worker is gone, or is being replaced. */
void relay_slot_gone(struct relay *r, int slot);
/* Notes that the rank in `slot` comes to no fence of `epoch` or before, and
 * tells hvdrun.  RELAY_ALL_EPOCHS: its process has ended; hvdrun learns that by
 * other ways. */
void relay_rank_gone(struct relay *r, int slot, uint64_t epoch,
                     const char *why);
/* Undoes relay_rank_gone when the rank joins again, and tells hvdrun. */
void relay_rank_back(struct relay *r, int slot);

#endif
