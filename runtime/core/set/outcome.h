/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outcome, on each rank, of a step that several ranks take together.  The
 * ranks exchange their outcomes, so that all fail if one does, and know why.
 */
#ifndef HVD_CORE_OUTCOME_H
#define HVD_CORE_OUTCOME_H

#include "lib/base/error.h"

#include <stdint.h>

struct hvd__outcome {
    int32_t status; /* 0 or negative */
    int32_t about;  /* the rank that the failure is about; -1: none */
    char text[HB_ERROR_TEXT_MAX];
};

/* Fills in this rank's outcome. */
void hvd__outcome_fill(struct hvd__outcome *own, const struct hb_error *err);

/* Sets err, unless it is set, to the first failure of the n ranks, one that is
 * about no other rank before those that are; ranks NULL: they are 0 .. n-1.  If
 * err is set and about a rank that has such a failure of its own, that takes
 * its place: the connection was refused because that rank lacks memory. Returns
 * err->status. */
int hvd__outcome_merge(const struct hvd__outcome *all, const int *ranks, int n,
                       struct hb_error *err);

#endif
