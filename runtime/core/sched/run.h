/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run: the requests that a controller carries out as one operation.  Called
 * by the controller; the functions that collect under the engine's lock, as
 * they look at the queue.
 */
#ifndef HVD_CORE_RUN_H
#define HVD_CORE_RUN_H

#include "runtime/core/sched/controller.h"

/* Makes a run of req and the queued requests predicted to follow it that can be
 * fused.  Returns 0 when there is no memory. */
int hvd__run_collect(struct hvd__controller *c, struct hvd_request *req);
/* Makes a run of the next agreed records; it stays empty if the first one is
 * not queued here. */
void hvd__run_collect_agreed(struct hvd__controller *c);
/* Cuts the run to its first n requests, n >= 1, before it is carried out. */
void hvd__run_shorten(struct hvd__controller *c, size_t n);

/* Signs op as an operation that is not fused; first: the request's
 * signature. */
static inline void hvd__run_sign(const struct hvd__controller *c,
                                 struct hvd__op *op, uint64_t first)
{
    op->first_signature = hvd__mix(c->plan.history, first);
    op->signature = op->first_signature;
    op->entries = 1;
}

/* Gives op a place for the counts that alloc is told, if its caller has none.
 * The tables of a negotiation, which also use it, are over by then. */
static inline void hvd__run_count(const struct hvd__controller *c,
                                  struct hvd__op *op)
{
    if (op->alloc.fn && !op->recvcounts)
        op->recvcounts = c->got;
}

/* Begins `op`, which is signed, for the run; members: of a group, or NULL.
 * Returns 0 or negative with op->err set. */
int hvd__run_start(struct hvd__controller *c, struct hvd__op *op,
                   struct hvd__op *members, size_t count);
/* Fuses the requests of the run, if there are several, signs and begins them.
 * Returns as hvd__run_start. */
int hvd__run_begin(struct hvd__controller *c);

#endif
