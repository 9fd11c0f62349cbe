/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce in shared memory, by size, by the number of ranks and by where the
 * buffers are; every rank folds the inputs in rank order, so all get the same
 * bits.
 *
 * 1.  The input is inline in the header; every rank reduces all headers.
 * 2.  Exchange, of two ranks (shm_exchange.h): each copies its input to slots
 *     and reduces its input and the peer's slots to recvbuf.
 * 3.  One shot, of more ranks: the input goes to the region before the header;
 *     everybody reduces all regions.
 * 4.  Rounds, of more ranks: the tensor is cut in blocks, a block in one slice
 *     per rank.  Each rank copies the other ranks' slices of a block to its
 *     slot (filled), reduces its own slice from all slots and its private input
 *     into its slot (drained: "my slice of the result is there"), and copies
 *     the slices of all slots to recvbuf.  Blocks are copied in two rounds
 *     ahead.  What is not direct has its own slice in the slot too.
 * 5.  In arenas, when all ranks' buffers are (what small payloads ride on says
 *     where): each rank reduces its slice of the tensor from all sendbufs and
 *     writes it to all recvbufs, then waits until all have (drained).  A slice
 *     of sendbuf is read by one rank only, the one that writes that slice of
 *     recvbuf, so these may be the same.
 *
 * Why a ring of four slots is enough for rounds: a rank fills block i + 2 after
 * it saw all ranks' `drained` of block i - 1, and each published that after it
 * had copied out block i - 2, whose slot is reused.
 */
#include "runtime/plane/shm/shm_exchange.h"

#include <string.h>

enum {
    /* One shot up to here, measured against rounds.  The more ranks, the more
     * regions each has to read and the earlier rounds win. */
    ONE_SHOT_BYTES = SHM_SCRATCH_BYTES,
    /* From here on, two ranks use buffers in arenas in place; more ranks, as
     * soon as one shot ends. */
    ARENA_MIN_BYTES = 1 << 10,
    BLOCK_MIN_BYTES = 64 << 10,
    SLICE_ALIGN_BYTES = 64,
};

enum stage { STAGE_BEGIN, STAGE_FILLED, STAGE_DRAINED };

static size_t one_shot_bytes(const struct hvd__shm *p)
{
    size_t bytes = (size_t)(2 * ONE_SHOT_BYTES) / (size_t)p->n;

    return bytes < ONE_SHOT_BYTES ? bytes : ONE_SHOT_BYTES;
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

/* Returns the slice of a block that `rank` reduces, relative to the block. */
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
    unsigned char *slot = shm_slot(p, p->me, round);
    size_t after = own.first + own.count;

    if (!hvd__op_direct(op)) {
        shm_pack(p, op, slot, block.first, block.count);
        return;
    }
    shm_pack(p, op, slot, block.first, own.first);
    shm_pack(p, op, slot + after * op->elem_bytes, block.first + after,
             block.count - after);
}

/* Reduces to memory that no other core reads, then copies the result to the
 * slot. */
static void reduce_piece(struct hvd__shm *p, const struct hvd__op *op,
                         const void *const *srcs, unsigned char *slot,
                         struct span s)
{
    size_t bytes = s.count * op->elem_bytes;
    int to_recvbuf = hvd__op_direct(op) && !p->run.streamed;
    void *dst = to_recvbuf
                    ? (unsigned char *)op->recvbuf + s.first * op->elem_bytes
                    : p->scratch;

    op->reduce(dst, srcs, p->n, s.count, &op->args);
    hvd__copy_shared(slot, dst, bytes);
    if (!to_recvbuf)
        hvd__op_unpack(op, dst, s.first, s.count, p->run.streamed);
}

