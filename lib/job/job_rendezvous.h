/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's end of the rendezvous: connects the store (lib/rendezvous/store.h)
 * with the frames of the hosts.
 *
 * A host may speak for its own ranks only.  What is queued for a host that does
 * not read is bounded: a reply beyond that is dropped, and the next frame of
 * that host is an error.  (A host that does not send either is found by its
 * heartbeat.)
 */
#ifndef HVD_JOB_RENDEZVOUS_H
#define HVD_JOB_RENDEZVOUS_H

#include "lib/hosts/slot_plan.h"
#include "lib/protocol/control/control.h"

enum { JOB_RENDEZVOUS_QUEUE_MAX = 128 << 20 }; /* bytes for one host */

struct job_rendezvous;

struct job_rendezvous_config {
    const struct plan *plan; /* borrowed */
    /* Sends a whole frame to a host; the frame is borrowed. */
    void (*send)(void *arg, int host, const struct hb_buf *frame);
    /* Returns the bytes queued for a host. */
    size_t (*queued)(void *arg, int host);
    void *arg;
};

struct job_rendezvous *
job_rendezvous_new(const struct job_rendezvous_config *config);
void job_rendezvous_free(struct job_rendezvous *r);

/* Handles a CONTROL_RENDEZVOUS of that host.  0, or with err set -HVD_EPROTO,
 * or -HVD_ECLOSED if the host does not read its replies. */
int job_rendezvous_frame(struct job_rendezvous *r, int host,
                         const struct frame *f, struct hb_error *err);
void job_rendezvous_host_gone(struct job_rendezvous *r, int host);
/* Notes that a rank has ended: ranks that wait for it in a fence get this
 * text. */
void job_rendezvous_rank_gone(struct job_rendezvous *r, int rank,
                              const char *text);
/* Notes that the rank is started again. */
void job_rendezvous_rank_restarted(struct job_rendezvous *r, int rank);

#endif
