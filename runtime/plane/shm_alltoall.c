/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged alltoall in shared memory.
 *
 * Every rank's table of bytes, one entry per rank, is in its header if there
 * are few ranks, else in its counts; then small data for the others, one
 * rank's after the other's.  Longer data goes through slots that are divided
 * into one cell per receiver: a piece is the next part for each.
 */
#include "runtime/plane/shm_rounds.h"

#include <string.h>

enum {
    TABLE_MAX = 4, /* ranks whose table fits into a header */
    ALIGN_BYTES = 64,
};

/* A header's payload: the table, if it is there; then data, or else, at the
 * end, where it is in an arena. */
enum { WORD = sizeof(uint64_t), PLACE_AT = SHM_PAYLOAD_BYTES - WORD };

/* ---- What goes where ------------------------------------------------- */

static uint64_t *table_of(const struct hvd__shm *p, int rank)
{
    return p->n <= TABLE_MAX ? (uint64_t *)(void *)shm_line(p, rank)->payload
                             : p->ranks[rank].counts[shm_parity(p)];
}

static unsigned char *data_of(const struct hvd__shm *p, int rank)
{
    size_t table = p->n <= TABLE_MAX ? (size_t)p->n * WORD : 0;

    return shm_line(p, rank)->payload + table;
}

static uint64_t *place_of(const struct hvd__shm *p, int rank)
{
    return (uint64_t *)(void *)(shm_line(p, rank)->payload + PLACE_AT);
}

/* Bytes before the part of `to` among what a rank sends. */
static size_t offset_of(const struct hvd__shm *p, int rank, int to)
{
    const uint64_t *table = table_of(p, rank);
    size_t sum = 0;

    for (int r = 0; r < to; r++)
        sum += table[r];
    return sum;
}

enum how { RIDES, IN_SLOTS, IN_ARENA };

/* How a rank's data travels, except what it sends to itself. */
static enum how find_how(const struct hvd__shm *p, int rank)
{
    size_t bytes = offset_of(p, rank, p->n) - table_of(p, rank)[rank];
    const unsigned char *end = shm_line(p, rank)->payload + SHM_PAYLOAD_BYTES;

    if (bytes <= (size_t)(end - data_of(p, rank)))
        return RIDES;
    return *place_of(p, rank) ? IN_ARENA : IN_SLOTS;
}

static size_t cell_bytes(const struct hvd__shm *p)
{
    return SHM_SLOT_BYTES / (size_t)p->n / ALIGN_BYTES * ALIGN_BYTES;
}

/* Rounds in which a rank sends something to another one. */
static size_t pieces_for(const struct hvd__shm *p, int rank, int to)
{
    uint64_t bytes = table_of(p, rank)[to];

    if (p->run.how[rank] != IN_SLOTS)
        return bytes > 0;
    return (bytes + cell_bytes(p) - 1) / cell_bytes(p);
}

static size_t piece_bytes(const struct hvd__shm *p, size_t bytes, size_t i)
{
    size_t left = bytes - i * cell_bytes(p);

    return left < cell_bytes(p) ? left : cell_bytes(p);
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

/* A rank's piece for this one. */
static void take(struct hvd__shm *p, const struct hvd__op *op, int rank)
{
    size_t i = p->run.round, bytes = table_of(p, rank)[p->me];
    unsigned char *dst = (unsigned char *)op->recvbuf + p->run.offset[rank];
    const unsigned char *src;

    if (!p->run.deliver)
        return;
    if (p->run.how[rank] == RIDES) {
        src = data_of(p, rank) + offset_of(p, rank, p->me);
        if (rank < p->me)
            src -= table_of(p, rank)[rank];
    } else if (p->run.how[rank] == IN_ARENA) {
        src = shm_at(p, *place_of(p, rank)) + offset_of(p, rank, p->me);
    } else {
        src = shm_slot(p, rank, i) + (size_t)p->me * cell_bytes(p);
        dst += i * cell_bytes(p);
        bytes = piece_bytes(p, bytes, i);
    }
    hvd__copy(dst, src, bytes, p->run.streamed);
}

static void take_own(struct hvd__shm *p, const struct hvd__op *op)
{
    size_t bytes = table_of(p, p->me)[p->me];

    if (p->run.deliver && bytes)
        hvd__copy((unsigned char *)op->recvbuf + p->run.offset[p->me],
                  (const unsigned char *)op->sendbuf +
                      offset_of(p, p->me, p->me),
                  bytes, p->run.streamed);
}

/* ---- Stage and advance ----------------------------------------------- */

static void copy_small(struct hvd__shm *p, const struct hvd__op *op)
{
    const uint64_t *table = table_of(p, p->me);
    const unsigned char *src = op->sendbuf;
    unsigned char *dst = data_of(p, p->me);

    for (int to = 0; to < p->n; src += table[to++])
        if (to != p->me && table[to]) {
            memcpy(dst, src, table[to]);
            dst += table[to];
        }
}

void shm_alltoall_stage(struct hvd__shm *p, const struct hvd__op *op)
{
    uint64_t *table = table_of(p, p->me);
    size_t bytes = 0;

    for (int r = 0; r < p->n; r++) {
        table[r] = op->sendcounts[r] * op->elem_bytes;
        bytes += table[r];
    }
    *place_of(p, p->me) = 0;
    p->run.how[p->me] = (unsigned char)find_how(p, p->me);
    if (p->run.how[p->me] == RIDES)
        copy_small(p, op);
    else if ((*place_of(p, p->me) = shm_place(p, op->sendbuf, bytes)) == 0)
        copy_in(p, op, 0);
}

/* The longest that any rank sends another one decides on the rounds. */
static size_t rounds_of(const struct hvd__shm *p, int rank)
{
    const uint64_t *table = table_of(p, rank);
    int longest = -1;

    for (int to = 0; to < p->n; to++)
        if (to != rank && (longest < 0 || table[to] > table[longest]))
            longest = to;
    return longest < 0 ? 0 : pieces_for(p, rank, longest);
}

static void begin(struct hvd__shm *p, struct hvd__op *op)
{
    static const char *const names[] = {"shm.header", "shm.slots", "shm.arena"};
    struct shm_run *run = &p->run;
    enum how most = RIDES;

    run->rounds = 0;
    run->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        uint64_t bytes = table_of(p, r)[p->me];
        enum how how = find_how(p, r);
        size_t rounds;

        run->how[r] = (unsigned char)how;
        most = how > most ? how : most;
        run->offset[r + 1] = run->offset[r] + bytes;
        if (op->recvcounts)
            op->recvcounts[r] = bytes / op->elem_bytes;
        rounds = rounds_of(p, r);
        run->rounds = rounds > run->rounds ? rounds : run->rounds;
    }
    op->algorithm = names[most];
    run->own_pieces = rounds_of(p, p->me);
    run->lends = run->how[p->me] == IN_ARENA;
    run->lent = most == IN_ARENA;
    run->deliver = run->offset[p->n] <= op->recvcap * op->elem_bytes;
    run->streamed = run->offset[p->n] >= SHM_STREAM_BYTES;
}

int shm_alltoall_advance(struct hvd__shm *p, struct hvd__op *op)
{
    static const struct shm_moves moves = {
        .pieces = pieces, .copy_in = copy_in, .take = take, .finish = take_own};
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == SHM_BEGIN)
        begin(p, op);
    rc = shm_rounds(p, op, &moves);
    if (rc <= 0)
        return rc;
    return hvd__op_gathered(op, run->deliver,
                            run->offset[p->n] / op->elem_bytes);
}
