/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast and ragged allgather in shared memory.
 *
 * A broadcast is a gather in which only the root has anything.  Counts
 * travel in the headers, with the data if it fits.  Longer data goes
 * through the region's ring in slot-sized pieces; that of an allgather of two
 * ranks, by an exchange, unless all of it lies in arenas.
 */
#include "runtime/plane/shm/shm_exchange.h"
#include "runtime/plane/shm/shm_rounds.h"

#include <string.h>

enum { INLINE_BYTES = SHM_PAYLOAD_BYTES };

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

/* Returns where in an arena a rank's data lies; 0: elsewhere. */
static uint64_t place_of(const struct hvd__shm *p, int rank)
{
    const struct shm_line *line = shm_line(p, rank);

    return line->bytes > INLINE_BYTES ? line->places.send : 0;
}

/* Returns the offset at which a rank's data is read; 0: not in place. */
static uint64_t lent(const struct hvd__shm *p, int rank)
{
    return p->run.exchanges ? 0 : place_of(p, rank);
}

static size_t pieces(const struct hvd__shm *p, const struct hvd__op *op,
                     int rank)
{
    size_t bytes = bytes_of(&p->run, rank);

    (void)op;
    if (bytes <= INLINE_BYTES || lent(p, rank))
        return bytes > 0;
    return (bytes - 1) / SHM_SLOT_BYTES + 1;
}

static size_t piece_bytes(size_t bytes, size_t i)
{
    size_t left = bytes - i * SHM_SLOT_BYTES;

    return left < SHM_SLOT_BYTES ? left : SHM_SLOT_BYTES;
}

/* Returns the address of a rank's piece i and its length. */
static const unsigned char *piece_at(const struct hvd__shm *p, int rank,
                                     size_t i, size_t *len)
{
    size_t bytes = bytes_of(&p->run, rank);
    uint64_t arena_offset = lent(p, rank);

    *len = arena_offset ? bytes : piece_bytes(bytes, i);
    if (arena_offset)
        return shm_at(p, arena_offset);
    return bytes <= INLINE_BYTES ? shm_line(p, rank)->payload
                                 : shm_slot(p, rank, i);
}

static int overlaps(const void *a, size_t a_bytes, const void *b,
                    size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

/* Returns whether sendbuf can be read in place.  An allgather's may lie
 * anywhere in recvbuf; it is then moved and cannot. */
static int can_lend(const struct hvd__op *op, size_t bytes)
{
    return op->kind == HVD__BROADCAST ||
           !overlaps(op->sendbuf, bytes, op->recvbuf,
                     op->recvcap * op->elem_bytes);
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

/* ---- Exchange --------------------------------------------------------- */

static void put_bytes(struct hvd__shm *p, const struct hvd__op *op,
                      unsigned char *slot, size_t at, size_t len)
{
    (void)op;
    hvd__copy_shared(slot, p->run.send + at, len);
}

static void take_bytes(struct hvd__shm *p, const struct hvd__op *op,
                       const unsigned char *slot, size_t at, size_t len)
{
    const struct shm_run *run = &p->run;

    if (run->deliver)
        hvd__copy((unsigned char *)op->recvbuf + run->offset[!p->me] + at, slot,
                  len, run->streamed);
}

static const struct shm_exchange_moves exchange_moves = {.put = put_bytes,
                                                         .take = take_bytes};

/* Returns whether data that does not ride may be exchanged.  That of a
 * broadcast goes one way: nobody would write where the root's data is. */
static int may_exchange(const struct hvd__shm *p, const struct hvd__op *op)
{
    return shm_exchanges(p) && op->kind == HVD__ALLGATHER;
}

/* Returns whether the ranks exchange through slots: some rank announces data
 * that is neither inline nor in an arena. */
static int exchanges(const struct hvd__shm *p, const struct hvd__op *op)
{
    for (int r = 0; may_exchange(p, op) && r < p->n; r++)
        if (shm_line(p, r)->bytes > INLINE_BYTES && !place_of(p, r))
            return 1;
    return 0;
}

static size_t exchanged_bytes(const struct hvd__shm *p, int rank)
{
    size_t bytes = bytes_of(&p->run, rank);

    return bytes > INLINE_BYTES ? bytes : 0;
}

/* Takes what rides, and puts this rank's part into recvbuf. */
static void end_exchange(struct hvd__shm *p, const struct hvd__op *op)
{
    int peer = !p->me;
    size_t bytes = bytes_of(&p->run, peer);

    if (bytes > 0 && bytes <= INLINE_BYTES)
        take_bytes(p, op, shm_line(p, peer)->payload, 0, bytes);
    if (!p->run.own_placed)
        place_own(p, op);
}

/* Advances a gather that was begun; returns like progress. */
static int advance_exchange(struct hvd__shm *p, struct hvd__op *op)
{
    int rc;

    if (p->run.stage == SHM_EXCHANGE_BEGIN) {
        p->run.sent_bytes = exchanged_bytes(p, p->me);
        p->run.taken_bytes = exchanged_bytes(p, !p->me);
        shm_exchange_begin(p, op, &exchange_moves, !place_of(p, p->me));
    }
    rc = shm_exchange_advance(p, op, &exchange_moves, !place_of(p, !p->me));
    if (rc == 1)
        end_exchange(p, op);
    return rc;
}

/* ---- Stage and advance ------------------------------------------------ */

void shm_gather_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_line *line = shm_line(p, p->me);
    size_t bytes = sent_bytes(p, op);

    line->bytes = bytes;
    p->run.send = op->sendbuf;
    if (bytes == 0)
        return;
    if (bytes <= INLINE_BYTES) {
        hvd__copy(line->payload, op->sendbuf, bytes, 0);
        return;
    }
    line->places.send =
        can_lend(op, bytes) ? shm_place(p, op->sendbuf, bytes) : 0;
    if (line->places.send)
        return;
    if (may_exchange(p, op))
        shm_exchange_put(p, op, &exchange_moves, bytes, 0);
    else
        hvd__copy_shared(shm_slot(p, p->me, 0), op->sendbuf,
                         piece_bytes(bytes, 0));
}

/* Returns whether recvbuf has room for the bytes that arrive. */
static int has_room(struct hvd__op *op, size_t bytes)
{
    if (op->kind == HVD__BROADCAST && !op->recvcap)
        return bytes <= shm_bytes(op);
    return hvd__op_room(op, bytes);
}

/* Reads all ranks' counts and places, and whether there is room for what they
 * send; returns 0 if they make no sense. */
static int read_counts(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    run->rounds = 0;
    run->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        uint64_t bytes = shm_line(p, r)->bytes;
        size_t n;

        run->offset[r + 1] = run->offset[r];
        if (!hvd__op_add(&run->offset[r + 1], bytes, 1) ||
            !shm_is_place(p, r, place_of(p, r), bytes))
            return 0;
        run->lent |= lent(p, r) != 0;
        n = pieces(p, op, r);
        if (n > run->rounds)
            run->rounds = n;
        if (op->recvcounts)
            op->recvcounts[r] = bytes / op->elem_bytes;
    }
    run->deliver = has_room(op, run->offset[p->n]);
    return run->deliver || op->kind != HVD__BROADCAST;
}

