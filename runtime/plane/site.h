/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites: with HVD_CHECK=1, operations without a name must also be called
 * from the same place of the program on all ranks.  Such operations match by
 * their number, so a rank that leaves one out would take the next one's data
 * for its own wherever the arguments happen to fit.
 *
 * A place is the offset of the call in its executable or library, which is the
 * same on all ranks wherever that was loaded.  Without HVD_CHECK no place is
 * recorded, and all count as equal.
 */
#ifndef HVD_PLANE_SITE_H
#define HVD_PLANE_SITE_H

#include "runtime/plane/op.h"

/* Hashes the place of the call that returns to `caller`; never 0. */
uint64_t hvd__site_hash(const void *caller);

/* Writes the place of that call as "main+0x1b (train+0x11d3)", without the
 * function where its module does not export it, or "" for NULL. */
void hvd__site_text(const void *caller, char out[HVD__SITE_BYTES]);

#endif
