/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the hierarchical plane.  An operation is a list of steps; each is an
 * operation of the shared-memory plane or of the TCP group, or nothing on this
 * rank.  The first three steps agree (hier_agree.c); the others form a loop of
 * `rounds` rounds, which reuse the plane's memory.
 *
 * On a host with one rank, the plane of a world of one (self.c) takes the
 * place of shared memory.
 */
#ifndef HVD_PLANE_HIER_IMPL_H
#define HVD_PLANE_HIER_IMPL_H

#include "runtime/plane/hier/hier.h"
#include "runtime/plane/hier/hier_watch.h"
#include "runtime/plane/shm/shm.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

enum {
    HIER_SCRATCH_BYTES = 1 << 20, /* all hosts' blocks together, roughly */
    HIER_BLOCK_MIN_BYTES = 4 << 10,
    HIER_BLOCK_MAX_BYTES = (256 << 10) + 64,
    HIER_SMALL_BYTES = 16 << 10,       /* data that travels with the
                                          agreement; also bounded by the
                                          block */
    HIER_CHUNK_BYTES = 64 << 10,       /* of a ring */
    HIER_WORK_BYTES = 8 << 20,         /* working memory of a round */
    HIER_FLAT_BYTES = HIER_WORK_BYTES, /* one rank per host: bytes of each
                                          rank in a round, moved directly
                                          between user buffers */
};

enum hier_step {
    HIER_LOCAL,   /* local ranks compare, and reduce or gather small data */
    HIER_TELL,    /* leaders exchange signatures, with that data */
    HIER_VERDICT, /* each leader tells its host the outcome */
    HIER_SCATTER, /* allreduce: each lane's rank gets its part, */
    HIER_RING,    /* reduces it over the hosts, */
    HIER_JOIN,    /* local ranks gather the lanes' parts */
    HIER_SPREAD,  /* broadcast: first on root's host, */
    HIER_CHAIN,   /* then over the lanes */
    HIER_COLLECT, /* and local ranks gather the parts */
    HIER_PIECE,   /* allgather: a piece of this host's elements, */
    HIER_SWAP,    /* exchanged for those of the other hosts, */
    HIER_SHARE,   /* broadcast to the local ranks */
    HIER_ROWS,    /* reducescatter: each lane's rank gets its hosts' rows, */
    HIER_REDUCE,  /* reduces them over the hosts, */
    HIER_PASS,    /* and passes on those of ranks without a lane */
    HIER_LEND,    /* alltoall: ranks without a lane give theirs to a lane, */
    HIER_CROSS,   /* lanes exchange, */
    HIER_HAND,    /* and local ranks get what is theirs */
    HIER_AGAIN,   /* next round */
    HIER_DONE,
};

/* What the leader tells its local ranks: in shared memory only. */
struct hier_verdict {
    uint32_t outcome; /* enum hier_outcome */
    uint32_t entries;
    int32_t late; /* rank that was waited for last, or -1 */
    int32_t reserved;
    unsigned char payload[];
};

/* Leaders' messages: a head, then small data.  Big-endian. */
enum {
    HIER_HEAD_BYTES = 32, /* u64 signature, u64 first signature, u32 entries,
                             u32 enum hier_outcome of the local ranks, u64 1
                             + the local rank that came last, or 0 */
};

enum hier_outcome { HIER_SAME, HIER_CUT, HIER_DIFFERS };

/* Which thread may send to other hosts: the one that moved `phase` away from
 * HIER_BETWEEN. exit() may run beside a thread that begins an operation.  Two
 * messages at once would get the same number in their authentication codes, so
 * the peer would take one for a forgery. */
enum hier_phase {
    HIER_BETWEEN, /* between operations: no thread */
    HIER_BUSY,    /* in an operation, or failed in one: the thread that
                     drives it */
    HIER_LEFT,    /* the other hosts are told that this rank leaves: no
                     thread any more */
};

struct hvd__hier {
    struct hvd__plane plane;
    const struct hvd__map *map;
    int rank; /* of the group */
    int host, local_rank, local_size;
    int local_max;          /* ranks of the largest host */
    struct hvd__plane *shm; /* the host's plane; self plane if alone */
    struct hvd__tcp *tcp;
    struct segment_head *head;
    uint32_t segment_ranks;
    struct hier_watch watch;
    _Atomic int phase; /* enum hier_phase */
    _Atomic int left;
    struct hb_error broken; /* every later operation fails with it */

