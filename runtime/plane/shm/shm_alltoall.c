/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged alltoall in shared memory.
 *
 * Every rank has a table of bytes, one entry per receiver: in its header if
 * there are few ranks, else in its counts.  Small data is inline in the
 * header, one receiver's after the other's.  Longer data goes through slots
 * that are divided into one cell per receiver: a piece holds the next part for
 * each.  That of two ranks is exchanged, unless all of it lies in arenas.
 */
#include "runtime/plane/shm/shm_exchange.h"
#include "runtime/plane/shm/shm_rounds.h"

#include <limits.h>
#include <string.h>

enum { ALIGN_BYTES = 64 };

enum how { RIDES, IN_SLOTS, IN_ARENA };

/* A header's payload, unless data is inline: where sendbuf is, and the table if
 * there are few ranks. */
struct elsewhere {
    uint64_t arena_offset; /* in an arena, or 0 */
    uint64_t table[SHM_TABLE_MAX];
};

_Static_assert(sizeof(struct elsewhere) <= SHM_PAYLOAD_BYTES, "it rides");
_Static_assert(SHM_PAYLOAD_BYTES <= UCHAR_MAX, "a table's entry is a byte");

/* ---- What goes where ------------------------------------------------- */

static struct elsewhere *elsewhere(const struct hvd__shm *p, int rank)
{
    return (struct elsewhere *)(void *)shm_line(p, rank)->payload;
}

static uint64_t *table_of(const struct hvd__shm *p, int rank)
{
    return p->n <= SHM_TABLE_MAX ? elsewhere(p, rank)->table
                                 : shm_counts(p, rank);
}

/* Returns the bytes that `rank` sends to `to`, another rank. */
static size_t sent(const struct hvd__shm *p, int rank, int to)
{
    const struct shm_line *line = shm_line(p, rank);

    return line->how == RIDES && p->n <= SHM_TABLE_MAX ? line->table[to]
                                                       : table_of(p, rank)[to];
}

/* Returns the bytes that this rank sends to itself; they are never inline. */
static size_t kept(const struct hvd__shm *p, const struct hvd__op *op)
{
    return op->sendcounts[p->me] * op->elem_bytes;
}

/* Returns the bytes that `rank` sends to the ranks before `to`. */
static size_t offset_of(const struct hvd__shm *p, int rank, int to)
{
    size_t sum = 0;

    for (int r = 0; r < to; r++)
        sum += sent(p, rank, r);
    return sum;
}

static size_t cell_bytes(const struct hvd__shm *p)
{
    return SHM_SLOT_BYTES / (size_t)p->n / ALIGN_BYTES * ALIGN_BYTES;
}

/* Returns the number of rounds in which `rank` sends something to `to`. */
static size_t pieces_for(const struct hvd__shm *p, int rank, int to)
{
    size_t bytes = sent(p, rank, to);

    if (p->run.how[rank] != IN_SLOTS)
        return bytes > 0;
    return (bytes + cell_bytes(p) - 1) / cell_bytes(p);
}

static size_t piece_bytes(const struct hvd__shm *p, size_t bytes, size_t i)
{
    size_t left = bytes - i * cell_bytes(p);

    return left < cell_bytes(p) ? left : cell_bytes(p);
}

/* Returns the inline data of `rank` for this rank. */
static const unsigned char *find_small(const struct hvd__shm *p, int rank)
{
    return shm_line(p, rank)->payload + offset_of(p, rank, p->me);
}

/* Returns whether what `rank` announces for the ranks below `end` is small
 * enough to be inline. */
static int can_ride(const struct hvd__shm *p, int rank, int end)
{
    size_t sum = 0;

    for (int r = 0; r < end; r++)
        if (!hvd__op_add(&sum, sent(p, rank, r), 1))
            return 0;
    return sum <= SHM_PAYLOAD_BYTES;
}

/* Returns whether `rank` announces a possible offset and size of data that is
 * not inline. */
static int can_be_elsewhere(const struct hvd__shm *p, int rank)
{
    int how = p->run.how[rank];
    size_t sum = 0;

    for (int r = 0; r < p->n; r++)
        if (!hvd__op_add(&sum, sent(p, rank, r), 1))
            return 0;
    if (how == IN_ARENA && elsewhere(p, rank)->arena_offset)
        return shm_is_place(p, rank, elsewhere(p, rank)->arena_offset, sum);
    return how == IN_SLOTS;
}

/* ---- Moves ----------------------------------------------------------- */

