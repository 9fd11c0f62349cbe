/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged alltoall.
 *
 * Splits first, and then what all ranks must know of each other to cut alike:
 * the longest split, and whether one of them has no room or more than MPI's
 * ints can say.  Then the data goes in one call, or in pieces through scratch
 * memory, one half for what is sent and one for what comes.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <string.h>

enum step { STEP_SPLITS, STEP_CARDS, STEP_PLAN, STEP_DATA };

/* Words: splits that come, splits that go, and what the most of which over
 * all ranks counts. */
enum card { LONGEST, NEEDS_PIECES, HAS_ROOM, CARD_WORDS };

static uint64_t *incoming(const struct mp_plane *p)
{
    return p->words;
}

static uint64_t *outgoing(const struct mp_plane *p)
{
    return p->words + p->n;
}

static uint64_t *card_of(const struct mp_plane *p)
{
    return p->words + 2 * p->n;
}

static int exchange_splits(struct mp_plane *p, struct hvd__op *op)
{
    for (int r = 0; r < p->n; r++)
        outgoing(p)[r] = op->sendcounts[r];
    p->run.step = STEP_CARDS;
    return mp_alltoall(p, op->err, outgoing(p), incoming(p));
}

static int compare_cards(struct mp_plane *p, struct hvd__op *op)
{
    uint64_t *card = card_of(p);

    card[LONGEST] = 0;
    p->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        uint64_t split = outgoing(p)[r];

        p->offset[r + 1] = p->offset[r] + incoming(p)[r];
        card[LONGEST] = split > card[LONGEST] ? split : card[LONGEST];
        if (op->recvcounts)
            op->recvcounts[r] = incoming(p)[r];
    }
    p->run.deliver = p->offset[p->n] <= (op->recvbuf ? op->recvcap : 0);
    card[HAS_ROOM] = (uint64_t)p->run.deliver;
    card[NEEDS_PIECES] =
        !p->run.deliver || op->count > mp_most() || p->offset[p->n] > mp_most();
    p->run.step = STEP_PLAN;
    return mp_allreduce(p, op->err, card, card, CARD_WORDS, MPI_UINT64_T,
                        MPI_MAX);
}

static void plan(struct mp_plane *p, const struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    size_t most = MP_SCRATCH_BYTES / 2 / op->elem_bytes;
    size_t longest = card_of(p)[LONGEST];

    run->windowed = card_of(p)[NEEDS_PIECES] != 0;
    most = (most < mp_most() ? most : mp_most()) / (size_t)p->n;
    run->piece = run->windowed ? (most ? most : 1) : longest;
    run->rounds =
        card_of(p)[HAS_ROOM] && longest ? (longest - 1) / run->piece + 1 : 0;
    run->step = STEP_DATA;
}

/* The part of each split in a round, one after the other: counts and
 * displacements. */
static void cut(const struct mp_plane *p, const uint64_t *splits, int *counts,
                int *displs)
{
    size_t skip = p->run.at * p->run.piece, displ = 0;

    for (int r = 0; r < p->n; r++) {
        size_t left = splits[r] > skip ? splits[r] - skip : 0;

        left = left < p->run.piece ? left : p->run.piece;
        counts[r] = (int)left;
        displs[r] = (int)displ;
        displ += left;
    }
}

static void pack(struct mp_plane *p, const struct hvd__op *op,
                 const struct mp_splits *s, unsigned char *to)
{
    const unsigned char *from = op->sendbuf;
    size_t bytes = op->elem_bytes, skip = p->run.at * p->run.piece;

    for (int r = 0; r < p->n; from += outgoing(p)[r++] * bytes)
        if (s->sendcounts[r])
            memcpy(to + (size_t)s->sdispls[r] * bytes, from + skip * bytes,
                   (size_t)s->sendcounts[r] * bytes);
}

static unsigned char *second_half(const struct mp_plane *p)
{
    return (unsigned char *)p->scratch + MP_SCRATCH_BYTES / 2;
}

static int issue_round(struct mp_plane *p, struct hvd__op *op)
{
    int *i = p->ints, n = p->n;
    struct mp_splits s = {.sendcounts = i,
                          .sdispls = i + n,
                          .recvcounts = i + 2 * n,
                          .rdispls = i + 3 * n,
                          .send = op->sendbuf,
                          .recv = op->recvbuf};

    cut(p, outgoing(p), i, i + n);
    cut(p, incoming(p), i + 2 * n, i + 3 * n);
    if (p->run.windowed) {
        pack(p, op, &s, p->scratch);
        s.send = p->scratch;
        s.recv = second_half(p);
    }
    p->run.block = 1;
    return mp_alltoallv(p, op, &s);
}

static void take_round(struct mp_plane *p, const struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    const int *counts = p->ints + 2 * p->n, *displs = p->ints + 3 * p->n;
    size_t bytes = op->elem_bytes, skip = run->at * run->piece;

    for (int r = 0; run->windowed && run->deliver && r < p->n; r++)
        if (counts[r])
            memcpy((unsigned char *)op->recvbuf + (p->offset[r] + skip) * bytes,
                   second_half(p) + (size_t)displs[r] * bytes,
                   (size_t)counts[r] * bytes);
    run->at++;
    run->block = 0;
}

int mp_alltoall_advance(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;

    op->algorithm = p->solo ? "mpi.alltoall" : "mpi.ialltoall";
    for (;;) {
        int rc = mp_landed(p, op);

        if (rc <= 0)
            return rc;
        if (run->step == STEP_PLAN)
            plan(p, op);
        if (run->block)
            take_round(p, op);
        if (run->step == STEP_DATA && run->at == run->rounds)
            return mp_gathered(op, run->deliver, p->offset[p->n]);
        if (run->step == STEP_SPLITS)
            rc = exchange_splits(p, op);
        else if (run->step == STEP_CARDS)
            rc = compare_cards(p, op);
        else
            rc = issue_round(p, op);
        if (rc < 0)
            return rc;
    }
}
