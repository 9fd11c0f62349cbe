/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged data, whose sizes the ranks first have to exchange.
 *
 * If all ranks have room for what arrives, and MPI's int counts suffice, the
 * data goes in one call, in place.  Otherwise it goes in pieces through
 * scratch memory, and ranks without room discard it; if no rank has room, it
 * is not sent at all.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"

#include <string.h>

enum { STEP_ROUNDS = -1 }; /* run.step after the last ask */

uint64_t mp_room_announced(const struct hvd__op *op)
{
    if (op->alloc.fn)
        return UINT64_MAX;
    return op->recvbuf ? op->recvcap : 0;
}

/* Calls op->alloc without the lock: the program's function may wait for another
 * of its threads, which may wait for the lock.  Meanwhile run.asks keeps a
 * thread that leaves (stay() in leave.c) from going on with the operation. */
int mp_room(struct mp_plane *p, struct hvd__op *op, size_t elems)
{
    int has_room;

    p->run.asks = 1;
    if (op->alloc.fn)
        mp_unlock();
    has_room = hvd__op_room(op, elems * op->elem_bytes);
    if (op->alloc.fn)
        mp_lock();
    p->run.asks = 0;
    return has_room;
}

struct mp_limits mp_limits(const struct mp_plane *p, const struct hvd__op *op,
                           size_t bytes)
{
    return (struct mp_limits){p->n, op->elem_bytes, mp_max_elems(), bytes};
}

void mp_tell_counts(const struct mp_plane *p, const struct hvd__op *op,
                    const uint64_t *elems, int step)
{
    for (int r = 0; op->recvcounts && r < p->n; r++)
        op->recvcounts[r] = elems[r * step];
}

static void deliver_round(struct mp_plane *p, const struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    const int *counts = p->ints, *displs = p->ints + p->n;
    size_t bytes = op->elem_bytes, skip = run->at * run->plan.piece;

    for (int r = 0; run->plan.windowed && run->deliver && r < p->n; r++)
        if (counts[r])
            memcpy((unsigned char *)op->recvbuf + (p->offset[r] + skip) * bytes,
                   (unsigned char *)p->scratch + (size_t)displs[r] * bytes,
                   (size_t)counts[r] * bytes);
    run->at++;
    run->block = 0;
}

/* Ends the operation after the last round. */
static int rounds_over(struct mp_plane *p, const struct hvd__op *op)
{
    hb_free(p->drain);
    p->drain = NULL;
    return hvd__op_gathered(op, p->run.deliver, p->offset[p->n]);
}

int mp_run_rounds(struct mp_plane *p, struct hvd__op *op,
                  const struct mp_moves *m)
{
    struct mp_run *run = &p->run;

    if (run->asks)
        return 0;
    for (;;) {
        int rc = mp_collective_done(p, op);

        if (rc <= 0)
            return rc;
        if (run->block)
            deliver_round(p, op);
        if (run->step != STEP_ROUNDS && !m->ask[run->step]) {
            rc = m->plan(p, op);
            if (rc < 0)
                return rc;
            run->step = STEP_ROUNDS;
        }
        if (run->step == STEP_ROUNDS && run->at == run->plan.rounds)
            return rounds_over(p, op);
        if (run->step != STEP_ROUNDS) {
            rc = m->ask[run->step++](p, op);
        } else {
            run->block = 1;
            rc = m->issue(p, op);
        }
        if (rc < 0)
            return rc;
    }
}
