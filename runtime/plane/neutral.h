/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs that a joined rank contributes to the others' reductions: the
 * identity element of the operation.
 *
 * A plane multiplies every input by the operation's prescale, `pre`, before it
 * reduces it (reduce.h; pre is 1 where inputs are scaled when packed).  So the
 * elements are chosen to be the identity after that multiplication:
 *
 *   sum, average, adasum  -0.0, which leaves even a sum of -0.0 alone, or 0.0
 *                         for a negative pre; 0 of integers
 *   min         the largest value of the dtype, infinity for floats; the
 *               smallest for a negative pre; 0.0 of floats for a pre of 0
 *   max         likewise, with smallest and largest exchanged
 *   band, bor   all bits 1, or 0
 *   product     1
 *   bool        true or false; there pre means nothing
 *
 * The result is exact, except in these cases:
 *
 *   min, max of floats, pre 0   the sign of a zero may differ
 *   product of floats, pre not 1
 *                               the element nearest to 1 / pre is used
 *   product of integers, band, pre not 1
 *                               exact only if some integer of the dtype times
 *                               pre gives 1, or all bits 1
 *
 * A caller that needs exactness there passes a pre of 1.
 */
#ifndef HVD_PLANE_NEUTRAL_H
#define HVD_PLANE_NEUTRAL_H

#include "runtime/hvd.h"

#include <stddef.h>

/* Fills buf with `count` identity elements, to be multiplied by pre as above.
 * dtype and op are defined together (hvd__reduce_get), or op is HVD_ADASUM. */
void hvd__neutral_fill(void *buf, size_t count, enum hvd_dtype dtype,
                       enum hvd_op op, double pre);

#endif
