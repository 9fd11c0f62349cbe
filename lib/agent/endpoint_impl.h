/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's insides, shared by endpoint.c (sockets) and epoch.c (who
 * shares a segment with whom) only. */
#ifndef HVD_AGENT_ENDPOINT_IMPL_H
#define HVD_AGENT_ENDPOINT_IMPL_H

#include "lib/agent/endpoint.h"
#include "lib/protocol/worker.h"

struct endpoint_conn {
    struct endpoint *endpoint;
    struct endpoint_conn *next, **link;
    int fd;
    int slot; /* -1 before HELLO */
    int left; /* sent LEAVE; its end is all that can follow */
    pid_t pid;
    uv_poll_t poll;
    struct hb_buf in;
    struct hb_buf out;            /* answers of the rendezvous */
    char fence[WORKER_SCOPE_MAX]; /* of the RDV_FENCE under way */
};

/* endpoint.c.  Any of these may close the connection. */
/* All or nothing: a peer that does not read is dropped. */
void conn_send(struct endpoint_conn *c, const struct hb_buf *bytes,
               int pass_fd);
/* Takes one read's worth; 0 when there was nothing. */
int conn_read(struct endpoint_conn *c);
void conn_refuse(struct endpoint_conn *c, const char *text);
/* Queues what does not fit now, up to ENDPOINT_QUEUE_MAX. */
void conn_queue(struct endpoint_conn *c, const struct hb_buf *bytes);

/* endpoint_rdv.c */
void rdv_init(struct endpoint *e);
/* A frame of the rendezvous: 0 or -HVD_EPROTO. */
int rdv_frame(struct endpoint_conn *c, const struct frame *f);

/* epoch.c */
void epoch_join(struct endpoint_conn *c, const struct worker_join *m);
void epoch_leave(struct endpoint_conn *c, uint32_t epoch);
/* The connection of this slot has ended. */
void epoch_conn_ended(struct endpoint *e, int slot);

#endif
