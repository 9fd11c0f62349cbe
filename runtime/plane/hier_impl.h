/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the hierarchical plane: an operation is a list of steps, each one
 * operation of the shared-memory plane, or of the TCP group, or nothing on
 * this rank.  The first three agree (hier_agree.c); the others are a loop of
 * `rounds` rounds, in which memory that the plane has is used again.
 *
 * Where a host has one rank, the plane of a world of one stands in for
 * shared memory.
 */
#ifndef HVD_PLANE_HIER_IMPL_H
#define HVD_PLANE_HIER_IMPL_H

#include "runtime/plane/hier.h"
#include "runtime/plane/hier_watch.h"
#include "runtime/plane/shm.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

enum {
    HIER_SCRATCH_BYTES = 1 << 20, /* of all hosts' blocks, about */
    HIER_BLOCK_MIN_BYTES = 4 << 10,
    HIER_BLOCK_MAX_BYTES = (256 << 10) + 64,
    HIER_SMALL_BYTES = 16 << 10,       /* data that rides along; also bounded by
                                          the block */
    HIER_CHUNK_BYTES = 64 << 10,       /* of a ring */
    HIER_WORK_BYTES = 8 << 20,         /* what a round has to do with */
    HIER_FLAT_BYTES = HIER_WORK_BYTES, /* of each rank in a round, from where
                                          it is to where it belongs */
};

enum hier_step {
    HIER_LOCAL,   /* local ranks compare, and reduce or gather small data */
    HIER_TELL,    /* leaders exchange signatures, with that */
    HIER_VERDICT, /* the leader tells the outcome */
    HIER_SCATTER, /* allreduce: each lane's rank gets its part, */
    HIER_RING,    /* reduces it over the hosts, */
    HIER_JOIN,    /* local ranks gather the lanes' parts */
    HIER_SPREAD,  /* broadcast: on root's host, */
    HIER_CHAIN,   /* then over the lanes */
    HIER_COLLECT, /* and local ranks gather the parts */
    HIER_PIECE,   /* allgather: a piece of this host's elements, */
    HIER_SWAP,    /* for those of the other hosts, */
    HIER_SHARE,   /* for the local ranks */
    HIER_ROWS,    /* reducescatter: each lane's rank gets its hosts' rows, */
    HIER_REDUCE,  /* reduces them over the hosts, */
    HIER_PASS,    /* and passes on those of ranks without a lane */
    HIER_LEND,    /* alltoall: ranks without a lane lend theirs, */
    HIER_CROSS,   /* lanes exchange, */
    HIER_HAND,    /* and local ranks get theirs */
    HIER_AGAIN,   /* next round */
    HIER_DONE,
};

/* What the leader tells: in shared memory, never on a wire. */
struct hier_verdict {
    uint32_t outcome; /* enum hier_outcome */
    uint32_t entries;
    int32_t late; /* the rank that was waited for last, or -1 */
    int32_t reserved;
    unsigned char payload[];
};

/* Leaders' messages: a head, then small data.  Big-endian. */
enum {
    HIER_HEAD_BYTES = 32, /* u64 signature, u64 first signature, u32 entries,
                             u32 enum hier_outcome of the local ranks, u64 1 +
                             the one of them that came last, or 0 */
};

enum hier_outcome { HIER_SAME, HIER_CUT, HIER_DIFFERS };

struct hvd__hier {
    struct hvd__plane plane;
    const struct hvd__map *map;
    int rank; /* of the group */
    int host, local_rank, local_size;
    int local_max;          /* ranks of the largest host */
    struct hvd__plane *shm; /* of several local ranks, or of one alone */
    struct hvd__tcp *tcp;
    struct segment_head *head;
    uint32_t segment_ranks;
    struct hier_watch watch;
    _Atomic int between; /* no operation has begun that is not over */
    _Atomic int left;
    struct hb_error broken; /* the failure that lasts */

    /* the operation */
    const enum hier_step *plan;
    int at;     /* in plan */
    int begun;  /* the step at `at` is */
    int in_tcp; /* it is one of TCP */
    struct hvd__op sub;
    struct hb_error sub_err;
    uint64_t own_bytes; /* allgather: that this rank sends */
    size_t round, rounds;

    /* memory, made once */
    struct hvd__tcp_block *blocks;   /* [hosts] to receive */
    struct hvd__tcp_block *outgoing; /* [hosts] */
    const void **srcs;               /* [hosts] */
    unsigned char *scratch;          /* [hosts * stride] */
    size_t stride, small_bytes;
    struct hier_verdict *verdict;
    unsigned char *work;
    size_t work_bytes;

