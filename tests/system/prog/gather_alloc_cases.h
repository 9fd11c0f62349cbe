/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allgather and alltoall whose callers are asked for memory (options.alloc), on
 * whatever plane the ranks use.
 */
#ifndef TESTS_SYSTEM_GATHER_ALLOC_CASES_H
#define TESTS_SYSTEM_GATHER_ALLOC_CASES_H

/* Runs all cases between hvd_init and hvd_shutdown, on every rank; repeats the
 * smallest allgather `times` times.  Returns 0, or 1 with a line on stderr. */
int gather_alloc_cases(int times);

#endif
