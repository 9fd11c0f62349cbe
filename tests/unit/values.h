/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and expected results of allreduce tests: small numbers that every
 * element type represents exactly, so that one formula serves all types.
 */
#ifndef TESTS_UNIT_VALUES_H
#define TESTS_UNIT_VALUES_H

#include "runtime/hvd.h"

enum {
    VALUES_DTYPES = HVD_BFLOAT16 + 1,
    VALUES_PERIOD = 1009, /* inputs and results repeat after so many elements */
};

/* Writes one element. */
void value_put(enum hvd_dtype dtype, void *at, double v);

/* Returns rank r of n's input at index i. */
double value_in(enum hvd_dtype dtype, enum hvd_op op, int n, int r, size_t i);
/* Returns the result of an unscaled reduction of those inputs. */
double value_out(enum hvd_dtype dtype, enum hvd_op op, int n, size_t i);

void values_fill(enum hvd_dtype dtype, enum hvd_op op, int n, int r, void *buf,
                 size_t count);
/* Returns count if buf is value_out times scale, else the first wrong index. */
size_t values_check(enum hvd_dtype dtype, enum hvd_op op, int n, double scale,
                    const void *buf, size_t count);
/* Checks count elements of which the first has index `first`; returns count or
 * the position in buf of the first wrong one. */
size_t values_check_from(enum hvd_dtype dtype, enum hvd_op op, int n,
                         double scale, const void *buf, size_t first,
                         size_t count);

#endif
