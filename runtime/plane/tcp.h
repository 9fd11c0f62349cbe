/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP between the members of a group, one rank on each of several hosts:
 * connections, and the collectives that run over them.
 *
 * The group is a full mesh, made once: a member calls those after it and
 * takes calls from those before it.  Each connection begins with the proof
 * of the job's secret (tcp_auth.h); whoever else connects is hung up on,
 * and the listener closes as soon as all expected callers are there.
 *
 * One operation runs at a time, all members run the same ones in the same
 * order, and a member reads of a connection only what belongs to its
 * present operation.  Everything is non-blocking and moves both directions
 * in every turn, so nobody's sending waits for its own reading.
 *
 * When a connection breaks, the agent may know why: the operation goes on
 * waiting for its word for WORD_MS and then names the peer itself.
 *
 * One thread at a time, hvd__tcp_interrupt apart.
 */
#ifndef HVD_PLANE_TCP_H
#define HVD_PLANE_TCP_H

#include "lib/base/error.h"
#include "runtime/plane/op.h"
#include "runtime/plane/tcp_auth.h"

#include <stddef.h>
#include <stdint.h>

struct hvd__tcp;

struct hvd__tcp_peer {
    uint32_t rank;
    const char *host;    /* for messages; copied */
    const char *address; /* numeric */
    uint16_t port;
};

struct hvd__tcp_config {
    const struct hvd__tcp_peer *peers; /* the members, in group order */
    int count, me;
    const struct tcp_auth *auth;
    int listener; /* closed on return, whatever happens */
    uint64_t deadline_ns;
    /* Watched while waiting; -1: there is none. */
    int agent_fd;
    /* Asked when agent_fd has something, or a connection has broken: 0, or
     * a negative status with err set when the job is over. */
    int (*agent_lost)(void *arg, struct hb_error *err);
    /* The name of any rank's host. */
    const char *(*host_of)(void *arg, uint32_t rank);
    void *arg;
};

/* A listening socket on that numeric address, or on every one if it is ""
 * or not one of this machine's.  0 or negative with err set. */
int hvd__tcp_listen(const char *address, int *fd, uint16_t *port,
                    struct hb_error *err);

/* Connects the group.  0, or with err set -HVD_ETIMEOUT, -HVD_ESYSTEM,
 * -HVD_ENOMEM, or what agent_lost gave. */
int hvd__tcp_open(const struct hvd__tcp_config *config, struct hvd__tcp **out,
                  struct hb_error *err);
void hvd__tcp_free(struct hvd__tcp *t); /* NULL is fine */

/* ---- Operations: begin one, then call progress until it is done ------ */

struct hvd__tcp_block {
    void *p;
    size_t len; /* in: room; out: what came */
};

/* Every member sends the same `len` bytes to all others, and gets theirs,
 * which may differ in length, into blocks[i]; blocks[me] is not used. */
void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       struct hvd__tcp_block *blocks);

/* Allreduce in place over the ring of members: every part of the buffer
 * goes round once and is reduced on its way, in an order that depends on
 * the part only, then round again.  args->pre is not looked at.  `chunk` is
 * chunk_bytes of memory for what arrives. */
struct hvd__tcp_ring {
    void *buf;
    size_t count, elem_bytes;
    hvd__reduce_fn *reduce;
    struct hvd__reduce_args args;
    void *chunk;
    size_t chunk_bytes;
};
void hvd__tcp_ring(struct hvd__tcp *t, const struct hvd__tcp_ring *ring);

/* Broadcast along the chain of members that begins with root. */
void hvd__tcp_chain(struct hvd__tcp *t, void *buf, size_t bytes, int root);

/* 1 done, 0 call again, negative when it failed, with err set. */
int hvd__tcp_progress(struct hvd__tcp *t, struct hb_error *err);

/* As a plane's: one step of waiting after progress gave 0. */
void hvd__tcp_pause(struct hvd__tcp *t);
/* Any thread. */
void hvd__tcp_interrupt(struct hvd__tcp *t);

/* Ends all connections, in the middle of an operation that cannot go on
 * here: the other members must not wait for it. */
void hvd__tcp_hang_up(struct hvd__tcp *t);

/* Between operations, before an exchange: tells the other members that
 * `rank` has shut down, which ends their exchange. */
void hvd__tcp_tell_gone(struct hvd__tcp *t, uint32_t rank);

#endif
