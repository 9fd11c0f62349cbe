/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's negotiation: every rank gathers the lengths of all ranks'
 * tables, then the tables, and concludes from them what comes next
 * (negotiate.h).  Only controller.c and controller_tables.c include this.
 */
#ifndef HVD_CORE_CONTROLLER_IMPL_H
#define HVD_CORE_CONTROLLER_IMPL_H

#include "runtime/core/sched/controller.h"

/* Makes c->carrier an internal allgather of the len bytes at `send`.  The
 * caller sets where the result goes and starts it. */
void hvd__controller_gather(struct hvd__controller *c, const void *send,
                            size_t len, uint64_t signature);

/* Takes a step of a negotiation: begin_sizes and begin_tables each start an
 * allgather, conclude evaluates the tables; all set c->state.  Returns as
 * hvd__run_start; negative, with c->err set, when this rank cannot go on. */
int hvd__controller_begin_sizes(struct hvd__controller *c);
int hvd__controller_begin_tables(struct hvd__controller *c);
int hvd__controller_conclude(struct hvd__controller *c);

#endif
