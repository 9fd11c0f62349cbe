/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged alltoall.
 *
 * First the ranks exchange splits, then what all must know to cut the data
 * alike: the longest split, and whether some rank lacks room or exceeds MPI's
 * int counts.  Half of the scratch memory is for incoming data, the other half
 * for outgoing.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <string.h>

/* p->words holds incoming splits, outgoing splits, and the card. */

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
    return mp_alltoall(p, op->err, outgoing(p), incoming(p));
}

static struct mp_limits limits_of(const struct mp_plane *p,
                                  const struct hvd__op *op)
{
    return mp_limits(p, op, MP_SCRATCH_BYTES / 2);
}

/* Computes the card, whose maximum over all ranks is taken.  Every
 * split is an incoming split of some rank, so that maximum is the longest. */
static int compare_cards(struct mp_plane *p, struct hvd__op *op)
{
    const struct mp_limits limits = limits_of(p, op);
    uint64_t *card = card_of(p);
    size_t longest;

    if (mp_find_places(&limits, incoming(p), 1, p->offset, &longest) < 0)
        return hvd__op_nonsense(op);
    mp_tell_counts(p, op, incoming(p), 1);
    p->run.deliver = mp_room(p, op, p->offset[p->n]);
    card[MP_LONGEST] = longest;
    card[MP_HAS_ROOM] = (uint64_t)p->run.deliver;
    card[MP_NEEDS_PIECES] = !p->run.deliver || op->count > mp_max_elems() ||
                            p->offset[p->n] > mp_max_elems();
    return mp_allreduce(p, op->err, card, card, MP_SPLITS_WORDS, MPI_UINT64_T,
                        MPI_MAX);
}

static int plan(struct mp_plane *p, struct hvd__op *op)
{
    const struct mp_limits limits = limits_of(p, op);

    if (mp_plan_splits(&limits, card_of(p), &p->run.plan) < 0)
        return hvd__op_nonsense(op);
    return 0;
}

static void pack(struct mp_plane *p, const struct hvd__op *op,
                 const struct mp_splits *s, unsigned char *to)
{
    const unsigned char *from = op->sendbuf; /* NULL if nothing is sent */
    size_t bytes = op->elem_bytes, skip = p->run.at * p->run.plan.piece;
    size_t at = 0;

    for (int r = 0; r < p->n; at += outgoing(p)[r++])
        if (s->sendcounts[r])
            memcpy(to + (size_t)s->sdispls[r] * bytes,
                   from + (at + skip) * bytes,
                   (size_t)s->sendcounts[r] * bytes);
}

static int issue_round(struct mp_plane *p, struct hvd__op *op)
{
    const struct mp_limits limits = limits_of(p, op);
    const struct mp_run *run = &p->run;
    unsigned char *half = (unsigned char *)p->scratch + MP_SCRATCH_BYTES / 2;
    int *i = p->ints, n = p->n;
    struct mp_splits s = {.recvcounts = i,
                          .rdispls = i + n,
                          .sendcounts = i + 2 * n,
                          .sdispls = i + 3 * n,
                          .send = op->sendbuf,
                          .recv = op->recvbuf};

    mp_cut_round(&limits, &run->plan, run->at, incoming(p), 1, i);
    mp_cut_round(&limits, &run->plan, run->at, outgoing(p), 1, i + 2 * n);
    if (run->plan.windowed) {
        pack(p, op, &s, half);
        s.send = half;
        s.recv = p->scratch;
    }
    return mp_alltoallv(p, op, &s);
}

int mp_alltoall_advance(struct mp_plane *p, struct hvd__op *op)
{
    static const struct mp_moves moves = {
        .ask = {exchange_splits, compare_cards},
        .plan = plan,
        .issue = issue_round};

    op->trace.algorithm = p->solo ? "mpi.alltoall" : "mpi.ialltoall";
    return mp_run_rounds(p, op, &moves);
}
