/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's internals, shared by endpoint.c (sockets), endpoint_rdv.c
 * (rendezvous) and epoch.c (segments) only. */
#ifndef HVD_AGENT_ENDPOINT_IMPL_H
#define HVD_AGENT_ENDPOINT_IMPL_H

#include "lib/agent/endpoint.h"
#include "lib/protocol/worker.h"

struct endpoint_conn {
    struct endpoint *endpoint;
    struct endpoint_conn *next, **link;
    int fd;
    int slot;     /* local rank; -1 before HELLO */
    int left;     /* sent LEAVE: only the end of the connection can follow */
    int stranger; /* not our descendant: its HELLO is refused */
    pid_t pid;
    uv_poll_t poll;
    struct hb_buf in;
    struct hb_buf out;            /* rendezvous replies not yet written */
    char fence[WORKER_SCOPE_MAX]; /* scope of the RDV_FENCE in progress */
};

/* ---- endpoint.c ---- */

/* Returns the local rank of a world rank, or -1. */
int endpoint_slot_of(const struct endpoint *e, uint32_t rank);
/* Adopts the accepted connection fd of process pid; `stranger` if that is not
 * our descendant. */
void conn_open(struct endpoint *e, int fd, pid_t pid, int stranger);
/* Each function below may close the connection. */
/* Sends all bytes (with pass_fd unless -1) or drops the peer, which does not
 * read; appends them to the queue if there is one. */
void conn_send(struct endpoint_conn *c, const struct hb_buf *bytes,
               int pass_fd);
/* Reads once and handles the frames; 0 if there was nothing to read. */
int conn_read(struct endpoint_conn *c);
void conn_refuse(struct endpoint_conn *c, const char *text);
void conn_welcome(struct endpoint_conn *c);
void conn_close(struct endpoint_conn *c); /* idempotent */
/* Queues bytes to be written when the socket has room; closes the connection
 * beyond ENDPOINT_QUEUE_MAX. */
void conn_queue(struct endpoint_conn *c, const struct hb_buf *bytes);

/* ---- endpoint_rdv.c ---- */
void rdv_init(struct endpoint *e);
/* Handles RDV and RDV_FENCE: 0 or negative. */
int rdv_on_request(struct endpoint_conn *c, const struct frame *f);
int rdv_on_fence(struct endpoint_conn *c, const struct frame *f);

/* ---- epoch.c ---- */
void epoch_join(struct endpoint_conn *c, const struct worker_join *m);
void epoch_leave(struct endpoint_conn *c, uint32_t epoch);
/* Notes that a rank of an elastic job waits for a generation. */
void epoch_ready(struct endpoint_conn *c);
/* Handles what the rank in `slot` has sent so far. */
void epoch_read_all(struct endpoint *e, int slot);
/* Blames the rank in `slot` now if its connection was lost, without waiting to
 * see its process end. */
void epoch_settle_lost(struct endpoint *e, int slot);
/* Writes why no epoch can begin after the first: `rank` has died or ended
 * (`how`), because of `why`. */
void epoch_again_text(char *text, size_t size, uint32_t rank, const char *how,
                      const char *why);
/* Notes that the connection of `slot` has ended. */
void epoch_conn_ended(struct endpoint *e, int slot);

#endif