    /* allreduce, reducescatter: elements of a round */
    size_t slice;
    /* reducescatter: of a lane in work, and [hosts + 1]: where each host's
     * begin there */
    size_t lane_elems;
    size_t *firsts;

    /* allgather, and what arrives of an alltoall */
    uint64_t *counts;     /* [size]: bytes of each rank */
    uint64_t *offsets;    /* [size + 1]: its place in recvbuf */
    uint64_t *host_bytes; /* [hosts] */
    int deliver;
    const unsigned char *own;

    /* alltoall */
    unsigned char *wants; /* [local_size * size] u64: bytes of local ranks */
    size_t *leaps;        /* [size + 1]: each rank's place in sendbuf */
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

static inline int hier_small(const struct hvd__hier *h,
                             const struct hvd__op *op)
{
    return hier_bytes(op) <= h->small_bytes;
}

/* Whether what a rank has for another goes with the leaders' words. */
static inline int hier_rides(const struct hvd__hier *h, uint64_t bytes)
{
    return hvd__map_is_flat(h->map) && bytes <= h->small_bytes;
}

static inline int hier_reduces(const struct hvd__op *op)
{
    return op->kind == HVD__ALLREDUCE || op->kind == HVD__REDUCESCATTER;
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

/* Of an allgather: the counts of a host's ranks, and what follows them. */
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

/* Prepares h->sub for the shared-memory plane: bytes, unless the caller
 * says otherwise. */
struct hvd__op *hier_sub(struct hvd__hier *h, enum hvd__kind kind);
/* The same for a reduction as op's, without what belongs to its end. */
struct hvd__op *hier_sub_reduction(struct hvd__hier *h, enum hvd__kind kind,
                                   const struct hvd__op *op);
/* Starts h->sub: 1 or negative. */
int hier_start_sub(struct hvd__hier *h, enum hier_step step);
int hier_out_of_step(struct hvd__hier *h, int host);

/* op's algorithm, where TCP uses that one: "tcp.ring" with one rank on each
 * host, else "hier.ring". */
const char *hier_algorithm(const struct hvd__hier *h, const char *tcp);

/*
 * A step: begin returns 1 when something was started, 0 when this rank has
 * nothing to do, or negative; end gets what the started operation gave, and
 * returns 0, or what the operation, but not the plane, ends with.  Errors go
 * to h->sub_err.
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
/* Before the first round. */
void hier_lanes_prepare(struct hvd__hier *h, struct hvd__op *op);
int hier_scatter_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_ring_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_ring_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_join_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_join_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_spread_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_chain_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_collect_begin(struct hvd__hier *h, struct hvd__op *op);

/* ---- hier_rows.c: large reducescatter ---- */
void hier_rows_prepare(struct hvd__hier *h, const struct hvd__op *op);
int hier_rows_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_reduce_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_reduce_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_pass_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_pass_end(struct hvd__hier *h, struct hvd__op *op, int rc);

/* ---- hier_gather.c: allgather ---- */
/* Takes all ranks' counts from the verdict. */
void hier_gather_counts(struct hvd__hier *h, struct hvd__op *op);
/* From h->counts to offsets, recvcounts and whether to deliver. */
void hier_gather_places(struct hvd__hier *h, struct hvd__op *op);
int hier_piece_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_piece_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_swap_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_swap_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_share_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_share_end(struct hvd__hier *h, struct hvd__op *op, int rc);
/* What the operation returns after the last round; alltoall too. */
int hier_gather_result(const struct hvd__hier *h, struct hvd__op *op);

/* ---- hier_alltoall.c ---- */
/* The least that h->work must have. */
size_t hier_alltoall_room(const struct hvd__hier *h);
/* While agreeing: what this rank sends to whom, */
void hier_alltoall_wants(struct hvd__hier *h, const struct hvd__op *op);
/* leaders' messages to each host: head, counts and small data; begins the
 * exchange; */
void hier_alltoall_tell(struct hvd__hier *h, const struct hvd__op *op);
/* leaders: whether they are as long as what they say; then into the
 * verdict; */
int hier_alltoall_heard(struct hvd__hier *h, const struct hvd__op *op);
/* all: from the verdict. */
void hier_alltoall_counts(struct hvd__hier *h, struct hvd__op *op);
int hier_lend_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_cross_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_cross_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_hand_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_hand_end(struct hvd__hier *h, struct hvd__op *op, int rc);

#endif
