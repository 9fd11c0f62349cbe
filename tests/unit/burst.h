/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bursts of operations, carried out only when all are issued, however long a
 * busy machine takes for that:
 *
 *     burst_begin();
 *     ... hvd_allreduce_async() ...
 *     burst_end();
 *     ... hvd_wait() ...
 *
 * Otherwise the engine thread could begin at any time, and how many operations
 * are fused, and how often ranks negotiate, would vary between runs.
 */
#ifndef TESTS_UNIT_BURST_H
#define TESTS_UNIT_BURST_H

#include "runtime/core/set/set.h"

/* Keeps the world's engine thread from driving: it believes that a waiting
 * thread does. */
static inline void burst_begin(void)
{
    atomic_fetch_add(&hvd__context.sets[HVD_WORLD].engine.waiters, 1);
}

static inline void burst_end(void)
{
    atomic_fetch_sub(&hvd__context.sets[HVD_WORLD].engine.waiters, 1);
}

#endif
