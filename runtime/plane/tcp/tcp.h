/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP between the members of a group, one rank on each of several hosts:
 * connections, and the collectives that run over them.
 *
 * The group is a full mesh, made once: a member connects to the members after
 * it and accepts those before it.  On each connection, both sides first prove
 * that they know the job's secret (tcp_auth.h); other connections are closed,
 * and the listener closes as soon as all expected members have connected.
 * Later messages are authenticated (tcp_mac.h) unless auth turns that off;
 * tensor data is not, and nothing is encrypted.
 *
 * One operation runs at a time, and all members run the same operations in the
 * same order.  A member reads from a connection only what belongs to its
 * present operation.  Everything is non-blocking, and every turn moves data in
 * both directions, so a member never has to finish sending before it reads.
 *
 * When a connection breaks, the agent may know why: the operation waits 2 s
 * for the agent's message, and then blames the peer itself.
 *
 * One thread at a time, except hvd__tcp_interrupt.
 */
#ifndef HVD_PLANE_TCP_H
#define HVD_PLANE_TCP_H

#include "lib/base/error.h"
#include "runtime/plane/op.h"
#include "runtime/plane/tcp/tcp_auth.h"

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
    int listener; /* closed on return, even on failure */
    uint64_t deadline_ns;
    /* Watched while waiting; -1: none. */
    int agent_fd;
    /* Called when agent_fd is readable or a connection has broken: 0, or
     * negative with err set when the job is over. */
    int (*agent_lost)(void *arg, struct hb_error *err);
    /* Returns the name of any rank's host. */
    const char *(*host_of)(void *arg, uint32_t rank);
    /* Time without an answer from a member's kernel after which the connection
     * to it is lost.  0: only TCP's own limits count. */
    uint32_t silence_ms;
    /* Called once for each member that has not answered for so long; may be
     * NULL.  Returns whether the member, or this one, may be removed for it:
     * hvd__tcp_open then waits on, until agent_lost tells. */
    int (*no_answer)(void *arg, uint32_t rank);
    void *arg;
};

/* Listens on a numeric address, or on all addresses if it is "" or not one of
 * this machine's.  0, or negative with err set. */
int hvd__tcp_listen(const char *address, int *fd, uint16_t *port,
                    struct hb_error *err);

/* Connects and measures the group; blocks until the deadline at most.  Returns
 * 0, or with err set
 *
 * - -HVD_ETIMEOUT, -HVD_ENOMEM
 * - -HVD_ESYSTEM: among others, a member refuses connections
 * - -HVD_EINVAL: a member's auth->codes differs, or a bad HVD_TCP_... value
 * - what agent_lost or, while measuring, hvd__tcp_progress returned */
int hvd__tcp_open(const struct hvd__tcp_config *config, struct hvd__tcp **out,
                  struct hb_error *err);
void hvd__tcp_free(struct hvd__tcp *t); /* t may be NULL */

/* ---- What the group costs -------------------------------------------- */

/* The cost model: a round in which every member sends `bytes` and receives as
 * many takes about alpha_us + bytes / bytes_per_us.  Measured when the group
 * is opened, by pings and bursts around the ring, or set by HVD_TCP_ALPHA_US
 * and HVD_TCP_BETA_GBPS (10^9 bytes a second).  Each number is the worst of
 * all members, so all members have the same. */
struct hvd__tcp_model {
    int members;
    double alpha_us;
    double bytes_per_us;
};

enum hvd__tcp_algorithm {
    HVD__TCP_AUTO,         /* the fastest by the model */
    HVD__TCP_RD,           /* allreduce: recursive doubling */
    HVD__TCP_RABENSEIFNER, /* allreduce: halving, then doubling */
    HVD__TCP_RING,         /* allreduce */
    HVD__TCP_TREE,         /* broadcast: binomial */
    HVD__TCP_CHAIN,        /* broadcast: pipelined */
};

const struct hvd__tcp_model *hvd__tcp_model(const struct hvd__tcp *t);
/* Sets the alpha by which AUTO chooses from here on.  Call between operations,
 * with the same value on all members. */
void hvd__tcp_set_alpha(struct hvd__tcp *t, double alpha_us);

/* Returns the algorithm that AUTO chooses; pure. */
enum hvd__tcp_algorithm
hvd__tcp_choose_allreduce(const struct hvd__tcp_model *m, size_t bytes);
enum hvd__tcp_algorithm
hvd__tcp_choose_broadcast(const struct hvd__tcp_model *m, size_t bytes);
/* Returns the size up to which it is faster to carry each member's data in an
 * exchange that happens anyway, and let all members reduce it, than to run an
 * allreduce afterwards. */
