/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and expected results of allreduce tests: small numbers that every
 * element type holds exactly, so that one formula serves all types.
 */
#ifndef TESTS_UNIT_VALUES_H
#define TESTS_UNIT_VALUES_H

#include "runtime/hvd.h"

enum { VALUES_DTYPES = HVD_BFLOAT16 + 1 };

/* Writes one element. */
void value_put(enum hvd_dtype dtype, void *at, double v);

/* What rank r of n contributes at index i. */
double value_in(enum hvd_dtype dtype, enum hvd_op op, int n, int r, size_t i);
/* What an unscaled reduction of those gives. */
double value_out(enum hvd_dtype dtype, enum hvd_op op, int n, size_t i);

void values_fill(enum hvd_dtype dtype, enum hvd_op op, int n, int r, void *buf,
                 size_t count);
/* count when buf is value_out times scale, else the first wrong index. */
size_t values_check(enum hvd_dtype dtype, enum hvd_op op, int n, double scale,
                    const void *buf, size_t count);

#endif
