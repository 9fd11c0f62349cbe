/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run: the requests that a controller carries out as one operation, and
 * beginning them.  The controller's own; under the engine's lock where the
 * queue is looked at (add, join, collect).
 */
#ifndef HVD_CORE_RUN_H
#define HVD_CORE_RUN_H

#include "runtime/core/controller.h"

size_t hvd__run_bytes(const struct hvd_request *req);
int hvd__run_can_fuse(const struct hvd__controller *c,
                      const struct hvd_request *req);

/* 0 when there is no memory for it; there always is for the first. */
int hvd__run_add(struct hvd__controller *c, struct hvd_request *req);
/* Takes req too if it may be fused with the run; *bytes are the run's. */
int hvd__run_join(struct hvd__controller *c, struct hvd_request *req,
                  size_t *bytes);
/* req and, if they are there already, those foreseen to follow it. */
int hvd__run_collect(struct hvd__controller *c, struct hvd_request *req);
/* The next ones of the agreement; none, if the first one is not here. */
void hvd__run_collect_agreed(struct hvd__controller *c);
/* Only the first n of the run, at least 1: the others have not begun. */
void hvd__run_shorten(struct hvd__controller *c, size_t n);

/* As one that is not fused. */
static inline void hvd__run_sign(const struct hvd__controller *c,
                                 struct hvd__op *op, uint64_t first)
{
    op->first_signature = hvd__mix(c->plan.history, first);
    op->signature = op->first_signature;
    op->entries = 1;
}
/* Begins op, signed, of the run: 0 or negative. */
int hvd__run_start(struct hvd__controller *c, struct hvd__op *op,
                   struct hvd__op *members, size_t count);
/* The same for all requests of the run. */
int hvd__run_begin(struct hvd__controller *c);

#endif
