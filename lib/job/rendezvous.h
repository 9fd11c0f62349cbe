/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's end of the rendezvous: the store (lib/rendezvous/store.h) and the
 * frames of its hosts.
 *
 * A host speaks for its own ranks only.  What is queued for one that does
 * not read is bounded: an answer beyond that is dropped, and the next frame
 * of that host is an error.  (One that sends nothing either is found out by
 * its heartbeat.)
 */
#ifndef HVD_JOB_RENDEZVOUS_H
#define HVD_JOB_RENDEZVOUS_H

#include "lib/hosts/plan.h"
#include "lib/protocol/control.h"

enum { JOB_RENDEZVOUS_QUEUE_MAX = 128 << 20 }; /* bytes for one host */

struct job_rendezvous;

struct job_rendezvous_config {
    const struct plan *plan; /* borrowed */
    /* One whole frame for a host, borrowed. */
    void (*send)(void *arg, int host, const struct hb_buf *frame);
    /* Bytes sent to the host that it has not taken. */
    size_t (*queued)(void *arg, int host);
    void *arg;
};

struct job_rendezvous *
job_rendezvous_new(const struct job_rendezvous_config *config);
void job_rendezvous_free(struct job_rendezvous *r);

/* A CONTROL_RENDEZVOUS of that host: 0, or with err set -HVD_EPROTO, or
 * -HVD_ECLOSED for one that does not read. */
int job_rendezvous_frame(struct job_rendezvous *r, int host,
                         const struct frame *f, struct hb_error *err);
void job_rendezvous_host_gone(struct job_rendezvous *r, int host);
/* A rank has ended; who waits for it in a fence is told this text. */
void job_rendezvous_rank_gone(struct job_rendezvous *r, int rank,
                              const char *text);

#endif
