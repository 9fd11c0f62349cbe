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
 * waiting for its word for 2 s and then names the peer itself.
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

/* ---- What the group costs -------------------------------------------- */

/* A round of messages, everybody sending `bytes` and getting as many, takes
 * about alpha_us + bytes / bytes_per_us.  Measured when the group is opened,
 * by pings and a burst around the ring, or given by HVD_TCP_ALPHA_US and
 * HVD_TCP_BETA_GBPS (10^9 bytes a second); the worst of all members, and so
 * the same numbers on all of them. */
struct hvd__tcp_model {
    int members;
    double alpha_us;
    double bytes_per_us;
};

enum hvd__tcp_algorithm {
    HVD__TCP_AUTO,         /* what the model says is fastest */
    HVD__TCP_RD,           /* allreduce: recursive doubling */
    HVD__TCP_RABENSEIFNER, /* allreduce: halving, then doubling */
    HVD__TCP_RING,         /* allreduce */
    HVD__TCP_TREE,         /* broadcast: binomial */
    HVD__TCP_CHAIN,        /* broadcast: pipelined */
};

const struct hvd__tcp_model *hvd__tcp_model(const struct hvd__tcp *t);
/* Between operations, the same on all members: what AUTO goes by from here
 * on, which moves the points where one algorithm takes over from another. */
void hvd__tcp_set_alpha(struct hvd__tcp *t, double alpha_us);

/* What AUTO takes; pure. */
enum hvd__tcp_algorithm
hvd__tcp_choose_allreduce(const struct hvd__tcp_model *m, size_t bytes);
enum hvd__tcp_algorithm
hvd__tcp_choose_broadcast(const struct hvd__tcp_model *m, size_t bytes);
/* How much data per member an exchange that happens anyway should carry, so
 * that all members reduce it, rather than have an allreduce follow. */
size_t hvd__tcp_ride_bytes(const struct hvd__tcp_model *m);

/* "tcp.rd" and so on. */
const char *hvd__tcp_algorithm_name(enum hvd__tcp_algorithm a);

/* ---- Operations: begin one, then call progress until it is done ------
 *
 * All memory is borrowed until then, arrays too; what a reduction and an
 * array of offsets say is copied, or not, as told. */

struct hvd__tcp_block {
    void *p;
    size_t len; /* to receive: in: room; out: what came */
};

/* Every member sends the same `len` bytes to all others, and gets theirs,
 * which may differ in length, into blocks[i]; blocks[me] is not used. */
void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       struct hvd__tcp_block *blocks);

/* Every member sends send[i] to member i, and gets theirs into recv[i];
 * those at `me` are not used.  known: every recv[i].len is exactly what
 * member i sends, and then nothing is sent where that is 0. */
void hvd__tcp_alltoallv(struct hvd__tcp *t, const struct hvd__tcp_block *send,
                        struct hvd__tcp_block *recv, int known);

/* Of the latest exchange or alltoallv: the member whose block was waited for
 * last, or -1 when all were there at once. */
int hvd__tcp_late(const struct hvd__tcp *t);

/* A vector to be reduced.  args.pre is not looked at.  `chunk` is
 * chunk_bytes of memory for what arrives, at least one element.  The struct
 * is copied.  `reduce` may be the caller's own function, for elements of any
 * size. */
struct hvd__tcp_reduction {
    const void *src; /* this member's; NULL: it is in buf */
    void *buf;       /* the result */
    size_t count, elem_bytes;
    hvd__reduce_fn *reduce;
    struct hvd__reduce_args args;
    void *chunk;
    size_t chunk_bytes;
};

/* Allreduce.  The order of operands depends on the algorithm, the number of
 * members and the place in the vector only, and all members get the same
 * bits.  Returns the algorithm. */
enum hvd__tcp_algorithm hvd__tcp_allreduce(struct hvd__tcp *t,
                                           const struct hvd__tcp_reduction *r,
                                           enum hvd__tcp_algorithm a);

/* Over the ring: member i gets the elements first[i] .. first[i + 1] - 1 of
 * the reduced vector in their place in buf; the rest of buf is garbage
 * then.  first[0] is 0 and first[n] is r->count; it stays the caller's until
 * the end. */
void hvd__tcp_reduce_scatter(struct hvd__tcp *t,
                             const struct hvd__tcp_reduction *r,
                             const size_t *first);

/* Over the ring: member i has the bytes first[i] .. first[i + 1] - 1 of buf
 * in their place, and gets the others. */
void hvd__tcp_allgather(struct hvd__tcp *t, void *buf, const size_t *first);

/* Returns the algorithm. */
enum hvd__tcp_algorithm hvd__tcp_broadcast(struct hvd__tcp *t, void *buf,
                                           size_t bytes, int root,
                                           enum hvd__tcp_algorithm a);

/* 1 done, 0 call again, negative when it failed, with err set. */
int hvd__tcp_progress(struct hvd__tcp *t, struct hb_error *err);

/* Between operations, as a plane's: 1 when a peer has begun an exchange
 * (or any operation), 0, or negative with err set when a rank has shut down
 * or a connection was lost. */
int hvd__tcp_began(struct hvd__tcp *t, struct hb_error *err);

/* As a plane's: one step of waiting after progress or began gave 0. */
void hvd__tcp_pause(struct hvd__tcp *t);
/* Any thread. */
void hvd__tcp_interrupt(struct hvd__tcp *t);

/* A member's connection, to be waited on and no more; -1 for this one. */
int hvd__tcp_fd(const struct hvd__tcp *t, int member);

/* Ends all connections, in the middle of an operation that cannot go on
 * here: the other members must not wait for it. */
void hvd__tcp_hang_up(struct hvd__tcp *t);

/* Between operations, before an exchange: tells the other members that
 * `rank` has shut down, which ends their exchange. */
void hvd__tcp_tell_gone(struct hvd__tcp *t, uint32_t rank);

#endif
