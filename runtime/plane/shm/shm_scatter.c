/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce-scatter in shared memory, of two kinds.  Each cuts the tensor into
 * contiguous parts, one per rank; a rank gets its part reduced over all ranks
 * in rank order:
 *
 * - A reducescatter cuts by rows; the result fills recvbuf.
 * - A lane scatter cuts at cache lines into op->lanes parts, for the first
 *   op->lanes local ranks.  The result goes to the part's place in recvbuf;
 *   the rest of recvbuf is not touched.  The caller leaves out args->post and
 *   the divisor.
 *
 * Inline data is reduced from the headers.  Otherwise a slot holds a block of
 * every part: in each round a rank copies the i-th block of all parts but its
 * own to its slot, and reduces the block of its own part from all slots and
 * its private input.  Small tensors are all in round 0.  Two ranks exchange
 * their parts, unless all input lies in arenas.
 */
#include "runtime/plane/shm/shm_exchange.h"
#include "runtime/plane/shm/shm_rounds.h"

enum { ALIGN_BYTES = 64 };

struct hvd__span hvd__lane_span(size_t count, size_t elem_bytes, int lanes,
                                int lane)
{
    size_t align = ALIGN_BYTES / elem_bytes, n = (size_t)lanes;
    size_t each = (count + n * align - 1) / (n * align) * align;
    struct hvd__span s = {(size_t)lane * each, each};

    if (lane >= lanes || s.first > count)
        s.first = count;
    if (s.count > count - s.first)
        s.count = count - s.first;
    return s;
}

/* ---- Geometry ----------------------------------------------------------- */

static int parts_of(const struct hvd__shm *p, const struct hvd__op *op)
{
    return op->kind == HVD__LANE_SCATTER ? op->lanes : p->n;
}

/* Returns a rank's part of the tensor. */
static struct hvd__span part_of(const struct hvd__shm *p,
                                const struct hvd__op *op, int rank)
{
    struct hvd__share share;

    if (op->kind == HVD__LANE_SCATTER)
        return hvd__lane_span(op->count, op->elem_bytes, op->lanes, rank);
    share = hvd__op_share(op, rank, p->n);
    return (struct hvd__span){share.first, share.count};
}

/* Returns the block of a rank's part in a round. */
static struct hvd__span block_span(const struct hvd__shm *p,
                                   const struct hvd__op *op, int rank,
                                   size_t round)
{
    struct hvd__span s = part_of(p, op, rank);
    size_t skip = round * p->run.block_elems;

    skip = skip < s.count ? skip : s.count;
    s.first += skip;
    s.count -= skip;
    if (s.count > p->run.block_elems)
        s.count = p->run.block_elems;
    return s;
}

/* Returns the address of the block that `rank` has for `to`. */
static unsigned char *block_at(const struct hvd__shm *p,
                               const struct hvd__op *op, int rank, int to,
                               size_t round)
{
    return shm_slot(p, rank, round) +
           (size_t)to * p->run.block_elems * op->elem_bytes;
}

static int rides(const struct hvd__op *op)
{
    return shm_bytes(op) <= SHM_PAYLOAD_BYTES;
}

static uint64_t lent(const struct hvd__shm *p, int rank)
{
    return shm_line(p, rank)->places.send;
}

/* ---- Moves -------------------------------------------------------------- */

static void copy_in(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    for (int to = 0; to < parts_of(p, op); to++) {
        struct hvd__span s = block_span(p, op, to, round);

        if (to != p->me)
            shm_pack(p, op, block_at(p, op, p->me, to, round), s.first,
                     s.count);
    }
}

static const unsigned char *source(const struct hvd__shm *p,
                                   const struct hvd__op *op, int rank,
                                   size_t first)
{
    size_t offset = first * op->elem_bytes;

    if (rank == p->me)
        return (const unsigned char *)op->sendbuf + offset;
    if (rides(op))
        return shm_line(p, rank)->payload + offset;
    if (lent(p, rank))
        return shm_at(p, lent(p, rank)) + offset;
    return block_at(p, op, rank, p->me, p->run.round);
}

static void reduce_own(struct hvd__shm *p, const struct hvd__op *op,
                       struct hvd__span s)
{
    size_t skip = s.first;
    const void *srcs[HVD__SHM_LOCAL_MAX];