static const char *algorithm_of(const struct hvd__shm *p)
{
    const char *name = "shm.header";

    if (p->run.exchanges)
        return "shm.exchange";
    for (int r = 0; r < p->n; r++)
        if (lent(p, r))
            return "shm.arena";
        else if (bytes_of(&p->run, r) > INLINE_BYTES)
            name = "shm.slots";
    return name;
}

static int gather_begin(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;

    run->exchanges = exchanges(p, op);
    if (!read_counts(p, op))
        return hvd__op_nonsense(op);
    op->trace.algorithm = algorithm_of(p);
    run->own_pieces = pieces(p, op, p->me);
    run->lends = lent(p, p->me) != 0;
    run->streamed = run->offset[p->n] >= SHM_STREAM_BYTES;
    /* If sendbuf overlaps recvbuf, place this rank's part before the others'
     * data can overwrite it.  Otherwise it is placed last. */
    run->own_placed = overlaps(op->sendbuf, bytes_of(run, p->me), op->recvbuf,
                               run->offset[p->n]);
    if (run->own_placed)
        place_own(p, op);
    return 0;
}

static void copy_in(struct hvd__shm *p, const struct hvd__op *op, size_t i)
{
    size_t bytes = bytes_of(&p->run, p->me);

    (void)op;
    hvd__copy_shared(shm_slot(p, p->me, i), p->run.send + i * SHM_SLOT_BYTES,
                     piece_bytes(bytes, i));
}

static void take(struct hvd__shm *p, const struct hvd__op *op, int rank)
{
    struct shm_run *run = &p->run;
    size_t len;
    const unsigned char *piece = piece_at(p, rank, run->round, &len);

    if (run->deliver)
        hvd__copy((unsigned char *)op->recvbuf + run->offset[rank] +
                      run->round * SHM_SLOT_BYTES,
                  piece, len, run->streamed);
}

static void finish(struct hvd__shm *p, const struct hvd__op *op)
{
    if (!p->run.own_placed)
        place_own(p, op);
}

static int all_ride(const struct hvd__shm *p)
{
    for (int r = 0; r < p->n; r++)
        if (shm_line(p, r)->bytes > INLINE_BYTES)
            return 0;
    return 1;
}

/* Delivers when all ranks' data is inline; returns like progress. */
static int take_small(struct hvd__shm *p, struct hvd__op *op)
{
    size_t own = 0, bytes = 0;
    unsigned char *dst;

    op->trace.algorithm = "shm.header";
    for (int r = 0; r < p->n; r++) {
        uint64_t part = shm_line(p, r)->bytes;

        if (r == p->me)
            own = bytes;
        bytes += part;
        if (op->recvcounts)
            op->recvcounts[r] = part / op->elem_bytes;
    }
    if (!has_room(op, bytes))
        return op->kind == HVD__BROADCAST
                   ? hvd__op_nonsense(op)
                   : hvd__op_gathered(op, 0, bytes / op->elem_bytes);
    dst = op->recvbuf;
    /* Before other data can overwrite it. */
    if (shm_line(p, p->me)->bytes && dst + own != op->sendbuf)
        memmove(dst + own, op->sendbuf, shm_line(p, p->me)->bytes);
    for (int r = 0; r < p->n; r++) {
        const struct shm_line *line = shm_line(p, r);

        if (line->bytes == 0) /* recvbuf may be NULL */
            continue;
        if (r != p->me)
            memcpy(dst, line->payload, line->bytes);
        dst += line->bytes;
    }
    return 1;
}

int shm_gather_advance(struct hvd__shm *p, struct hvd__op *op)
{
    static const struct shm_moves moves = {
        .pieces = pieces, .copy_in = copy_in, .take = take, .finish = finish};
    struct shm_run *run = &p->run;
    int rc = 0;

    if (run->stage == SHM_BEGIN && all_ride(p))
        return take_small(p, op);
    if (run->stage == SHM_BEGIN)
        rc = gather_begin(p, op);
    if (rc == 0)
        rc = run->exchanges ? advance_exchange(p, op)
                            : shm_rounds(p, op, &moves);
    if (rc <= 0)
        return rc;
    return hvd__op_gathered(op, run->deliver,
                            run->offset[p->n] / op->elem_bytes);
}