/* Reduces this rank's slice of the block to its slot and to recvbuf. */
static void reduce_slice(struct hvd__shm *p, const struct hvd__op *op,
                         size_t round)
{
    struct span block = block_span(p, op, round);
    struct span own = slice_span(p, op, block.count, p->me);
    size_t step = SHM_PIECE_BYTES / op->elem_bytes;
    const void *srcs[HVD__SHM_LOCAL_MAX];

    for (size_t i = 0; i < own.count; i += step) {
        size_t offset = (own.first + i) * op->elem_bytes;
        struct span s = {block.first + own.first + i, own.count - i};

        if (s.count > step)
            s.count = step;
        for (int r = 0; r < p->n; r++)
            srcs[r] = shm_slot(p, r, round) + offset;
        if (hvd__op_direct(op))
            srcs[p->me] =
                (const unsigned char *)op->sendbuf + s.first * op->elem_bytes;
        reduce_piece(p, op, srcs, shm_slot(p, p->me, round) + offset, s);
    }
}

static void copy_out(struct hvd__shm *p, const struct hvd__op *op, size_t round,
                     int rank)
{
    struct span block = block_span(p, op, round);
    struct span slice = slice_span(p, op, block.count, rank);

    if (slice.count)
        hvd__op_unpack(op,
                       shm_slot(p, rank, round) + slice.first * op->elem_bytes,
                       block.first + slice.first, slice.count, p->run.streamed);
}

/* ---- In arenas --------------------------------------------------------- */

static int all_in_arenas(const struct hvd__shm *p)
{
    for (int r = 0; r < p->n; r++) {
        const struct shm_places *at = &shm_line(p, r)->places;

        if (!at->send || !at->recv)
            return 0;
    }
    return 1;
}

static int are_places(const struct hvd__shm *p, const struct hvd__op *op)
{
    for (int r = 0; r < p->n; r++) {
        const struct shm_places *at = &shm_line(p, r)->places;

        if (!shm_is_place(p, r, at->send, shm_bytes(op)) ||
            !shm_is_place(p, r, at->recv, shm_bytes(op)))
            return 0;
    }
    return 1;
}

/* Reduces one piece and writes it to all ranks' recvbufs. */
static void share_piece(struct hvd__shm *p, const struct hvd__op *op,
                        struct span s)
{
    size_t offset = s.first * op->elem_bytes, bytes = s.count * op->elem_bytes;
    const void *srcs[HVD__SHM_LOCAL_MAX];
    unsigned char *own = (unsigned char *)op->recvbuf + offset;

    for (int r = 0; r < p->n; r++)
        srcs[r] = shm_at(p, shm_line(p, r)->places.send) + offset;
    op->reduce(own, srcs, p->n, s.count, &op->args);
    for (int i = 1; i < p->n; i++) {
        int r = (p->me + i) % p->n;
        void *to = shm_at(p, shm_line(p, r)->places.recv) + offset;

        if (p->run.streamed)
            hvd__copy(to, own, bytes, 1);
        else
            hvd__copy_shared(to, own, bytes);
    }
}

/* Reduces this rank's slice for all ranks.  1, or negative as soon as the
 * other ranks' recvbufs are no longer lent. */
static int share_slice(struct hvd__shm *p, struct hvd__op *op)
{
    struct span own = slice_span(p, op, op->count, p->me);
    size_t step = SHM_PIECE_BYTES / op->elem_bytes;

    p->run.lent = 1;
    for (size_t i = 0; i < own.count; i += step) {
        struct span s = {own.first + i, own.count - i};
        int rc = shm_still_lent(p, op->err);

        if (rc < 0)
            return rc;
        if (s.count > step)
            s.count = step;
        share_piece(p, op, s);
    }
    return shm_still_lent(p, op->err);
}

static int advance_in_arenas(struct hvd__shm *p, struct hvd__op *op)
{
    int rc;

    if (p->run.stage == STAGE_BEGIN) {
        p->run.streamed = shm_bytes(op) >= SHM_STREAM_BYTES;
        rc = are_places(p, op) ? share_slice(p, op) : hvd__op_nonsense(op);
        if (rc < 0)
            return rc;
        shm_publish(p, &p->ranks[p->me].drained.value, p->base + 1);
        p->run.stage = STAGE_DRAINED;
    }
    rc = shm_all_reached(p, SHM_DRAINED, p->base + 1, op->err);
    if (rc == 1)
        p->base++;
    return rc;
}

