/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast and ragged allgather.
 *
 * An allgather first gathers counts, and how much room each rank has.  A rank
 * that asks its caller for room only then, and does not get it, receives the
 * data in memory of its own and discards it.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"

#include <string.h>

/* ---- Broadcast --------------------------------------------------------- */

int mp_broadcast_advance(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    int is_root = p->me == op->root;
    /* On the root, MPI only reads it. */
    unsigned char *buf =
        (unsigned char *)(uintptr_t)(is_root ? op->sendbuf : op->recvbuf);

    op->trace.algorithm = p->solo ? "mpi.bcast" : "mpi.ibcast";
    for (;;) {
        int rc = mp_collective_done(p, op);

        if (rc <= 0)
            return rc;
        run->at += run->block;
        if (run->at == op->count)
            break;
        run->block = op->count - run->at;
        if (run->block > mp_max_elems())
            run->block = mp_max_elems();
        rc = mp_bcast(p, op, buf + run->at * op->elem_bytes, run->block);
        if (rc < 0)
            return rc;
    }
    if (is_root && op->count && op->recvbuf != op->sendbuf)
        hvd__copy(op->recvbuf, op->sendbuf, op->count * op->elem_bytes, 0);
    return 1;
}

/* ---- Allgather --------------------------------------------------------- */

/* Returns a rank's card: the elements that it has, and has room for. */
static uint64_t *card_of(const struct mp_plane *p, int rank)
{
    return p->words + 2 * rank;
}

static int gather_counts(struct mp_plane *p, struct hvd__op *op)
{
    uint64_t *own = card_of(p, p->me);

    own[0] = op->count;
    own[1] = mp_room_announced(op);
    return mp_allgather(p, op->err, p->words, 2, MPI_UINT64_T);
}

/* Puts this rank's own part in place first: sendbuf may lie anywhere in
 * recvbuf, where others' parts will overwrite it. */
static void copy_own_part(struct mp_plane *p, const struct hvd__op *op)
{
    unsigned char *dst;

    p->run.send = op->sendbuf;
    if (!p->run.recv || op->count == 0)
        return;
    dst = p->run.recv + p->offset[p->me] * op->elem_bytes;
    if (dst != op->sendbuf)
        memmove(dst, op->sendbuf, op->count * op->elem_bytes);
    p->run.send = dst;
}

/* Sets run.recv: recvbuf; or the drain, where the others count on room that
 * alloc did not give; or NULL. */
static int find_room(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    size_t total = p->offset[p->n];

    run->deliver = mp_room(p, op, total);
    run->recv = run->deliver ? op->recvbuf : NULL;
    if (!op->alloc.status || run->windowed)
        return 0;
    run->recv = p->drain = hb_malloc(total * op->elem_bytes);
    if (p->drain)
        return 0;
    op->alloc.status = 0; /* no longer the reason */
    return hb_error_set(op->err, HVD_ENOMEM,
                        "no memory to receive the %zu elements that "
                        "options.alloc had none for",
                        total);
}

/* Plans the rounds from the cards, which are the same on all ranks. */
static int plan(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    size_t longest = 0, total, with_room = 0;
    int rc;

    p->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        size_t count = card_of(p, r)[0];

        p->offset[r + 1] = p->offset[r];
        if (!hvd__op_add(&p->offset[r + 1], count, op->elem_bytes))
            return hvd__op_nonsense(op);
        longest = count > longest ? count : longest;
        if (op->recvcounts)
            op->recvcounts[r] = count;
    }
    total = p->offset[p->n];
    for (int r = 0; r < p->n; r++)
        with_room += card_of(p, r)[1] >= total;
    run->windowed = with_room < (size_t)p->n || total > mp_max_elems();
    rc = find_room(p, op);
    if (rc < 0)
        return rc;
    mp_plan_pieces(p, op, MP_SCRATCH_BYTES, longest, with_room > 0);
    copy_own_part(p, op);
    return 0;
}

static int is_even(const struct mp_plane *p)
{
    for (int r = 1; r < p->n; r++)
        if (card_of(p, r)[0] != card_of(p, 0)[0])
            return 0;
    return 1;
}

static int issue_round(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    int *displs = p->ints + p->n;
    size_t bytes = op->elem_bytes;

    mp_cut_round(p, p->words, 2, p->ints);
    if (!run->windowed && is_even(p))
        return mp_allgather(p, op->err, run->recv, op->count,
                            mp_plain_type(bytes));
    if (!run->windowed)
        return mp_allgatherv(p, op, run->recv, p->ints, displs);
    if (p->ints[p->me])
        memcpy((unsigned char *)p->scratch + (size_t)displs[p->me] * bytes,
               run->send + run->at * run->piece * bytes,
               (size_t)p->ints[p->me] * bytes);
    return mp_allgatherv(p, op, p->scratch, p->ints, displs);
}

int mp_gather_advance(struct mp_plane *p, struct hvd__op *op)
{
    static const struct mp_moves moves = {
        .ask = {gather_counts}, .plan = plan, .issue = issue_round};

    op->trace.algorithm = p->solo ? "mpi.allgather" : "mpi.iallgather";
    return mp_run_rounds(p, op, &moves);
}
