/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce in shared memory, three ways by size; every rank folds the
 * inputs in rank order, so all get the same bits.
 *
 * 1. The input rides in the header; everybody reduces all headers.
 * 2. One shot: the input goes to the region before the header; everybody
 *    reduces all regions.
 * 3. Rounds: the tensor is cut in blocks, a block in one slice per rank.
 *    Each rank copies the other ranks' slices of a block to its slot
 *    (filled), reduces its own slice from all slots and its private input
 *    into its slot (drained: "my slice of the result is there"), and
 *    copies the slices of all slots to recvbuf.  Blocks are copied in two
 *    rounds ahead.
 *
 * Why a ring of four slots is enough: a rank fills block i + 2 after it
 * saw all ranks' `drained` of block i - 1, and each published that after
 * it had copied out block i - 2, whose slot is reused.
 */
#include "runtime/plane/shm_impl.h"

enum {
    /* One shot up to here; measured crossover with the rounds, which
     * comes earlier the more regions everybody has to read. */
    ONE_SHOT_BYTES = 32 << 10,
    BLOCK_MIN_BYTES = 64 << 10,
    STREAM_BYTES = 8 << 20, /* results this large leave the caches anyway */
    SLICE_ALIGN_BYTES = 64,
};

enum stage { STAGE_BEGIN, STAGE_FILLED, STAGE_DRAINED };

static size_t op_bytes(const struct hvd__op *op)
{
    return op->count * op->elem_bytes;
}

static size_t one_shot_bytes(const struct hvd__shm *p)
{
    return (size_t)(2 * ONE_SHOT_BYTES) / (size_t)p->n;
}

/* ---- Rounds: geometry ---------------------------------------------- */

struct span {
    size_t first, count; /* elements */
};

static struct span block_span(const struct hvd__shm *p,
                              const struct hvd__op *op, size_t round)
{
    struct span s = {round * p->run.block_elems, p->run.block_elems};

    if (s.count > op->count - s.first)
        s.count = op->count - s.first;
    return s;
}

/* The slice of a block that a rank reduces, relative to the block. */
static struct span slice_span(const struct hvd__shm *p,
                              const struct hvd__op *op, size_t block_elems,
                              int rank)
{
    size_t align = SLICE_ALIGN_BYTES / op->elem_bytes;
    size_t n = (size_t)p->n;
    size_t each = (block_elems + n * align - 1) / (n * align) * align;
    struct span s = {(size_t)rank * each, each};

    if (s.first > block_elems)
        s.first = block_elems;
    if (s.count > block_elems - s.first)
        s.count = block_elems - s.first;
    return s;
}

/* ---- Rounds: the three moves --------------------------------------- */

static void copy_in(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    struct span block = block_span(p, op, round);
    struct span own = slice_span(p, op, block.count, p->me);
    const unsigned char *src =
        (const unsigned char *)op->sendbuf + block.first * op->elem_bytes;
    unsigned char *slot = shm_slot(p, p->me, round);
    size_t after = own.first + own.count;

    hvd__copy(slot, src, own.first * op->elem_bytes, 0);
    hvd__copy(slot + after * op->elem_bytes, src + after * op->elem_bytes,
              (block.count - after) * op->elem_bytes, 0);
}

static void reduce_slice(struct hvd__shm *p, const struct hvd__op *op,
                         size_t round)
{
    struct span block = block_span(p, op, round);
    struct span own = slice_span(p, op, block.count, p->me);
    size_t offset = own.first * op->elem_bytes;
    const void *srcs[HVD__SHM_LOCAL_MAX];

    if (own.count == 0)
        return;
    for (int r = 0; r < p->n; r++)
        srcs[r] = shm_slot(p, r, round) + offset;
    srcs[p->me] = (const unsigned char *)op->sendbuf +
                  block.first * op->elem_bytes + offset;
    op->reduce(shm_slot(p, p->me, round) + offset, srcs, p->n, own.count,
               &op->args);
}

