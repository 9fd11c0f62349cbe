/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written down of operations that are done: statistics and timeline
 * (runtime/trace).  The driver's.
 */
#ifndef HVD_CORE_RECORD_H
#define HVD_CORE_RECORD_H

#include "runtime/core/controller.h"

/* A request is issued; blocking ones are timed now and then. */
void hvd__record_issued(struct hvd__controller *c, struct hvd_request *req,
                        int blocking);

/* op is about to begin for these requests: says whether it is to be timed. */
void hvd__record_begin(struct hvd__controller *c, struct hvd__op *op,
                       struct hvd_request *const *reqs, size_t n);

/* These requests, carried out as op, are about to be completed. */
void hvd__record_done(struct hvd__controller *c, const struct hvd__op *op,
                      struct hvd_request *const *reqs, size_t n);

#endif
