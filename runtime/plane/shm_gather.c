/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast and ragged allgather in shared memory.
 *
 * A broadcast is a gather in which only the root has anything.  Counts
 * travel in the headers, with the data if it fits.  Longer data goes
 * through the region's ring in slot-sized pieces: `filled` counts the
 * pieces a rank has written, `drained` the rounds in which it has copied
 * out every rank's piece.  Piece i + 2 reuses the slot of piece i - 2, so
 * it waits for all ranks to have drained that one.
 *
 * Data in an arena is read where it is, all in round 0, and its owner waits
 * until all ranks have drained the last round.
 */
#include "runtime/plane/shm_impl.h"

#include <string.h>

enum {
    INLINE_BYTES = SHM_PAYLOAD_BYTES - sizeof(uint64_t),
    AHEAD = 2, /* pieces written before their round */
};

enum stage { STAGE_BEGIN, STAGE_COPY_OUT, STAGE_COPY_IN, STAGE_LENT };

static size_t sent_bytes(const struct hvd__shm *p, const struct hvd__op *op)
{
    if (op->kind == HVD__BROADCAST && p->group_ranks[p->me] != op->root)
        return 0;
    return shm_bytes(op);
}

static size_t bytes_of(const struct shm_run *run, int rank)
{
    return run->offset[rank + 1] - run->offset[rank];
}

/* Where a rank's data is read in place; 0: it is not. */
static uint64_t lent(const struct hvd__shm *p, int rank)
{
    return bytes_of(&p->run, rank) > INLINE_BYTES
               ? shm_line(p, rank)->places.send
               : 0;
}

static size_t pieces(const struct hvd__shm *p, int rank)
{
    size_t bytes = bytes_of(&p->run, rank);

    if (bytes <= INLINE_BYTES || lent(p, rank))
        return bytes > 0;
    return (bytes - 1) / SHM_SLOT_BYTES + 1;
}

static size_t piece_bytes(size_t bytes, size_t i)
{
    size_t left = bytes - i * SHM_SLOT_BYTES;

    return left < SHM_SLOT_BYTES ? left : SHM_SLOT_BYTES;
}

/* Where to find a rank's piece. */
static const unsigned char *piece_at(const struct hvd__shm *p, int rank,
                                     size_t i, size_t *len)
{
    size_t bytes = bytes_of(&p->run, rank);
    uint64_t place = lent(p, rank);

    *len = place ? bytes : piece_bytes(bytes, i);
    if (place)
        return shm_at(p, place);
    return bytes <= INLINE_BYTES ? shm_line(p, rank)->payload + sizeof(uint64_t)
                                 : shm_slot(p, rank, i);
}

static int overlaps(const void *a, size_t a_bytes, const void *b,
                    size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

/* An allgather's sendbuf may lie anywhere in recvbuf, and then is moved. */
static int can_lend(const struct hvd__op *op, size_t bytes)
{
    return op->kind == HVD__BROADCAST ||
           !overlaps(op->sendbuf, bytes, op->recvbuf,
                     op->recvcap * op->elem_bytes);
}

void shm_gather_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_line *line = shm_line(p, p->me);
    size_t bytes = sent_bytes(p, op);

    line->places.bytes = bytes;
    p->run.send = op->sendbuf;
    if (bytes == 0)
        return;
    if (bytes <= INLINE_BYTES) {
        hvd__copy(line->payload + sizeof(uint64_t), op->sendbuf, bytes, 0);
        return;
    }
    line->places.send =
        can_lend(op, bytes) ? shm_place(p, op->sendbuf, bytes) : 0;
    if (!line->places.send)
        hvd__copy_shared(shm_slot(p, p->me, 0), op->sendbuf,
                         piece_bytes(bytes, 0));
}

static void read_counts(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    run->rounds = 0;
    run->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        uint64_t bytes = shm_line(p, r)->places.bytes;
        size_t n;

        run->offset[r + 1] = run->offset[r] + bytes;
        run->lent |= lent(p, r) != 0;
        n = pieces(p, r);
        if (n > run->rounds)
            run->rounds = n;
        if (op->recvcounts)
            op->recvcounts[r] = bytes / op->elem_bytes;
    }
}