    if (s.count == 0)
        return;
    for (int r = 0; r < p->n; r++)
        srcs[r] = source(p, op, r, s.first);
    if (op->kind == HVD__REDUCESCATTER)
        skip -= part_of(p, op, p->me).first;
    op->reduce((unsigned char *)op->recvbuf + skip * op->elem_bytes, srcs, p->n,
               s.count, &op->args);
}

static void reduce_block(struct hvd__shm *p, const struct hvd__op *op)
{
    reduce_own(p, op, block_span(p, op, p->me, p->run.round));
}

/* Returns the number of pieces: one, which needs no wait, if the rank's memory
 * is read in place or this rank gets no part. */
static size_t pieces(const struct hvd__shm *p, const struct hvd__op *op,
                     int rank)
{
    return lent(p, rank) || p->me >= parts_of(p, op) ? 1 : p->run.rounds;
}

/* ---- Exchange ------------------------------------------------------------ */

static void put_input(struct hvd__shm *p, const struct hvd__op *op,
                      unsigned char *slot, size_t at, size_t len)
{
    shm_pack(p, op, slot, part_of(p, op, !p->me).first + at / op->elem_bytes,
             len / op->elem_bytes);
}

static void reduce_input(struct hvd__shm *p, const struct hvd__op *op,
                         const unsigned char *slot, size_t at, size_t len)
{
    size_t first = part_of(p, op, p->me).first * op->elem_bytes;
    unsigned char *to = op->recvbuf;
    const void *srcs[2];

    if (op->kind == HVD__LANE_SCATTER)
        to += first;
    srcs[!p->me] = slot;
    srcs[p->me] = (const unsigned char *)op->sendbuf + first + at;
    op->reduce(to + at, srcs, 2, len / op->elem_bytes, &op->args);
}

static const struct shm_exchange_moves exchange_moves = {.put = put_input,
                                                         .take = reduce_input};

static size_t part_bytes(const struct hvd__shm *p, const struct hvd__op *op,
                         int rank)
{
    return part_of(p, op, rank).count * op->elem_bytes;
}

static int advance_exchange(struct hvd__shm *p, struct hvd__op *op)
{
    if (p->run.stage == SHM_EXCHANGE_BEGIN) {
        op->trace.algorithm = "shm.exchange";
        p->run.sent_bytes = part_bytes(p, op, !p->me);
        p->run.taken_bytes = part_bytes(p, op, p->me);
        shm_exchange_begin(p, op, &exchange_moves, !lent(p, p->me));
    }
    return shm_exchange_advance(p, op, &exchange_moves, !lent(p, !p->me));
}

/* ---- Stage and advance --------------------------------------------------- */

/* Fills round 0, before the header is published. */
void shm_scatter_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t parts = (size_t)parts_of(p, op), longest = part_of(p, op, 0).count;

    run->rounds = 0;
    if (rides(op)) {
        hvd__copy(shm_line(p, p->me)->payload, op->sendbuf, shm_bytes(op), 0);
        return;
    }
    run->block_elems =
        SHM_SLOT_BYTES / parts / ALIGN_BYTES * ALIGN_BYTES / op->elem_bytes;
    run->rounds = (longest + run->block_elems - 1) / run->block_elems;
    shm_line(p, p->me)->places.send = shm_place(p, op->sendbuf, shm_bytes(op));
    if (lent(p, p->me))
        return;
    if (shm_exchanges(p))
        shm_exchange_put(p, op, &exchange_moves, part_bytes(p, op, !p->me), 0);
    else
        copy_in(p, op, 0);
}

int shm_scatter_advance(struct hvd__shm *p, struct hvd__op *op)
{
    static const struct shm_moves moves = {
        .pieces = pieces, .copy_in = copy_in, .taken = reduce_block};
    struct shm_run *run = &p->run;

    if (rides(op)) {
        op->trace.algorithm = "shm.header";
        reduce_own(p, op, part_of(p, op, p->me));
        return 1;
    }
    if (shm_exchanges(p) && !(lent(p, 0) && lent(p, 1)))
        return advance_exchange(p, op);
    if (run->stage == SHM_BEGIN) {
        run->lends = lent(p, p->me) != 0;
        run->own_pieces = run->lends ? 0 : run->rounds;
        op->trace.algorithm = run->lends ? "shm.arena" : "shm.rounds";
        for (int r = 0; r < p->n; r++) {
            if (!shm_is_place(p, r, lent(p, r), shm_bytes(op)))
                return hvd__op_nonsense(op);
            run->lent |= lent(p, r) != 0;
        }
    }
    return shm_rounds(p, op, &moves);
}