static void copy_out(struct hvd__shm *p, const struct hvd__op *op, size_t round,
                     int rank)
{
    struct span block = block_span(p, op, round);
    struct span slice = slice_span(p, op, block.count, rank);
    unsigned char *dst = (unsigned char *)op->recvbuf +
                         (block.first + slice.first) * op->elem_bytes;

    hvd__copy(dst, shm_slot(p, rank, round) + slice.first * op->elem_bytes,
              slice.count * op->elem_bytes, p->run.streamed);
}

/* ---- Stage and advance --------------------------------------------- */

static void plan_rounds(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t bytes = op_bytes(op) / 4; /* four blocks or more overlap well */

    if (bytes < BLOCK_MIN_BYTES)
        bytes = BLOCK_MIN_BYTES;
    if (bytes > SHM_SLOT_BYTES)
        bytes = SHM_SLOT_BYTES;
    run->block_elems =
        bytes / SLICE_ALIGN_BYTES * SLICE_ALIGN_BYTES / op->elem_bytes;
    run->rounds = (op->count - 1) / run->block_elems + 1;
    run->streamed = op_bytes(op) >= STREAM_BYTES;
}

void shm_allreduce_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    size_t bytes = op_bytes(op);

    if (bytes == 0)
        return;
    if (bytes <= SHM_PAYLOAD_BYTES) {
        hvd__copy(shm_line(p, p->me)->payload, op->sendbuf, bytes, 0);
    } else if (bytes <= one_shot_bytes(p)) {
        hvd__copy(shm_region(p, p->me), op->sendbuf, bytes, 0);
    } else {
        plan_rounds(p, op);
        copy_in(p, op, 0);
    }
}

static void reduce_all(struct hvd__shm *p, struct hvd__op *op)
{
    int inlined = op_bytes(op) <= SHM_PAYLOAD_BYTES;
    const void *srcs[HVD__SHM_LOCAL_MAX];

    for (int r = 0; r < p->n; r++)
        srcs[r] = inlined ? shm_line(p, r)->payload : shm_region(p, r);
    srcs[p->me] = op->sendbuf;
    op->reduce(op->recvbuf, srcs, p->n, op->count, &op->args);
}

static void fill(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    if (round >= p->run.rounds)
        return;
    copy_in(p, op, round);
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + round + 1);
}

/* Round 0 was filled before the header. */
static int filled(struct hvd__shm *p, struct hvd__op *op)
{
    size_t round = p->run.round;

    return round == 0
               ? 1
               : shm_all_reached(p, SHM_FILLED, p->base + round + 1, op->err);
}

static int advance_rounds(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == STAGE_BEGIN) {
        fill(p, op, 1);
        run->stage = STAGE_FILLED;
    }
    for (;;) {
        uint64_t mark = p->base + run->round + 1;

        if (run->stage == STAGE_FILLED) {
            rc = filled(p, op);
            if (rc <= 0)
                return rc;
            reduce_slice(p, op, run->round);
            shm_publish(p, &p->ranks[p->me].drained.value, mark);
            copy_out(p, op, run->round, p->me);
            fill(p, op, run->round + 2);
            run->stage = STAGE_DRAINED;
        }
        rc = shm_all_reached(p, SHM_DRAINED, mark, op->err);
        if (rc <= 0)
            return rc;
        for (int r = 0; r < p->n; r++)
            if (r != p->me)
                copy_out(p, op, run->round, r);
        run->stage = STAGE_FILLED;
        if (++run->round == run->rounds) {
            p->base += run->rounds;
            return 1;
        }
    }
}

int shm_allreduce_advance(struct hvd__shm *p, struct hvd__op *op)
{
    size_t bytes = op_bytes(op);

    if (bytes > SHM_PAYLOAD_BYTES && bytes > one_shot_bytes(p))
        return advance_rounds(p, op);
    if (bytes)
        reduce_all(p, op);
    return 1;
}
