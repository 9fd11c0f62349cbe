/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce-scatter in shared memory, of two kinds.  Each cuts the tensor into
 * contiguous parts, one per rank, which gets it reduced over all ranks in
 * their order:
 *
 * - A reducescatter cuts by rows; the result is all of recvbuf.
 * - A lane scatter cuts into op->lanes parts, for local ranks below that,
 *   at cache lines; the result goes to its place in recvbuf, the rest of
 *   which is not touched.  args->post and the divisor are the caller's to
 *   leave out.
 *
 * What rides in the header is reduced from there.  Else a slot has a block
 * of every part: in a round each rank copies the i-th block of all parts but
 * its own to its slot (filled), reduces the block of its own part from all
 * slots and its private input (drained: "I am done with the slots of this
 * round").  Blocks are copied in two rounds ahead, so round i + 2 goes over
 * the slots of round i - 2.  Small ones are all in round 0.
 *
 * What lies in an arena is read there, and its owner waits at the end until
 * all have drained all rounds.
 */
#include "runtime/plane/shm_impl.h"

enum { ALIGN_BYTES = 64, AHEAD = 2 };

enum stage { STAGE_BEGIN, STAGE_FILLED, STAGE_DRAINED, STAGE_LENT };

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

/* A rank's part of the tensor. */
static struct hvd__span part_of(const struct hvd__shm *p,
                                const struct hvd__op *op, int rank)
{
    struct hvd__share share;

    if (op->kind == HVD__LANE_SCATTER)
        return hvd__lane_span(op->count, op->elem_bytes, op->lanes, rank);
    share = hvd__op_share(op, rank, p->n);
    return (struct hvd__span){share.first, share.count};
}

/* Its block of a round. */
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

/* Where a rank's block for another one lies. */
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

static void fill(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    if (round >= p->run.rounds || lent(p, p->me))
        return;
    copy_in(p, op, round);
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + round + 1);
}

/* ---- Stage and advance --------------------------------------------------- */

/* Round 0 is filled before the header. */
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
    if (!lent(p, p->me))
        copy_in(p, op, 0);
}

/* Whether the slots of round + AHEAD are free. */
static int drained(struct hvd__shm *p, struct hvd__op *op)
{
    size_t next = p->run.round + AHEAD;

    if (next < SHM_SLOTS || next >= p->run.rounds || lent(p, p->me))
        return 1;
    return shm_all_reached(p, SHM_DRAINED, p->base + next - SHM_SLOTS + 1,
                           op->err);
}

/* All blocks of this round for this rank are there. */
static int filled(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    if (run->round == 0 || p->me >= parts_of(p, op))
        return 1;
    for (; run->peer < p->n; run->peer++) {
        int r = run->peer, rc;

        if (r == p->me || lent(p, r))
            continue;
        rc = shm_reached(p, r, &p->ranks[r].filled.value,
                         p->base + run->round + 1, op->err);
        if (rc <= 0)
            return rc;
    }
    run->peer = 0;
    return 1;
}

static int advance_rounds(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc;

    while (run->round < run->rounds) {
        if (run->stage == STAGE_FILLED) {
            rc = filled(p, op);
            if (rc <= 0)
                return rc;
            reduce_own(p, op, block_span(p, op, p->me, run->round));
            rc = shm_still_lent(p, op->err);
            if (rc < 0)
                return rc;
            shm_publish(p, &p->ranks[p->me].drained.value,
                        p->base + run->round + 1);
            run->stage = STAGE_DRAINED;
        }
        rc = drained(p, op);
        if (rc <= 0)
            return rc;
        fill(p, op, run->round + AHEAD);
        run->stage = STAGE_FILLED;
        run->round++;
    }
    run->stage = STAGE_LENT;
    return 1;
}

int shm_scatter_advance(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc = 1;

    if (rides(op)) {
        op->algorithm = "shm.header";
        reduce_own(p, op, part_of(p, op, p->me));
        return 1;
    }
    if (run->stage == STAGE_BEGIN) {
        op->algorithm = lent(p, p->me) ? "shm.arena" : "shm.rounds";
        for (int r = 0; r < p->n; r++)
            run->lent |= lent(p, r) != 0;
        fill(p, op, 1);
        run->stage = STAGE_FILLED;
    }
    if (run->stage != STAGE_LENT)
        rc = advance_rounds(p, op);
    if (rc == 1 && lent(p, p->me))
        rc = shm_all_reached(p, SHM_DRAINED, p->base + run->rounds, op->err);
    if (rc == 1)
        p->base += run->rounds;
    return rc;
}
