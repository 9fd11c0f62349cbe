/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective operation, as the engine hands it to a plane, and its
 * descriptor: what every rank must agree on before data is used.
 *
 * The signature is a 64-bit hash of the descriptors of all requests that were
 * fused into the operation, and of the operations that the process set has
 * carried out before.  Planes compare the signatures of all ranks and nothing
 * else; the engine finds out what differs and what to do about it
 * (runtime/core/sched/negotiate.h).
 *
 * Ranks are numbered within the plane's group (the process set), 0 .. n - 1.
 *
 * The elements of an allreduce may come from several pieces of memory, the
 * parts, and travel in another dtype than the caller's.  Such an operation is
 * not direct: sendbuf and recvbuf are NULL, and a plane reads inputs only with
 * hvd__op_pack and delivers results only with hvd__op_unpack, by ranges of
 * elements.  All other operations are direct.  An operation is direct on all
 * ranks or on none.
 */
#ifndef HVD_PLANE_OP_H
#define HVD_PLANE_OP_H

#include "lib/base/error.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/collectives.h"
#include "runtime/hvd.h"
#include "runtime/plane/kernels/reduce.h"

#include <stdint.h>

enum {
    HVD__NAME_BYTES = 256, /* an operation's name, terminating 0 included */
    HVD__SITE_BYTES = 128, /* a call site as text, terminating 0 included */
};

/* HVD__ALLREDUCE and so on.  A plane gets a join as a barrier (hvd__run_begin);
 * only its `supports` is asked about HVD__JOIN. */
#define HVD__KIND(symbol, ...) HVD__##symbol
enum hvd__kind {
    COLLECTIVES_AND_JOIN(HVD__KIND),
    HVD__LANE_SCATTER, /* used inside the hierarchical plane only */
};

/* One part of an allreduce that is not direct: count elements of the caller's
 * dtype.  `first` is its offset in the operation's elements, where the parts
 * follow one another. */
struct hvd__part {
    const void *sendbuf;
    void *recvbuf; /* may be sendbuf */
    size_t first, count;
    void *ready; /* device memory: the event that the data waits for
                    (plugins/gpu.h); else NULL */
};

enum hvd__op_flag {
    HVD__OP_LIVE = 1u << 0,   /* the average is over the ranks that have not
                                 joined */
    HVD__OP_GROUP = 1u << 1,  /* issued by a group call */
    HVD__OP_DEVICE = 1u << 2, /* the buffers are in device memory */
    HVD__OP_WORDS = 1u << 3,  /* the library's own messages about operations,
                                 not tensor data */
    HVD__OP_SHAPED = 1u << 4, /* the caller has given shapes */
};

/* Time spent packing data into memory that a plane reads or sends, and
 * unpacking results. */
enum hvd__copy_way { HVD__COPY_IN, HVD__COPY_OUT, HVD__COPY_WAYS };
struct hvd__copies {
    uint64_t began_ns, ended_ns; /* begin of the first copy, end of the last;
                                    0: none */
    uint64_t busy_ns;            /* sum over all copies */
};

/* Who is asked for the memory of what arrives in an allgather or alltoall. */
struct hvd__op_alloc {
    hvd_alloc_fn *fn; /* NULL: none, the caller gave recvbuf */
    void *arg;
    size_t member; /* of a group; else 0 */
    int status;    /* out: 0; or negative: the answer cannot be used */
};

/* What an operation in device memory needs besides: see plugins/gpu.h. */
struct hvd__op_device {
    void *ready;      /* event that a direct operation's data waits for; else
                         each part has its own */
    uint64_t launch;  /* out: number of the launch if it is ordered, else 0 */
    uint32_t earlier; /* out: how many launches just before that one belong to
                         the operation, too, if it is a group */
    int ordered;      /* done for the engine once it is launched on the stream;
                         may differ between ranks */
};

/* What an operation tells timelines and statistics. */
struct hvd__op_trace {
    const char *algorithm; /* out: static string */
    /* In: HVD__OP_TIMED or 0.  Out, if HVD__OP_TIMED and the plane can tell:
     * when all ranks had begun the operation, and the rank that this one
     * waited for last (-1: none). */
    uint64_t agreed_ns;
    struct hvd__copies *copies; /* out: [HVD__COPY_WAYS]; or NULL */
    int late_rank;
};

/* Hashes by which the core compares operations and finds their plans.
 * Their mix is a part of the signature. */