/* Puts this rank's own part into recvbuf. */
static void place_own(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t bytes = bytes_of(run, p->me);
    unsigned char *dst;

    if (!run->deliver || bytes == 0)
        return;
    dst = (unsigned char *)op->recvbuf + run->offset[p->me];
    if (dst != run->send)
        memmove(dst, run->send, bytes);
    run->send = dst;
}

static void gather_begin(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    read_counts(p, op);
    run->deliver = op->kind == HVD__BROADCAST ||
                   run->offset[p->n] <= op->recvcap * op->elem_bytes;
    run->streamed = run->offset[p->n] >= SHM_STREAM_BYTES;
    /* Before other data can overwrite it: an allgather's sendbuf may lie
     * anywhere in recvbuf.  Otherwise peers come first. */
    run->own_placed = overlaps(op->sendbuf, bytes_of(run, p->me), op->recvbuf,
                               run->offset[p->n]);
    if (run->own_placed)
        place_own(p, op);
}

static void copy_in(struct hvd__shm *p, size_t i)
{
    struct shm_run *run = &p->run;
    size_t bytes = bytes_of(run, p->me);

    if (i >= pieces(p, p->me))
        return;
    hvd__copy_shared(shm_slot(p, p->me, i), run->send + i * SHM_SLOT_BYTES,
                     piece_bytes(bytes, i));
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + i + 1);
}

/* Every other rank's piece of this round. */
static int copy_out(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    size_t i = run->round;

    for (; run->peer < p->n; run->peer++) {
        int r = run->peer, rc = 1;
        const unsigned char *piece;
        size_t len;

        if (r == p->me || i >= pieces(p, r))
            continue;
        if (i > 0)
            rc = shm_reached(p, r, &p->ranks[r].filled.value, p->base + i + 1,
                             op->err);
        if (rc <= 0)
            return rc;
        piece = piece_at(p, r, i, &len);
        if (run->deliver)
            hvd__copy((unsigned char *)op->recvbuf + run->offset[r] +
                          i * SHM_SLOT_BYTES,
                      piece, len, run->streamed);
    }
    run->peer = 0;
    return 1;
}

/* Whether the slot of piece i is free. */
static int drained(struct hvd__shm *p, struct hvd__op *op, size_t i)
{
    if (i < SHM_SLOTS || i >= pieces(p, p->me))
        return 1;
    return shm_all_reached(p, SHM_DRAINED, p->base + i - SHM_SLOTS + 1,
                           op->err);
}

/* 1 when this rank has nothing more to do but to wait for its own data. */
static int advance_rounds(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    while (run->round < run->rounds) {
        size_t next = run->round + AHEAD;
        int rc;

        if (run->stage == STAGE_COPY_OUT) {
            rc = copy_out(p, op);
            if (rc == 1)
                rc = shm_still_lent(p, op->err);
            if (rc <= 0)
                return rc;
            shm_publish(p, &p->ranks[p->me].drained.value,
                        p->base + run->round + 1);
            run->stage = STAGE_COPY_IN;
        }
        rc = drained(p, op, next);
        if (rc <= 0)
            return rc;
        copy_in(p, next);
        run->stage = STAGE_COPY_OUT;
        run->round++;
    }
    if (!run->own_placed)
        place_own(p, op);
    run->stage = STAGE_LENT;
    return 1;
}

static const char *algorithm_of(const struct hvd__shm *p)
{
    const char *name = "shm.header";

    for (int r = 0; r < p->n; r++)
        if (lent(p, r))
            return "shm.arena";
        else if (bytes_of(&p->run, r) > INLINE_BYTES)
            name = "shm.slots";
    return name;
}

int shm_gather_advance(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc = 1;

    if (run->stage == STAGE_BEGIN) {
        gather_begin(p, op);
        op->algorithm = algorithm_of(p);
        for (size_t i = 1; i < AHEAD; i++)
            copy_in(p, i);
        run->stage = STAGE_COPY_OUT;
    }
    if (run->stage != STAGE_LENT)
        rc = advance_rounds(p, op);
    if (rc == 1 && lent(p, p->me))
        rc = shm_all_reached(p, SHM_DRAINED, p->base + run->rounds, op->err);
    if (rc <= 0)
        return rc;
    p->base += run->rounds;
    return shm_gathered(op, run->deliver, run->offset[p->n] / op->elem_bytes);
}
