/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that does not ride in a header, in rounds through the slots.
 *
 * A rank cuts what it has for others into pieces, one for each round.  Piece
 * 0 is there with the header; `filled` counts the pieces that a rank has
 * written since, `drained` the rounds in which it has taken what the others
 * have for it.  Pieces are written two rounds ahead, and piece i + 2 reuses
 * the slot of piece i - 2: it waits for all ranks to have drained that one.
 * Data in an arena is read where it is, and its owner waits at the end until
 * all have drained the last round.
 *
 * All is inline, so that the moves of each collective are direct calls.
 */
#ifndef HVD_PLANE_SHM_ROUNDS_H
#define HVD_PLANE_SHM_ROUNDS_H

#include "runtime/plane/shm_impl.h"

enum { SHM_AHEAD = 2 }; /* pieces written before their round */

/* Of run.stage. */
enum shm_stage { SHM_BEGIN, SHM_TAKE, SHM_FILL, SHM_LENT };

/* What a collective does; those that may be NULL, in round run.round. */
struct shm_moves {
    /* How many pieces another rank has for this one; 0 and 1 need no wait. */
    size_t (*pieces)(const struct hvd__shm *p, const struct hvd__op *op,
                     int rank);
    /* Writes a piece to this rank's slot. */
    void (*copy_in)(struct hvd__shm *p, const struct hvd__op *op, size_t piece);
    /* NULL, or takes the piece of a rank that has one. */
    void (*take)(struct hvd__shm *p, const struct hvd__op *op, int rank);
    /* NULL, or what is to do when the pieces of all ranks are there. */
    void (*taken)(struct hvd__shm *p, const struct hvd__op *op);
    /* NULL, or what is to do after the last round. */
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

/* Whether the slot of a piece of this rank is free. */
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

/* As progress.  In SHM_BEGIN, run.rounds, own_pieces, lends and lent are
 * set. */
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
