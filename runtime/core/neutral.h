/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a joined rank gives to a reduction of the others: elements that
 * change nothing.
 *
 * A plane multiplies every input by the operation's prescale, `pre`, before
 * it folds it (reduce.h; 1 where the inputs are scaled when they are packed).
 * So the elements are such that they change nothing after that:
 *
 *   sum, average, adasum  -0.0, which leaves even a sum of -0.0 alone, or 0.0
 *                         for a negative pre; 0 of integers
 *   min, max    the end of the dtype's range, infinity for floats, that pre
 *               does not turn below (above) what any input becomes
 *   band, bor   all bits 1, or 0
 *   product     1
 *   bool        true or false; there pre means nothing
 *
 * This is exact, but for the sign of a zero in a min or max with a pre of 0,
 * and for a pre other than 1 of the two ops that lack such an element for
 * most of them.  A product of floats then gets the element nearest to
 * 1 / pre; one of integers, and a band, is exact if pre takes an integer of
 * the dtype to 1, or to all bits 1.  Who must be exact there passes no pre.
 */
#ifndef HVD_CORE_NEUTRAL_H
#define HVD_CORE_NEUTRAL_H

#include "runtime/hvd.h"

#include <stddef.h>

/* dtype and op are defined together (hvd__reduce_get), or op is HVD_ADASUM. */
void hvd__neutral_fill(void *buf, size_t count, enum hvd_dtype dtype,
                       enum hvd_op op, double pre);

#endif