static void plan_rounds(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t bytes = shm_bytes(op) / 4; /* four blocks or more overlap well */

    if (bytes < BLOCK_MIN_BYTES)
        bytes = BLOCK_MIN_BYTES;
    if (bytes > SHM_SLOT_BYTES)
        bytes = SHM_SLOT_BYTES;
    run->block_elems =
        bytes / SLICE_ALIGN_BYTES * SLICE_ALIGN_BYTES / op->elem_bytes;
    run->rounds = (op->count - 1) / run->block_elems + 1;
}

/* Returns whether the result is written past the cache: not where the input
 * lies, which was just read. */
static int streams(const struct hvd__op *op)
{
    const void *from = op->sendbuf, *to = op->recvbuf;

    if (!hvd__op_direct(op)) {
        from = op->parts[0].sendbuf;
        to = op->parts[0].recvbuf;
    }
    return from != to && shm_bytes(op) >= SHM_STREAM_BYTES;
}

/* Announces the places of the buffers to the peers, if buffers of that size are
 * used in place. */
static void tell_places(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_places *at = &shm_line(p, p->me)->places;
    size_t bytes = shm_bytes(op);

    at->send = at->recv = 0;
    if (!hvd__op_direct(op) || (shm_exchanges(p) && bytes < ARENA_MIN_BYTES))
        return;
    at->send = shm_place(p, op->sendbuf, bytes);
    at->recv = shm_place(p, op->recvbuf, bytes);
}

/* Reduces the inputs from all headers or all regions. */
static void reduce_all(struct hvd__shm *p, struct hvd__op *op)
{
    int inlined = shm_bytes(op) <= SHM_PAYLOAD_BYTES;
    const void *srcs[HVD__SHM_LOCAL_MAX];

    for (int r = 0; r < p->n; r++)
        srcs[r] = inlined ? shm_line(p, r)->payload : shm_region(p, r);
    op->trace.algorithm = inlined ? "shm.header" : "shm.oneshot";
    if (op->count == 0)
        return;
    if (hvd__op_direct(op)) {
        srcs[p->me] = op->sendbuf;
        op->reduce(op->recvbuf, srcs, p->n, op->count, &op->args);
    } else {
        op->reduce(p->scratch, srcs, p->n, op->count, &op->args);
        hvd__op_unpack(op, p->scratch, 0, op->count, 0);
    }
}

static void fill(struct hvd__shm *p, const struct hvd__op *op, size_t round)
{
    if (round >= p->run.rounds)
        return;
    copy_in(p, op, round);
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + round + 1);
}

/* Returns like shm_reached whether all ranks have filled this round.  Round 0
 * came with the header, except from ranks whose send buffer is in an arena:
 * they hoped that all are. */
static int filled(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    uint64_t mark = p->base + run->round + 1;

    if (run->round > 0)
        return shm_all_reached(p, SHM_FILLED, mark, op->err);
    for (; run->peer < p->n; run->peer++) {
        int r = run->peer, rc;

        if (r == p->me || !shm_line(p, r)->places.send)
            continue;
        rc = shm_reached(p, r, &p->ranks[r].filled.value, mark, op->err);
        if (rc <= 0)
            return rc;
    }
    run->peer = 0;
    return 1;
}

static void begin_rounds(struct hvd__shm *p, struct hvd__op *op)
{
    op->trace.algorithm = "shm.rounds";
    p->run.streamed = streams(op);
    if (shm_line(p, p->me)->places.send)
        fill(p, op, 0);
    fill(p, op, 1);
    p->run.stage = STAGE_FILLED;
}