    /* the operation */
    const enum hier_step *plan;
    /* Prepares the steps that follow the agreement: 0, or negative with op->err
     * set.  NULL: nothing is to be prepared. */
    int (*prepare)(struct hvd__hier *h, struct hvd__op *op);
    int at;           /* index in plan */
    int step_started; /* the step at `at` has been started */
    int in_tcp;       /* ... on TCP */
    struct hvd__op local_op;
    struct hb_error step_err;
    uint64_t own_bytes; /* allgather: bytes that this rank sends */
    size_t round, rounds;

    /* memory, made once */
    struct hvd__tcp_block *blocks;   /* [hosts] to receive */
    struct hvd__tcp_block *outgoing; /* [hosts] */
    size_t *words;                   /* [hosts]: authenticated bytes of
                                        outgoing */
    const void **srcs;               /* [hosts] */
    unsigned char *scratch;          /* [hosts * stride] */
    size_t stride, small_bytes;
    struct hier_verdict *verdict;
    size_t verdict_bytes;
    unsigned char *work;
    size_t work_bytes;

    /* reductions: elements of a round; allgather, alltoall: bytes */
    size_t slice;
    /* reducescatter: elements of a lane in `work`, and [hosts + 1] where each
     * host's begin there */
    size_t lane_elems;
    size_t *firsts;

    /* allgather, and the receiving side of alltoall */
    uint64_t *counts;     /* [size]: bytes from each rank */
    uint64_t *offsets;    /* [size + 1]: their offset in recvbuf */
    uint64_t *host_bytes; /* [hosts] */
    int deliver;
    const unsigned char *own;

    /* alltoall */
    unsigned char *wants; /* [local_size * size] u64: bytes that local ranks
                             send */
    size_t *leaps;        /* [size + 1]: each rank's offset in sendbuf */
    size_t *local_counts; /* [local_size] */
};

static inline int hier_leads(const struct hvd__hier *h)
{
    return h->local_rank == 0;
}

static inline int hier_alone(const struct hvd__hier *h)
{
    return h->local_size == 1;
}

static inline unsigned char *hier_block(const struct hvd__hier *h, int host)
{
    return h->scratch + (size_t)host * h->stride;
}

static inline size_t hier_bytes(const struct hvd__op *op)
{
    return op->count * op->elem_bytes;
}

/* Returns whether the data is the library's own, so that all of it is
 * authenticated between hosts. */
static inline int hier_is_words(const struct hvd__op *op)
{
    return (op->flags & HVD__OP_WORDS) != 0;
}

static inline int hier_small(const struct hvd__hier *h,
                             const struct hvd__op *op)
{
    return hier_bytes(op) <= h->small_bytes;
}

/* Returns whether data of this size travels in the leaders' messages (only with
 * one rank per host). */
static inline int hier_rides(const struct hvd__hier *h, uint64_t bytes)
{
    return hvd__map_is_flat(h->map) && bytes <= h->small_bytes;
}

static inline int hier_reduces(const struct hvd__op *op)
{
    return collective_reduces(op->kind);
}

/* Returns whether the data travels with the signatures. */
static inline int hier_data_rides(const struct hvd__hier *h,
                                  const struct hvd__op *op)
{
    return (hier_reduces(op) || op->kind == HVD__BROADCAST) &&
           hier_small(h, op);
}

static inline void hier_put_u64(unsigned char *at, uint64_t v)
{
    v = htobe64(v);
    memcpy(at, &v, sizeof(v));
}

static inline uint64_t hier_get_u64(const unsigned char *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return be64toh(v);
}

/* Returns the bytes of a host's counts in its message of an allgather;
 * hier_riding_bytes those of the data that follows them. */
static inline size_t hier_counts_bytes(const struct hvd__hier *h, int host)
{
    return (size_t)hvd__map_local_size(h->map, host) * sizeof(uint64_t);
}

static inline size_t hier_riding_bytes(const struct hvd__hier *h,
                                       const unsigned char *counts)
{
    uint64_t bytes = hvd__map_is_flat(h->map) ? hier_get_u64(counts) : 0;

    return hier_rides(h, bytes) ? (size_t)bytes : 0;
}

