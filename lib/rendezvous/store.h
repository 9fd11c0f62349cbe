/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's key-value store (lib/protocol/rendezvous.h says what requests
 * mean).  Pure: requests in, replies out through a callback, no I/O and no
 * clock.
 *
 * A requester is an origin, a number of the caller's choosing (a host), and
 * the request's id.  Replies may be made from inside the request that
 * caused them, also to other origins; the callback must not call back in.
 * Waits end with an answer, a CANCEL, or their origin's end.
 *
 * Bounds: `bytes_max` for everything that is kept; what goes beyond it is
 * answered with HVD_ENOMEM, and nothing changes.  waits_max for requests that
 * wait.  A fence that cannot keep a value fails for all its members when the
 * last has come, so that none is left waiting.  One thread.
 */
#ifndef HVD_RENDEZVOUS_STORE_H
#define HVD_RENDEZVOUS_STORE_H

#include "lib/protocol/rendezvous.h"

struct rdv_store;

struct rdv_store_config {
    int ranks; /* of the job */
    size_t bytes_max, waits_max;
    void (*reply)(void *arg, int origin, const struct rdv_reply *m);
    void *arg;
};

struct rdv_store *rdv_store_new(const struct rdv_store_config *config);
void rdv_store_free(struct rdv_store *s);

void rdv_store_request(struct rdv_store *s, int origin,
                       const struct rdv_request *m);
/* Its waits are dropped. */
void rdv_store_origin_gone(struct rdv_store *s, int origin);
#define RDV_ALL_EPOCHS UINT64_MAX

/* A rank that will contribute no more to fences of this epoch and before, or
 * to none at all: those that need it fail with HVD_EPEER and this text, now
 * and later. */
void rdv_store_rank_gone(struct rdv_store *s, int rank, uint64_t epoch,
                         const char *text);
/* After it was gone from an epoch. */
void rdv_store_rank_back(struct rdv_store *s, int rank);

/* For tests and diagnostics. */
size_t rdv_store_bytes(const struct rdv_store *s);
size_t rdv_store_waits(const struct rdv_store *s);

#endif