static void copy_in(struct hvd__shm *p, const struct hvd__op *op, size_t i)
{
    const unsigned char *src = op->sendbuf;
    const uint64_t *table = table_of(p, p->me);

    for (int to = 0; to < p->n; src += table[to++])
        if (to != p->me && i < pieces_for(p, p->me, to))
            hvd__copy_shared(shm_slot(p, p->me, i) + (size_t)to * cell_bytes(p),
                             src + i * cell_bytes(p),
                             piece_bytes(p, table[to], i));
}

static size_t pieces(const struct hvd__shm *p, const struct hvd__op *op,
                     int rank)
{
    (void)op;
    return pieces_for(p, rank, p->me);
}

/* Takes the piece of `rank` for this rank. */
static void take(struct hvd__shm *p, const struct hvd__op *op, int rank)
{
    size_t i = p->run.round, bytes = sent(p, rank, p->me);
    const unsigned char *src;
    unsigned char *dst;

    if (!p->run.deliver)
        return;
    dst = (unsigned char *)op->recvbuf + p->run.offset[rank];
    if (p->run.how[rank] == RIDES) {
        src = find_small(p, rank);
    } else if (p->run.how[rank] == IN_ARENA) {
        src = shm_at(p, elsewhere(p, rank)->arena_offset) +
              offset_of(p, rank, p->me);
    } else {
        src = shm_slot(p, rank, i) + (size_t)p->me * cell_bytes(p);
        dst += i * cell_bytes(p);
        bytes = piece_bytes(p, bytes, i);
    }
    hvd__copy(dst, src, bytes, p->run.streamed);
}

static void take_own(struct hvd__shm *p, const struct hvd__op *op)
{
    if (p->run.deliver && kept(p, op))
        hvd__copy((unsigned char *)op->recvbuf + p->run.offset[p->me],
                  (const unsigned char *)op->sendbuf +
                      offset_of(p, p->me, p->me),
                  kept(p, op), p->run.streamed);
}

/* ---- Exchange -------------------------------------------------------- */

static void put_bytes(struct hvd__shm *p, const struct hvd__op *op,
                      unsigned char *slot, size_t at, size_t len)
{
    size_t first = p->me ? 0 : kept(p, op);

    hvd__copy_shared(slot, (const unsigned char *)op->sendbuf + first + at,
                     len);
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

/* Returns whether the ranks exchange through slots: some rank announces data
 * that is neither inline nor in an arena. */
static int exchanges(const struct hvd__shm *p)
{
    for (int r = 0; shm_exchanges(p) && r < p->n; r++)
        if (p->run.how[r] == IN_SLOTS)
            return 1;
    return 0;
}

/* Returns the bytes that `rank` exchanges. */
static size_t exchanged_bytes(const struct hvd__shm *p, int rank)
{
    return p->run.how[rank] == RIDES ? 0 : sent(p, rank, !rank);
}

/* Advances an alltoall that was begun; returns like progress. */
static int advance_exchange(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == SHM_EXCHANGE_BEGIN) {
        run->sent_bytes = exchanged_bytes(p, p->me);
        run->taken_bytes = exchanged_bytes(p, !p->me);
        shm_exchange_begin(p, op, &exchange_moves, run->how[p->me] != IN_ARENA);
    }
    rc = shm_exchange_advance(p, op, &exchange_moves,
                              run->how[!p->me] != IN_ARENA);
    if (rc != 1)
        return rc;
    if (run->how[!p->me] == RIDES && sent(p, !p->me, p->me))
        take(p, op, !p->me);
    take_own(p, op);
    return 1;
}

/* ---- What rides ------------------------------------------------------ */

static void stage_small(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_line *line = shm_line(p, p->me);
    uint64_t *counts = shm_counts(p, p->me);
    const unsigned char *src = op->sendbuf;
    unsigned char *dst = line->payload;

    line->how = RIDES;
    for (int to = 0; to < p->n; to++) {
        size_t bytes = op->sendcounts[to] * op->elem_bytes;
        size_t others = to == p->me ? 0 : bytes;

        if (p->n <= SHM_TABLE_MAX)
            line->table[to] = (unsigned char)others;
        else
            counts[to] = others;
        if (bytes == 0) /* sendbuf may be NULL */
            continue;
        memcpy(dst, src, others);
        dst += others;
        src += bytes;
    }
}

static int all_ride(const struct hvd__shm *p)
{
    for (int r = 0; r < p->n; r++)
        if (shm_line(p, r)->how != RIDES)
            return 0;
    return 1;
}

/* Sets *sum to the bytes that arrive here; returns 0 if they make no sense. */
static int count_small(const struct hvd__shm *p, struct hvd__op *op,
                       size_t *sum)
{
    *sum = 0;
    for (int r = 0; r < p->n; r++) {
        size_t bytes = r == p->me ? kept(p, op) : sent(p, r, p->me);

        if (r != p->me && !can_ride(p, r, p->me + 1))
            return 0;
        *sum += bytes;
        if (op->recvcounts)
            op->recvcounts[r] = bytes / op->elem_bytes;
    }
    return 1;
}

