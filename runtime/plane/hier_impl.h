/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the hierarchical plane: an operation is a list of steps, each one
 * operation of the shared-memory plane, or of the TCP group, or nothing on
 * this rank.
 */
#ifndef HVD_PLANE_HIER_IMPL_H
#define HVD_PLANE_HIER_IMPL_H

#include "runtime/plane/hier.h"
#include "runtime/plane/shm.h"

#include <stdatomic.h>

enum {
    HIER_SCRATCH_BYTES = 1 << 20, /* of all hosts' blocks, about */
    HIER_BLOCK_MIN_BYTES = 4 << 10,
    HIER_BLOCK_MAX_BYTES = 256 << 10,
    HIER_SMALL_BYTES = 16 << 10, /* data that rides along; also bounded by
                                    the block */
    HIER_CHUNK_BYTES = 64 << 10, /* of a ring */
};

enum hier_step {
    HIER_LOCAL,   /* local ranks compare, and reduce or gather small data */
    HIER_TELL,    /* leaders exchange signatures, with that */
    HIER_EXPLAIN, /* leaders exchange descriptors, if signatures differ */
    HIER_VERDICT, /* the leader tells the outcome */
    HIER_SCATTER, /* allreduce: each lane's rank gets its part, */
    HIER_RING,    /* reduces it over the hosts */
    HIER_SPREAD,  /* broadcast: on root's host, */
    HIER_CHAIN,   /* then over the lanes */
    HIER_COLLECT, /* local ranks gather the lanes' parts */
    HIER_PIECE,   /* allgather: a piece of this host's elements, */
    HIER_SWAP,    /* for those of the other hosts, */
    HIER_SHARE,   /* for the local ranks */
    HIER_AGAIN,   /* back to HIER_PIECE */
    HIER_DONE,
};

/* What the leader tells: in shared memory, never on a wire. */
struct hier_verdict {
    int32_t status; /* 0 or negative; then the payload is the line */
    uint32_t reserved;
    unsigned char payload[];
};

/* Leaders' messages: a head, then small data.  Big-endian. */
enum {
    HIER_HEAD_BYTES = 16, /* u64 signature, u64 1 if local ranks differ */
};

struct hvd__hier {
    struct hvd__plane plane;
    const struct hvd__map *map;
    uint32_t rank;
    int host, local_rank, local_size;
    struct hvd__plane *shm;
    struct hvd__tcp *tcp;
    struct segment_head *head;
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
    int differs; /* local ranks do */
    int agreed;  /* leader: all hosts do */
    uint64_t signature;
    uint64_t own_bytes; /* allgather: that this rank sends */

    /* memory, made once */
    struct hvd__tcp_block *blocks; /* [hosts] */
    const void **srcs;             /* [hosts] */
    unsigned char *scratch;        /* [hosts * stride] */
    size_t stride, small_bytes;
    struct hier_verdict *verdict;

    /* allgather */
    uint64_t *counts;     /* [size]: bytes of each rank */
    uint64_t *offsets;    /* [size + 1]: its place in recvbuf */
    uint64_t *host_bytes; /* [hosts] */
    size_t round, rounds;
    int deliver;
    const unsigned char *own;
};

static inline int hier_leads(const struct hvd__hier *h)
{
    return h->local_rank == 0;
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

/* Prepares h->sub for the shared-memory plane: bytes, unless the caller
 * says otherwise. */
struct hvd__op *hier_sub(struct hvd__hier *h, enum hvd__kind kind);
/* Starts h->sub: 1 or negative. */
int hier_start_sub(struct hvd__hier *h, enum hier_step step);

/*
 * A step: begin returns 1 when something was started, 0 when this rank has
 * nothing to do, or negative; end gets what the started operation gave, and
 * returns 0, or negative when this operation, but not the plane, fails.
 * Errors go to h->sub_err.
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
int hier_explain_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_explain_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_verdict_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_verdict_end(struct hvd__hier *h, struct hvd__op *op, int rc);

/* ---- hier_lanes.c: large allreduce and broadcast ---- */
int hier_scatter_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_ring_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_spread_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_chain_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_collect_begin(struct hvd__hier *h, struct hvd__op *op);

/* ---- hier_gather.c: allgather ---- */
/* Takes all ranks' counts from the verdict. */
void hier_gather_counts(struct hvd__hier *h, struct hvd__op *op);
int hier_piece_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_piece_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_swap_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_swap_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_share_begin(struct hvd__hier *h, struct hvd__op *op);
int hier_share_end(struct hvd__hier *h, struct hvd__op *op, int rc);
int hier_again_begin(struct hvd__hier *h, struct hvd__op *op);
/* What the operation returns after the last round. */
int hier_gather_result(const struct hvd__hier *h, struct hvd__op *op);

#endif