struct hvd__op_hashes {
    uint64_t name;
    uint64_t site;    /* of the call site, if call sites are compared
                         (plane/site.h); else 0 */
    uint64_t shapes;  /* of the shapes of the caller's tensors, if given
                         (core/sched/shapes.h); else 0 */
    uint64_t members; /* of what the members of a group without parts must
                         agree on */
};

/* What every operation needs comes first, in three lines of the cache. */
struct hvd__op {
    /* ---- What is done ---- */
    enum hvd__kind kind;
    enum hvd_dtype dtype; /* of the elements on the wire */
    enum hvd_op op;       /* of reductions, else 0 */
    int root;             /* broadcast only, else 0 */
    int lanes;            /* lane scatter only: local ranks that get a part */
    uint32_t flags;       /* enum hvd__op_flag */
    double prescale, postscale; /* as the caller gave them */
    const char *name;           /* "" when the caller gave none */

    /* ---- The data ---- */
    const void *sendbuf;
    void *recvbuf;
    size_t count; /* elements that this rank sends, over all parts */
    size_t elem_bytes;
    const struct hvd__part *parts; /* NULL: direct */
    size_t nparts;                 /* entries of parts; without parts,
                                      members of the group */
    /* ---- What planes compare: the descriptor's hash ----
     * If the ranks' signatures differ but first_signature, that of the first
     * request, is equal, they have fused different numbers of requests:
     * progress then returns HVD__CUT and sets agreed_entries to the fewest of
     * any rank. */
    uint64_t signature, first_signature;
    uint32_t entries; /* requests fused into it; 0 means 1 */
    uint32_t agreed_entries;

    /* ---- How it is done ---- */
    enum hvd_dtype part_dtype; /* dtype of the caller's memory */
    struct hvd__reduce_args args;
    hvd__reduce_fn *reduce;   /* kernel for dtype and op */
    size_t row_elems;         /* reducescatter: elements of a row, which is
                                 never split; >= 1 */
    const size_t *sendcounts; /* alltoall: elements to each rank; their sum
                                 is count */
    size_t recvcap;     /* capacity of recvbuf in elements: allgather, alltoall;
                           also a broadcast whose count only the root knows */
    size_t *recvcounts; /* out: allgather, alltoall: elements from each
                           rank; may be NULL, but not with alloc */

    /* ---- What few operations need ---- */
    struct hb_error *err;       /* set when it fails */
    struct hvd__op_alloc alloc; /* hvd__op_room then sets recvbuf and
                                   recvcap */
    struct hvd__op_hashes hashes;
    struct hvd__op_device device;
    struct hvd__op_trace trace;
};

enum { HVD__OP_TIMED = 1 };

/* Zeroes *op.  Vector by vector, since the string instruction that compilers
 * make of memset here takes a tenth of a small operation's time. */
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

/* Asks for trace.agreed_ns and trace.late_rank, before start. */
static inline void hvd__op_time(struct hvd__op *op)
{
    op->trace.agreed_ns = HVD__OP_TIMED;
    op->trace.late_rank = -1;
}

/* Notes that `rank` has not begun the operation yet; called by a plane. */
static inline void hvd__op_misses(struct hvd__op *op, int rank)
{
    op->trace.late_rank = rank;
}

/* Notes the time when all ranks have begun the operation; called by a plane.
 * Does nothing unless hvd__op_time asked for it. */
static inline void hvd__op_agreed(struct hvd__op *op)
{
    if (op->trace.agreed_ns == HVD__OP_TIMED)
        op->trace.agreed_ns = hb_now_ns();
}

/* Begins a copy of an operation's data, which hvd__op_copy_end ends; they read
 * the clock only if copies are traced. */
static inline uint64_t hvd__op_copy_begin(const struct hvd__op *op)
{
    return op->trace.copies ? hb_now_ns() : 0;
}

static inline void hvd__op_copy_end(const struct hvd__op *op,
                                    enum hvd__copy_way way, uint64_t began_ns)
{
    struct hvd__copies *c;

    if (!began_ns)
        return;
    c = &op->trace.copies[way];
    if (!c->began_ns)
        c->began_ns = began_ns;
    c->ended_ns = hb_now_ns();
    c->busy_ns += c->ended_ns - began_ns;
}

static inline int hvd__op_direct(const struct hvd__op *op)
{
    return op->parts == NULL;
}

