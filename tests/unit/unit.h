/* SPDX-License-Identifier: Apache-2.0 */
/* What unit tests share: running a suite, failing allocations, and numbers
 * that only look random. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include "lib/base/alloc.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

/* The return value of main. */
static inline int unit_run(Suite *s)
{
    SRunner *runner = srunner_create(s);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Calls attempt with the first, second, ... allocation failing until one
 * run needs no more.  A run in which one failed must return a negative
 * value, the last one 0; attempt frees what it made either way. */
static inline void unit_fail_each(int (*attempt)(void *arg), void *arg)
{
    long n;
    int rc, fired = 1;

    for (n = 0; fired; n++) {
        hb_alloc_fail_after(n);
        rc = attempt(arg);
        fired = hb_alloc_fail_after(-1);
        if (fired)
            ck_assert_int_lt(rc, 0);
        else
            ck_assert_int_eq(rc, 0);
    }
    ck_assert_int_gt(n, 1);
}

/* The same ones in each test. */
static inline uint64_t unit_random(void)
{
    static uint64_t x = 88172645463325252;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

#endif