static int advance_rounds(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == STAGE_BEGIN)
        begin_rounds(p, op);
    for (;;) {
        uint64_t mark = p->base + run->round + 1;

        if (run->stage == STAGE_FILLED) {
            rc = filled(p, op);
            if (rc <= 0)
                return rc;
            reduce_slice(p, op, run->round);
            shm_publish(p, &p->ranks[p->me].drained.value, mark);
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

/* ---- Exchange ------------------------------------------------------ */

static void put_input(struct hvd__shm *p, const struct hvd__op *op,
                      unsigned char *slot, size_t at, size_t len)
{
    shm_pack(p, op, slot, at / op->elem_bytes, len / op->elem_bytes);
}

/* Reduces elements that are not direct.  Packs them again: what this rank has
 * put into its slot is in the peer's cache now. */
static void reduce_packed(struct hvd__shm *p, const struct hvd__op *op,
                          const unsigned char *slot, size_t first, size_t count)
{
    const void *srcs[2];

    srcs[p->me] = p->scratch;
    srcs[!p->me] = slot;
    hvd__op_pack(op, p->scratch, first, count);
    op->reduce(p->scratch, srcs, 2, count, &op->args);
    hvd__op_unpack(op, p->scratch, first, count, p->run.streamed);
}

static void reduce_input(struct hvd__shm *p, const struct hvd__op *op,
                         const unsigned char *slot, size_t at, size_t len)
{
    size_t bytes = op->elem_bytes, count = len / bytes;
    size_t step = SHM_PIECE_BYTES / bytes;
    struct hvd__reduce_args args = op->args;
    const void *srcs[2];

    for (size_t i = 0; !hvd__op_direct(op) && i < count; i += step)
        reduce_packed(p, op, slot + i * bytes, at / bytes + i,
                      count - i < step ? count - i : step);
    if (!hvd__op_direct(op))
        return;
    args.stream = p->run.streamed;
    srcs[p->me] = (const unsigned char *)op->sendbuf + at;
    srcs[!p->me] = slot;
    op->reduce((unsigned char *)op->recvbuf + at, srcs, 2, count, &args);
}

static const struct shm_exchange_moves exchange_moves = {.put = put_input,
                                                         .take = reduce_input};

static int advance_exchange(struct hvd__shm *p, struct hvd__op *op)
{
    if (p->run.stage == SHM_EXCHANGE_BEGIN) {
        op->trace.algorithm = "shm.exchange";
        p->run.streamed = streams(op);
        p->run.sent_bytes = p->run.taken_bytes = shm_bytes(op);
        shm_exchange_begin(p, op, &exchange_moves,
                           !shm_line(p, p->me)->places.send);
    }
    return shm_exchange_advance(p, op, &exchange_moves,
                                !shm_line(p, !p->me)->places.send);
}

/* ---- Stage and advance --------------------------------------------- */

static int is_one_shot(const struct hvd__shm *p, size_t bytes)
{
    return !shm_exchanges(p) && bytes <= one_shot_bytes(p);
}

/* Plans the blocks and writes the first one, unless sendbuf is in an arena:
 * this rank then hopes that all ranks' buffers are. */
static void stage_block(struct hvd__shm *p, const struct hvd__op *op)
{
    int is_in_arena = shm_line(p, p->me)->places.send != 0;

    if (!shm_exchanges(p))
        plan_rounds(p, op);
    if (is_in_arena)
        return;
    if (shm_exchanges(p))
        shm_exchange_put(p, op, &exchange_moves, shm_bytes(op), 0);
    else
        copy_in(p, op, 0);
}

void shm_allreduce_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    size_t bytes = shm_bytes(op);

    if (bytes == 0)
        return;
    if (bytes <= SHM_PAYLOAD_BYTES && hvd__op_direct(op)) {
        memcpy(shm_line(p, p->me)->payload, op->sendbuf, bytes);
    } else if (bytes <= SHM_PAYLOAD_BYTES) {
        hvd__op_pack(op, shm_line(p, p->me)->payload, 0, op->count);
    } else if (is_one_shot(p, bytes)) {
        shm_pack(p, op, shm_region(p, p->me), 0, op->count);
    } else {
        tell_places(p, op);
        stage_block(p, op);
    }
}

int shm_allreduce_advance(struct hvd__shm *p, struct hvd__op *op)
{
    size_t bytes = shm_bytes(op);

    if (bytes <= SHM_PAYLOAD_BYTES || is_one_shot(p, bytes)) {
        reduce_all(p, op);
        return 1;
    }
    if (all_in_arenas(p)) {
        op->trace.algorithm = "shm.arena";
        return advance_in_arenas(p, op);
    }
    return shm_exchanges(p) ? advance_exchange(p, op) : advance_rounds(p, op);
}