/* Copies the elements [first, first + count) of an operation, direct or not,
 * in their wire dtype to dst, which overlaps no part.  If part_dtype is not
 * dtype, multiplies them by prescale and then rounds (the caller sets args.pre
 * to 1). */
void hvd__op_pack(const struct hvd__op *op, void *dst, size_t first,
                  size_t count);
/* Packs as hvd__op_pack, but untraced: the caller traces the whole copy. */
void hvd__op_pack_piece(const struct hvd__op *op, void *dst, size_t first,
                        size_t count);
/* Delivers results to the caller's memory, converted to part_dtype if that
 * differs. stream: non-temporal stores, past the cache. */
void hvd__op_unpack(const struct hvd__op *op, const void *src, size_t first,
                    size_t count, int stream);

/* Returns the elements that `rank` of n gets of a reducescatter: whole rows,
 * one more for each of the first (rows mod n) ranks. */
struct hvd__share {
    size_t first, count;
};
struct hvd__share hvd__op_share(const struct hvd__op *op, int rank, int n);

/* What all ranks must agree on before data is used. */
struct hvd__descriptor {
    uint32_t kind, dtype, op, wire, flags;
    int32_t root;
    uint64_t count; /* 0 for allgather and alltoall: it may differ there */
    uint64_t row_elems;
    uint64_t parts, parts_hash; /* group: number of members, hash of their
                                   counts */
    double prescale, postscale;
    uint64_t name_hash, site;
    char name[HVD__NAME_BYTES];
    char site_text[HVD__SITE_BYTES]; /* plane/site.h; "" if unknown */
};

/* Mixes v into h: one multiply-and-fold round.  Not cryptographic: ranks of a
 * job trust each other. */
static inline uint64_t hvd__mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

uint64_t hvd__name_hash(const char *name);

/* Returns the hash of everything in the operation's descriptor. */
uint64_t hvd__op_signature(const struct hvd__op *op);

void hvd__op_describe(const struct hvd__op *op, struct hvd__descriptor *d);

/* A rank and the descriptor of its operation; host is NULL if unknown. */
struct hvd__party {
    const struct hvd__descriptor *d;
    int rank;
    const char *host;
    const int *ranks; /* [n]: world rank of each group rank, for messages */
    int n;
};

/* Compares two descriptors.  If they differ, sets HVD_EMISMATCH with a line
 * that names both ranks and both values of the first field that differs, and
 * returns 1; else 0.  Descriptors come from other processes and are not
 * trusted to be sane. */
int hvd__descriptor_differ(const struct hvd__party *a,
                           const struct hvd__party *b, struct hb_error *err);

/* Adds the amount that a peer announces, in units of unit_bytes, to *sum.
 * Returns 0 if no memory could hold the sum. */
static inline int hvd__op_add(size_t *sum, uint64_t more, size_t unit_bytes)
{
    return !__builtin_add_overflow(*sum, more, sum) &&
           *sum <= PTRDIFF_MAX / unit_bytes;
}

/* Sets op->err: a peer announced impossible sizes.  Returns -HVD_EPROTO. */
int hvd__op_nonsense(const struct hvd__op *op);

/* Asks op->alloc for memory for `count` elements, and sets recvbuf and recvcap,
 * or alloc.status. */
void hvd__op_ask(struct hvd__op *op, size_t count);

/* Returns whether recvbuf has room for the bytes that arrive.  With alloc, asks
 * for that room; so a plane calls it once for an operation, with recvcounts
 * filled in, when all ranks have agreed, and without a lock that a call of the
 * library may want. */
static inline int hvd__op_room(struct hvd__op *op, size_t bytes)
{
    if (op->alloc.fn)
        hvd__op_ask(op, bytes / op->elem_bytes);
    return bytes <= op->recvcap * op->elem_bytes;
}

/* Returns the result of an allgather or alltoall: 1; or negative with op->err
 * set if nothing was delivered: -HVD_EINVAL, as a wanted recvbuf had no room
 * for the `arrived` elements, or alloc.status. */
int hvd__op_gathered(const struct hvd__op *op, int delivered, size_t arrived);

/* Returns whether the outcome rc of progress is a failure of this rank alone:
 * the other ranks have carried the operation out, and the plane goes on. */
static inline int hvd__op_alone(const struct hvd__op *op, int rc)
{
    return rc == -HVD_EINVAL || (rc < 0 && rc == op->alloc.status);
}

#endif
