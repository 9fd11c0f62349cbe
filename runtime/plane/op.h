/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective operation, as the engine hands it to a plane, and its
 * descriptor: what every rank must agree on before data is used.
 *
 * The signature is a 64-bit hash of the descriptors of all requests that
 * were fused into the operation, and of what the set has carried out before.
 * Planes compare the signatures of all ranks and nothing else; what differs,
 * and what to do about it, is the engine's business (core/negotiate.h).
 *
 * Ranks are those of the plane's group, 0 .. n - 1: a process set's own.
 *
 * The elements of an allreduce may come from several pieces of memory, the
 * parts, and travel in another dtype than the caller's.  Then it is not
 * direct: a plane reads inputs with hvd__op_pack and delivers with
 * hvd__op_unpack only, by ranges of elements, and sendbuf and recvbuf are
 * NULL.  All other operations are direct.  An operation is direct on all ranks
 * or on none.
 */
#ifndef HVD_PLANE_OP_H
#define HVD_PLANE_OP_H

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "runtime/hvd.h"
#include "runtime/plane/reduce.h"

enum { HVD__NAME_BYTES = 256 }; /* an operation's name with its final 0 */

enum hvd__kind {
    HVD__ALLREDUCE,
    HVD__BROADCAST,
    HVD__ALLGATHER,
    HVD__BARRIER,
    HVD__ALLTOALL,
    HVD__REDUCESCATTER,
    HVD__JOIN,         /* never reaches a plane */
    HVD__LANE_SCATTER, /* inside the hierarchical plane only */
};

/* A piece of an allreduce that is not direct: count elements of the caller's
 * dtype; the parts lie one after the other in the operation's elements. */
struct hvd__part {
    const void *sendbuf;
    void *recvbuf; /* may be sendbuf */
    size_t first, count;
    void *ready; /* device memory: what it waits for, plugins/gpu.h; or NULL */
};

enum hvd__op_flag {
    HVD__OP_LIVE = 1u << 0,   /* an average of the ranks that have not joined */
    HVD__OP_GROUP = 1u << 1,  /* of a group call */
    HVD__OP_DEVICE = 1u << 2, /* in device memory */
};

struct hvd__op {
    enum hvd__kind kind;
    enum hvd_dtype dtype; /* of the elements as they travel */
    enum hvd_op op;       /* of reductions, else 0 */
    int root;             /* broadcast only, else 0 */
    int lanes;            /* lane scatter only: local ranks that get a part */
    int ordered;          /* device memory: over when it was launched; ranks may
                             differ */
    double prescale, postscale; /* as the caller gave them */
    const char *name;           /* "" when the caller gave none */
    uint64_t name_hash;

    /* What the headers carry.  Ranks whose signatures differ while their
     * `first_signature` is the same have fused differently many requests
     * that begin alike: then progress is HVD__CUT and agreed_entries, the
     * fewest of any rank, is set. */
    uint64_t signature, first_signature;
    uint32_t entries; /* requests fused into it, >= 1 (0 is as 1) */
    uint32_t agreed_entries;

    const void *sendbuf;
    void *recvbuf;
    size_t count; /* elements that this rank sends, of all parts */
    size_t elem_bytes;
    const struct hvd__part *parts; /* NULL: direct */
    size_t nparts;                 /* of a group of another kind: its members */
    uint64_t members_hash;         /* of what those must agree on */
    enum hvd_dtype part_dtype;     /* of the caller's memory */
    uint32_t flags;                /* enum hvd__op_flag */

    size_t row_elems;         /* reducescatter: what is never split; >= 1 */
    const size_t *sendcounts; /* alltoall: elements to each rank; their sum
                                 is count */
    size_t recvcap;     /* allgather, alltoall: elements of room in recvbuf */
    size_t *recvcounts; /* allgather, alltoall: by rank; may be NULL */
    hvd__reduce_fn *reduce; /* of dtype and op */
    struct hvd__reduce_args args;

    /* In device memory: see plugins/gpu.h. */
    void *ready;     /* direct operations; else the parts have theirs */
    uint64_t launch; /* out: its number when it is ordered, else 0 */

