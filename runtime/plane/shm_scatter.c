/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce-scatter in shared memory: the tensor is cut into op->lanes
 * contiguous parts, and local rank l < lanes gets the l-th, reduced over
 * all local ranks in their order, at its place in recvbuf.  The rest of
 * recvbuf is not touched.  args->post and the divisor are the caller's to
 * leave out.
 *
 * A slot has a block of every lane.  In a round each rank copies the i-th
 * block of all parts but its own to its slot (filled), reduces the block of
 * its own part from all slots and its private input (drained: "I am done
 * with the slots of this round").  Blocks are copied in two rounds ahead,
 * so round i + 2 goes over the slots of round i - 2.
 */
#include "runtime/plane/shm_impl.h"

enum { ALIGN_BYTES = 64, AHEAD = 2 };

enum stage { STAGE_BEGIN, STAGE_FILLED, STAGE_DRAINED };

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

/* A lane's block of a round, in elements of the tensor. */
static struct hvd__span block_span(const struct hvd__shm *p,
                                   const struct hvd__op *op, int lane,
                                   size_t round)
{
    struct hvd__span s =
        hvd__lane_span(op->count, op->elem_bytes, op->lanes, lane);
    size_t skip = round * p->run.block_elems;

    skip = skip < s.count ? skip : s.count;
    s.first += skip;
    s.count -= skip;
    if (s.count > p->run.block_elems)
        s.count = p->run.block_elems;
    return s;
}

static unsigned char *block_at(const struct hvd__shm *p,
                               const struct hvd__op *op, int rank, int lane,
                               size_t round)
{
    return shm_slot(p, rank, round) +
           (size_t)lane * p->run.block_elems * op->elem_bytes;
}

static void copy_in(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    for (int lane = 0; lane < op->lanes; lane++) {
        struct hvd__span s = block_span(p, op, lane, round);

        if (lane != p->me)
            hvd__copy(block_at(p, op, p->me, lane, round),
                      (const unsigned char *)op->sendbuf +
                          s.first * op->elem_bytes,
                      s.count * op->elem_bytes, 0);
    }
}

static void reduce_own(struct hvd__shm *p, const struct hvd__op *op,
                       size_t round)
{
    struct hvd__span s = block_span(p, op, p->me, round);
    size_t offset = s.first * op->elem_bytes;
    const void *srcs[HVD__SHM_LOCAL_MAX];

    if (s.count == 0)
        return;
    for (int r = 0; r < p->n; r++)
        srcs[r] = block_at(p, op, r, p->me, round);
    srcs[p->me] = (const unsigned char *)op->sendbuf + offset;
    op->reduce((unsigned char *)op->recvbuf + offset, srcs, p->n, s.count,
               &op->args);
}

static void fill(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    if (round >= p->run.rounds)
        return;
    copy_in(p, op, round);
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + round + 1);
}

/* Round 0 is filled before the header. */
void shm_scatter_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t lane_bytes = SHM_SLOT_BYTES / (size_t)op->lanes;
    struct hvd__span longest =
        hvd__lane_span(op->count, op->elem_bytes, op->lanes, 0);

    run->block_elems = lane_bytes / ALIGN_BYTES * ALIGN_BYTES / op->elem_bytes;
    run->rounds = (longest.count + run->block_elems - 1) / run->block_elems;
    if (run->rounds)
        copy_in(p, op, 0);
}

/* Whether the slots of round + AHEAD are free. */
static int drained(struct hvd__shm *p, struct hvd__op *op)
{
    size_t next = p->run.round + AHEAD;

    if (next < SHM_SLOTS || next >= p->run.rounds)
        return 1;
    return shm_all_reached(p, SHM_DRAINED, p->base + next - SHM_SLOTS + 1,
                           op->err);
}

static int filled(struct hvd__shm *p, struct hvd__op *op)
{
    if (p->run.round == 0 || p->me >= op->lanes)
        return 1;
    return shm_all_reached(p, SHM_FILLED, p->base + p->run.round + 1, op->err);
}

int shm_scatter_advance(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == STAGE_BEGIN) {
        fill(p, op, 1);
        run->stage = STAGE_FILLED;
    }
    while (run->round < run->rounds) {
        if (run->stage == STAGE_FILLED) {
            rc = filled(p, op);
            if (rc <= 0)
                return rc;
            reduce_own(p, op, run->round);
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
    p->base += run->rounds;
    return 1;
}
