/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves data that does not fit a header, in rounds through the slots.
 *
 * A rank cuts what it has for others into pieces, one per round.  Piece 0 is
 * written before the header.  `filled` counts the pieces that a rank has
 * written, `drained` the rounds in which it has taken the others' pieces.
 * Pieces are written two rounds ahead.  Piece i + 2 reuses the slot of piece
 * i - 2, so it waits until all ranks have drained that one.  Data in an arena
 * is read in place; its owner waits at the end until all have drained the last
 * round.
 *
 * Everything is inline, so that the compiler calls each collective's moves
 * directly.
 */
#ifndef HVD_PLANE_SHM_ROUNDS_H
#define HVD_PLANE_SHM_ROUNDS_H

#include "runtime/plane/shm/shm_impl.h"

enum { SHM_AHEAD = 2 }; /* pieces written before their round */

/* Values of run.stage. */
enum shm_stage { SHM_BEGIN, SHM_TAKE, SHM_FILL, SHM_LENT };

/* The functions of a collective. take and taken act on round run.round. */
struct shm_moves {
    /* Returns the number of pieces that `rank` has for this one.  Piece 0
     * comes with the header and needs no further wait. */
    size_t (*pieces)(const struct hvd__shm *p, const struct hvd__op *op,
                     int rank);
    /* Writes a piece to this rank's slot. */
    void (*copy_in)(struct hvd__shm *p, const struct hvd__op *op, size_t piece);
    /* Takes the piece of `rank`; called only if it has one.  May be NULL. */
    void (*take)(struct hvd__shm *p, const struct hvd__op *op, int rank);
    /* Called when the pieces of all ranks have arrived.  May be NULL. */
    void (*taken)(struct hvd__shm *p, const struct hvd__op *op);
    /* Called after the last round.  May be NULL. */
    void (*finish)(struct hvd__shm *p, const struct hvd__op *op);
};

static inline void shm_fill(struct hvd__shm *p, const struct hvd__op *op,
                            const struct shm_moves *m, size_t piece)
{
    if (piece >= p->run.own_pieces)
        return;
    m->copy_in(p, op, piece);
    shm_publish(p, &p->ranks[p->me].filled.value, p->base + piece + 1);
}

/* Returns like shm_reached whether the slot for this rank's piece is free. */
static inline int shm_slot_free(struct hvd__shm *p, struct hvd__op *op,
                                size_t piece)
{
    if (piece < SHM_SLOTS || piece >= p->run.own_pieces)
        return 1;
    return shm_all_reached(p, SHM_DRAINED, p->base + piece - SHM_SLOTS + 1,
                           op->err);
}

static inline int shm_take_all(struct hvd__shm *p, struct hvd__op *op,
                               const struct shm_moves *m)
{
    struct shm_run *run = &p->run;

    for (; run->peer < p->n; run->peer++) {
        int r = run->peer, rc = 1;

        if (r == p->me || run->round >= m->pieces(p, op, r))
            continue;
        if (run->round > 0)
            rc = shm_reached(p, r, &p->ranks[r].filled.value,
                             p->base + run->round + 1, op->err);
        if (rc <= 0)
            return rc;
        if (m->take)
            m->take(p, op, r);
    }
    run->peer = 0;
    if (m->taken)
        m->taken(p, op);
    return shm_still_lent(p, op->err);
}

static inline int shm_round(struct hvd__shm *p, struct hvd__op *op,
                            const struct shm_moves *m)
{
    struct shm_run *run = &p->run;
    int rc;

    if (run->stage == SHM_TAKE) {
        rc = shm_take_all(p, op, m);
        if (rc <= 0)
            return rc;
        shm_publish(p, &p->ranks[p->me].drained.value,
                    p->base + run->round + 1);
        run->stage = SHM_FILL;
    }
    rc = shm_slot_free(p, op, run->round + SHM_AHEAD);
    if (rc <= 0)
        return rc;
    shm_fill(p, op, m, run->round + SHM_AHEAD);
    run->stage = SHM_TAKE;
    run->round++;
    return 1;
}

/* Advances the rounds; returns like progress.  In stage SHM_BEGIN the caller
 * has set run.rounds, own_pieces, lends and lent. */
static inline int shm_rounds(struct hvd__shm *p, struct hvd__op *op,
                             const struct shm_moves *m)
{
    struct shm_run *run = &p->run;
    int rc = 1;

    if (run->stage == SHM_BEGIN) {
        for (size_t i = 1; i < SHM_AHEAD; i++)
            shm_fill(p, op, m, i);
        run->stage = SHM_TAKE;
    }
    while (rc == 1 && run->stage != SHM_LENT && run->round < run->rounds)
        rc = shm_round(p, op, m);
    if (rc == 1 && run->stage != SHM_LENT) {
        if (m->finish)
            m->finish(p, op);
        run->stage = SHM_LENT;
    }
    if (rc == 1 && run->lends)
        rc = shm_all_reached(p, SHM_DRAINED, p->base + run->rounds, op->err);
    if (rc == 1)
        p->base += run->rounds;
    return rc;
}

#endif