    const char *algorithm; /* out: how it was done, for traces; constant */
    /* For traces and statistics.  In: HVD__OP_TIMED or 0; out, if asked for
     * and the plane can tell: when all ranks had begun it, and which was
     * waited for last here (-1: none was). */
    uint64_t agreed_ns;
    int late_rank;
    struct hb_error *err; /* why it failed */
};

enum { HVD__OP_TIMED = 1 };

/* All zero.  Word by word, as what compilers make of memset here, a string
 * instruction, takes a tenth of a small operation. */
static inline void hvd__op_init(struct hvd__op *op)
{
    typedef uint64_t pair
        __attribute__((vector_size(16), aligned(8), may_alias));
    pair *to = (pair *)(void *)op;

    for (size_t i = 0; i < sizeof(*op) / sizeof(*to); i++) {
        to[i] = (pair){0, 0};
        __asm__ volatile("" : : "r"(to)); /* or it is memset again */
    }
}

_Static_assert(sizeof(struct hvd__op) % 16 == 0, "hvd__op_init leaves a rest");

/* Asks for agreed_ns and late_rank, before start. */
static inline void hvd__op_time(struct hvd__op *op)
{
    op->agreed_ns = HVD__OP_TIMED;
    op->late_rank = -1;
}

/* A plane: that rank has not begun it yet. */
static inline void hvd__op_misses(struct hvd__op *op, int rank)
{
    op->late_rank = rank;
}

/* A plane: all ranks have begun it; costs nothing when not asked for. */
static inline void hvd__op_agreed(struct hvd__op *op)
{
    if (op->agreed_ns == HVD__OP_TIMED)
        op->agreed_ns = hb_now_ns();
}

static inline int hvd__op_direct(const struct hvd__op *op)
{
    return op->parts == NULL;
}

/* Reads the elements [first, first + count) of an operation, direct or not,
 * as they travel, to dst, which overlaps no part.  Where part_dtype is not
 * dtype they are multiplied by prescale and then rounded, and args.pre is 1;
 * elsewhere they are copied as they are. */
void hvd__op_pack(const struct hvd__op *op, void *dst, size_t first,
                  size_t count);
/* Delivers results, widened where part_dtype is not dtype.  stream: past
 * the cache. */
void hvd__op_unpack(const struct hvd__op *op, const void *src, size_t first,
                    size_t count, int stream);

/* The elements that one of n ranks gets of a reducescatter: whole rows, the
 * first (rows mod n) ranks one more. */
struct hvd__share {
    size_t first, count;
};
struct hvd__share hvd__op_share(const struct hvd__op *op, int rank, int n);

/* What ranks must agree on, beside the data. */
struct hvd__descriptor {
    uint32_t kind, dtype, op, wire, flags;
    int32_t root;
    uint64_t count; /* 0 for allgather and alltoall: it may differ there */
    uint64_t row_elems;
    uint64_t parts, parts_hash; /* of a group: how many, and their counts */
    double prescale, postscale;
    uint64_t name_hash;
    char name[HVD__NAME_BYTES];
};

/* One multiply-and-fold round; any good mixer does, it meets no attacker:
 * ranks of a job trust each other. */
static inline uint64_t hvd__mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

uint64_t hvd__name_hash(const char *name);

/* The signature of one operation, of everything in its descriptor;
 * parts_hash is 0 where it has no parts of a group. */
uint64_t hvd__op_signature(const struct hvd__op *op);

void hvd__op_describe(const struct hvd__op *op, struct hvd__descriptor *d);

/* A rank and what it was called with; host NULL: not told. */
struct hvd__party {
    const struct hvd__descriptor *d;
    int rank;
    const char *host;
    const int *ranks; /* [n]: of the world, by place, to name a root */
    int n;
};

/* If the two differ: sets HVD_EMISMATCH with one line that names both
 * ranks and both values of the first field that differs, and returns 1.
 * Both come from other processes and need not be sane. */
int hvd__descriptor_differ(const struct hvd__party *a,
                           const struct hvd__party *b, struct hb_error *err);

/* What an allgather or alltoall returns at its end: 1, or what it is when
 * recvbuf is wanted and had no room for the elements that arrived, so that
 * they were not delivered. */
int hvd__op_gathered(const struct hvd__op *op, int delivered, size_t arrived);

const char *hvd__kind_name(uint32_t kind);

#endif
