/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's end of the rendezvous: the store (lib/rendezvous/store.h) and the
 * frames of its hosts.
 */
#ifndef HVD_JOB_RENDEZVOUS_H
#define HVD_JOB_RENDEZVOUS_H

#include "lib/protocol/control.h"

struct job_rendezvous;

/* send gets one whole frame for a host; the frame is borrowed. */
struct job_rendezvous *job_rendezvous_new(int ranks,
                                          void (*send)(void *arg, int host,
                                                       const struct hb_buf *f),
                                          void *arg);
void job_rendezvous_free(struct job_rendezvous *r);

/* A CONTROL_RENDEZVOUS of that host: 0 or -HVD_EPROTO with err set. */
int job_rendezvous_frame(struct job_rendezvous *r, int host,
                         const struct frame *f, struct hb_error *err);
void job_rendezvous_host_gone(struct job_rendezvous *r, int host);
/* A rank has ended; who waits for it in a fence is told this text. */
void job_rendezvous_rank_gone(struct job_rendezvous *r, int rank,
                              const char *text);

#endif
