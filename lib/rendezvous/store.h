/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's key-value store (lib/protocol/rendezvous.h defines the requests).
 * Pure: requests in, replies out through a callback, no I/O and no clock.
 *
 * A requester is an origin, a number chosen by the caller (a host), and the
 * request's id.  A request may cause replies from inside the call, also to
 * other origins; the callback must not call the store.  A wait ends with a
 * reply, a CANCEL, or the end of its origin.
 *
 * Limits: `bytes_max` for all that is kept; a request beyond it gets HVD_ENOMEM
 * and changes nothing.  waits_max for waiting requests.  A fence that cannot
 * keep a value fails for all its members when the last has come, so that none
 * waits for ever.  One thread.
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
/* Drops the waits of an origin. */
void rdv_store_origin_gone(struct rdv_store *s, int origin);
#define RDV_ALL_EPOCHS UINT64_MAX

/* Notes that a rank will not contribute to fences of `epoch` or before, or,
 * with RDV_ALL_EPOCHS, to any: fences that need it fail with HVD_EPEER and this
 * text, now and later. */
void rdv_store_rank_gone(struct rdv_store *s, int rank, uint64_t epoch,
                         const char *text);
/* Undoes rdv_store_rank_gone, unless that was for all epochs. */
void rdv_store_rank_back(struct rdv_store *s, int rank);
/* Undoes rdv_store_rank_gone in any case: the rank was started again. */
void rdv_store_rank_restarted(struct rdv_store *s, int rank);

/* Returns the bytes stored, or the number of waiting requests; for tests. */
size_t rdv_store_bytes(const struct rdv_store *s);
size_t rdv_store_waits(const struct rdv_store *s);

#endif
