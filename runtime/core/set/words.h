/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the world by which ranks tell each other internally what they
 * do with process sets.  Unlike tensor data, this is authenticated between
 * hosts.
 *
 * All of them are carried out as blocking calls of the program are, and return
 * 0 or negative with err set, unless it was set before.
 */
#ifndef HVD_CORE_WORDS_H
#define HVD_CORE_WORDS_H

#include "lib/base/error.h"
#include "runtime/hvd.h"

#include <stddef.h>

/* Gathers `len` bytes of each rank, by rank, into all [room]. */
int hvd__words_allgather(const void *own, size_t len, void *all, size_t room,
                         struct hb_error *err);

/* Reduces count elements of each rank; `out` may be `own`. */
int hvd__words_allreduce(const void *own, void *out, size_t count,
                         enum hvd_dtype dtype, enum hvd_op op,
                         struct hb_error *err);

/* Waits until all ranks have come. */
int hvd__words_barrier(struct hb_error *err);

#endif