size_t hvd__tcp_ride_bytes(const struct hvd__tcp_model *m);

/* Returns "tcp.rd" and so on. */
const char *hvd__tcp_algorithm_name(enum hvd__tcp_algorithm a);

/* ---- Operations: begin one, then call progress until it is done ------
 *
 * All memory is borrowed until then, arrays too.  A struct
 * hvd__tcp_reduction is copied; arrays of offsets are not. */

struct hvd__tcp_block {
    void *p;
    size_t len; /* receiving: in: capacity; out: bytes received */
};

/* Begins an exchange: every member sends the same `len` bytes to all others
 * and gets theirs, which may differ in length, in blocks[i]; blocks[me] is not
 * used.  The first `words` bytes are authenticated. */
void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       size_t words, struct hvd__tcp_block *blocks);

/* Begins an alltoall: every member sends send[i] to member i and gets its data
 * in recv[i]; the entries at `me` are not used.  With `known`, every
 * recv[i].len is exactly what member i sends, and empty blocks are not sent at
 * all.  The first words[i] bytes of send[i] are authenticated; NULL: none. */
void hvd__tcp_alltoallv(struct hvd__tcp *t, const struct hvd__tcp_block *send,
                        const size_t *words, struct hvd__tcp_block *recv,
                        int known);

/* Returns the member whose block the latest exchange or alltoallv waited for
 * last; -1 if it waited for none. */
int hvd__tcp_late(const struct hvd__tcp *t);

/* A vector to reduce. args.pre is ignored.  `chunk` has chunk_bytes for
 * arriving data, at least one element.  `reduce` may be the caller's own
 * function, for elements of any size. */
struct hvd__tcp_reduction {
    const void *src; /* this member's input; NULL: it is in buf */
    void *buf;       /* the result */
    size_t count, elem_bytes;
    hvd__reduce_fn *reduce;
    struct hvd__reduce_args args;
    void *chunk;
    size_t chunk_bytes;
};

/* Begins an allreduce; returns its algorithm.  The order of operands depends
 * only on the algorithm, the number of members and the place in the vector, so
 * all members get the same bits. */
enum hvd__tcp_algorithm hvd__tcp_allreduce(struct hvd__tcp *t,
                                           const struct hvd__tcp_reduction *r,
                                           enum hvd__tcp_algorithm a);

/* Begins a reduce-scatter over the ring: member i gets the reduced elements
 * first[i] .. first[i + 1] - 1 at their place in buf; the rest of buf is then
 * undefined. first[0] is 0, first[n] is r->count; `first` is borrowed until
 * the end. */
void hvd__tcp_reduce_scatter(struct hvd__tcp *t,
                             const struct hvd__tcp_reduction *r,
                             const size_t *first);

/* Begins an allgather over the ring: member i has the bytes
 * first[i] .. first[i + 1] - 1 of buf at their place and gets the others. */
void hvd__tcp_allgather(struct hvd__tcp *t, void *buf, const size_t *first);

/* Begins a broadcast; returns its algorithm. */
enum hvd__tcp_algorithm hvd__tcp_broadcast(struct hvd__tcp *t, void *buf,
                                           size_t bytes, int root,
                                           enum hvd__tcp_algorithm a);

/* Advances the operation.  1: done; 0: call again; negative with err set:
 * failed, -HVD_EPROTO if a member's message was tampered with or belongs to no
 * operation. */
int hvd__tcp_progress(struct hvd__tcp *t, struct hb_error *err);

/* Returns 1 if a peer has begun an operation, 0 if none has, negative with err
 * set if a rank has shut down or a connection was lost.  Like began of a plane,
 * called between operations. */
int hvd__tcp_began(struct hvd__tcp *t, struct hb_error *err);

/* Waits a step after progress or began returned 0, like pause of a plane, also
 * in that it ends when hb_now_ns() has reached until_ns (0: no limit). */
void hvd__tcp_pause(struct hvd__tcp *t, uint64_t until_ns);
/* Makes a pause return; called by any thread. */
void hvd__tcp_interrupt(struct hvd__tcp *t);

/* Returns a member's socket, only to wait on; -1 for this member. */
int hvd__tcp_fd(const struct hvd__tcp *t, int member);

/* Shuts down all connections when an operation cannot go on here, so that the
 * other members do not wait for it. */
void hvd__tcp_hang_up(struct hvd__tcp *t);

/* Tells the other members that `rank` has shut down, which ends their next
 * exchange with -HVD_ESHUTDOWN.  Call between operations, when an exchange is
 * next. */
void hvd__tcp_tell_gone(struct hvd__tcp *t, uint32_t rank);

#endif
