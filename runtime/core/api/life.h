/* SPDX-License-Identifier: Apache-2.0 */
/* What hvd_init and hvd_shutdown share with hvd_sync. */
#ifndef HVD_CORE_LIFE_H
#define HVD_CORE_LIFE_H

#include "lib/base/error.h"

/*
 * Leaves the world of an elastic job and joins the next generation, which may
 * have other ranks.  Operations in flight end with HVD_ERESIZED.  Memory from
 * hvd_alloc stays valid, but is ordinary memory from now on.  Blocks until all
 * ranks of the next generation are ready for it.
 *
 * The process sets are made again.  With `begins` this rank still makes its
 * first ones (hvd__sets_begin_again).
 *
 * Returns 0, or negative with err set: as hvd_init.  After an error the library
 * is not initialised.
 */
int hvd__renew(int begins, struct hb_error *err);

/* Returns whether ranks of an elastic job begin again in the next generation
 * after `err`: one has died or left, or one has failed, in which case that
 * rank's program decides whether it tries again or ends. */
int hvd__begins_again(const struct hb_error *err);

#endif