/* Delivers inline data when all ranks' is inline; returns like progress. */
static int take_small(struct hvd__shm *p, struct hvd__op *op)
{
    unsigned char *dst;
    size_t arrived;

    if (!count_small(p, op, &arrived))
        return hvd__op_nonsense(op);
    op->trace.algorithm = "shm.header";
    if (!hvd__op_room(op, arrived))
        return hvd__op_gathered(op, 0, arrived / op->elem_bytes);
    dst = op->recvbuf;
    for (int r = 0; r < p->n; r++) {
        size_t bytes = r == p->me ? kept(p, op) : sent(p, r, p->me);

        if (bytes == 0) /* buffers may be NULL */
            continue;
        memcpy(dst,
               r == p->me
                   ? (const unsigned char *)op->sendbuf + offset_of(p, r, r)
                   : find_small(p, r),
               bytes);
        dst += bytes;
    }
    return 1;
}

/* ---- Stage and advance ----------------------------------------------- */

void shm_alltoall_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    struct shm_line *line = shm_line(p, p->me);
    uint64_t *table = table_of(p, p->me);

    if (shm_bytes(op) - kept(p, op) <= SHM_PAYLOAD_BYTES) {
        stage_small(p, op);
        return;
    }
    for (int r = 0; r < p->n; r++)
        table[r] = op->sendcounts[r] * op->elem_bytes;
    elsewhere(p, p->me)->arena_offset =
        shm_place(p, op->sendbuf, shm_bytes(op));
    line->how = elsewhere(p, p->me)->arena_offset ? IN_ARENA : IN_SLOTS;
    p->run.how[p->me] = (unsigned char)line->how;
    if (line->how != IN_SLOTS)
        return;
    if (shm_exchanges(p))
        shm_exchange_put(p, op, &exchange_moves, table[!p->me], 0);
    else
        copy_in(p, op, 0);
}

/* Returns the rounds that `rank` needs: those of its longest message. */
static size_t rounds_of(const struct hvd__shm *p, int rank)
{
    int longest = -1;

    for (int to = 0; to < p->n; to++)
        if (to != rank &&
            (longest < 0 || sent(p, rank, to) > sent(p, rank, longest)))
            longest = to;
    return longest < 0 ? 0 : pieces_for(p, rank, longest);
}

static int begin(struct hvd__shm *p, struct hvd__op *op)
{
    static const char *const names[] = {"shm.header", "shm.slots", "shm.arena"};
    struct shm_run *run = &p->run;
    enum how most = RIDES;

    run->rounds = 0;
    run->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        size_t bytes = r == p->me ? kept(p, op) : sent(p, r, p->me);
        enum how how = (enum how)shm_line(p, r)->how;
        size_t rounds;

        run->how[r] = (unsigned char)how;
        run->offset[r + 1] = run->offset[r];
        if (how > IN_ARENA || !hvd__op_add(&run->offset[r + 1], bytes, 1) ||
            !(how == RIDES ? can_ride(p, r, p->n) : can_be_elsewhere(p, r)))
            return hvd__op_nonsense(op);
        most = how > most ? how : most;
        if (op->recvcounts)
            op->recvcounts[r] = bytes / op->elem_bytes;
        rounds = rounds_of(p, r);
        run->rounds = rounds > run->rounds ? rounds : run->rounds;
    }
    run->exchanges = exchanges(p);
    op->trace.algorithm = run->exchanges ? "shm.exchange" : names[most];
    run->own_pieces = rounds_of(p, p->me);
    run->lends = run->how[p->me] == IN_ARENA;
    run->lent = most == IN_ARENA;
    run->deliver = hvd__op_room(op, run->offset[p->n]);
    run->streamed = run->offset[p->n] >= SHM_STREAM_BYTES;
    return 0;
}

int shm_alltoall_advance(struct hvd__shm *p, struct hvd__op *op)
{
    static const struct shm_moves moves = {
        .pieces = pieces, .copy_in = copy_in, .take = take, .finish = take_own};
    struct shm_run *run = &p->run;
    int rc = 0;

    if (run->stage == SHM_BEGIN && all_ride(p))
        return take_small(p, op);
    if (run->stage == SHM_BEGIN)
        rc = begin(p, op);
    if (rc == 0)
        rc = run->exchanges ? advance_exchange(p, op)
                            : shm_rounds(p, op, &moves);
    if (rc <= 0)
        return rc;
    return hvd__op_gathered(op, run->deliver,
                            run->offset[p->n] / op->elem_bytes);
}
