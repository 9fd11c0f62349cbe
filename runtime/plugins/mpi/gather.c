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

static uint64_t *card_of(const struct mp_plane *p, int rank)
{
    return p->words + MP_GATHER_WORDS * rank;
}

static int gather_counts(struct mp_plane *p, struct hvd__op *op)
{
    uint64_t *own = card_of(p, p->me);

    own[MP_HAS] = op->count;
    own[MP_ROOM] = mp_room_announced(op);
    return mp_allgather(p, op->err, p->words, MP_GATHER_WORDS, MPI_UINT64_T);
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
    if (!op->alloc.status || run->plan.windowed)
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

static int plan(struct mp_plane *p, struct hvd__op *op)
{
    const struct mp_limits limits = mp_limits(p, op, MP_SCRATCH_BYTES);
    int rc = mp_plan_gather(&limits, p->words, p->offset, &p->run.plan);

    if (rc < 0)
        return hvd__op_nonsense(op);
    mp_tell_counts(p, op, p->words + MP_HAS, MP_GATHER_WORDS);
    rc = find_room(p, op);
    if (rc == 0)
        copy_own_part(p, op);
    return rc;
}

static int is_even(const struct mp_plane *p)
{
    for (int r = 1; r < p->n; r++)
        if (card_of(p, r)[MP_HAS] != card_of(p, 0)[MP_HAS])
            return 0;
    return 1;
}

static int issue_round(struct mp_plane *p, struct hvd__op *op)
{
    const struct mp_limits limits = mp_limits(p, op, MP_SCRATCH_BYTES);
    struct mp_run *run = &p->run;
    int *displs = p->ints + p->n;
    size_t bytes = op->elem_bytes;

    mp_cut_round(&limits, &run->plan, run->at, p->words + MP_HAS,
                 MP_GATHER_WORDS, p->ints);
    if (!run->plan.windowed && is_even(p))
        return mp_allgather(p, op->err, run->recv, op->count,
                            mp_plain_type(bytes));
    if (!run->plan.windowed)
        return mp_allgatherv(p, op, run->recv, p->ints, displs);
    if (p->ints[p->me])
        memcpy((unsigned char *)p->scratch + (size_t)displs[p->me] * bytes,
               run->send + run->at * run->plan.piece * bytes,
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