/* Prepares h->local_op for the shared-memory plane, with HVD_UINT8 as its
 * dtype. */
struct hvd__op *hier_local_op(struct hvd__hier *h, enum hvd__kind kind);
/* Prepares h->local_op for a reduction with op's dtype, kernel and factors,
 * except post and divisor, which belong to the last step. */
struct hvd__op *hier_local_reduction(struct hvd__hier *h, enum hvd__kind kind,
                                     const struct hvd__op *op);
/* Starts h->local_op, the operation inside this host, with `step` as its
 * signature.  Returns 1 or negative. */
int hier_start_local(struct hvd__hier *h, enum hier_step step);
int hier_out_of_step(struct hvd__hier *h, int host);

/* Returns op's algorithm, given TCP's: e.g. for "tcp.ring" itself with one
 * rank per host, else "hier.ring". */
const char *hier_algorithm(const struct hvd__hier *h, const char *tcp);

/*
 * A step. begin returns 1: started; 0: nothing to do on this rank; negative:
 * failed. end gets the started operation's result; it returns 0: go on;
 * HVD__CUT or -HVD_EMISMATCH: the operation ends and the plane stays usable;
 * another negative status: the plane is broken.  Errors go to h->sub_err.
 */
struct hier_step_ops {
    int is_tcp;
    int (*begin)(struct hvd__hier *h, struct hvd__op *op);
    int (*end)(struct hvd__hier *h, struct hvd__op *op, int rc);
};

/* ---- hier_agree.c ---- */
int hier_local_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_local_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_tell_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_tell_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_verdict_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_verdict_end(struct hvd__hier *h, struct hvd__op *op, int rc);

/* ---- hier_lanes.c: large allreduce and broadcast ---- */
/* Computes slice and rounds, before the first round. */
int hier_lanes_prepare(struct hvd__hier *h, struct hvd__op *op);
int hier_scatter_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_ring_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_ring_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_join_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_join_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_spread_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_chain_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_collect_begin(struct hvd__hier *h, struct hvd__op *op);

/* ---- hier_rows.c: large reducescatter ---- */
int hier_rows_prepare(struct hvd__hier *h, struct hvd__op *op);
int hier_rows_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_reduce_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_reduce_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_pass_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_pass_end(struct hvd__hier *h, struct hvd__op *op, int rc);

/* ---- hier_gather.c: allgather ---- */
/* Takes all ranks' counts from the verdict.  0, or -HVD_EPROTO with op->err
 * set if they are impossible. */
int hier_gather_counts(struct hvd__hier *h, struct hvd__op *op);
/* Computes offsets, recvcounts and `deliver` from h->counts, which may ask for
 * memory; 0 or -HVD_EPROTO. */
int hier_gather_places(struct hvd__hier *h, struct hvd__op *op);
int hier_piece_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_piece_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_swap_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_swap_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_share_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_share_end(struct hvd__hier *h, struct hvd__op *op, int rc);
/* Returns the operation's result after the last round, also of alltoall. */
int hier_gather_result(const struct hvd__hier *h, struct hvd__op *op);

/* ---- hier_alltoall.c ---- */
/* Returns the least size of h->work. */
size_t hier_alltoall_room(const struct hvd__hier *h);
/* Writes to h->work what this rank sends to each rank: for the agreement, on
 * all ranks. */
void hier_alltoall_wants(struct hvd__hier *h, const struct hvd__op *op);
/* Makes the leader's messages to each host (head, counts, small data) and
 * begins the exchange. */
void hier_alltoall_tell(struct hvd__hier *h, const struct hvd__op *op);
/* Checks the lengths of the messages to this leader and fills the verdict. */
int hier_alltoall_heard(struct hvd__hier *h, const struct hvd__op *op);
/* Takes all ranks' counts from the verdict; 0 or -HVD_EPROTO with op->err
 * set. */
int hier_alltoall_counts(struct hvd__hier *h, struct hvd__op *op);
int hier_lend_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_cross_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_cross_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_hand_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_hand_end(struct hvd__hier *h, struct hvd__op *op, int rc);

#endif
