/* SPDX-License-Identifier: Apache-2.0 */
/* What unit tests share: running a suite, failing allocations, and
 * pseudo-random numbers. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include "lib/base/alloc.h"

#include <check.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* Tells Check that a line was reached, for its report of a crash.  Only the
 * first time in a test: it costs a system call, in which a loop over many
 * elements would spend nearly all its time. */
static inline void unit_mark_point(const char *file, int line)
{
    static atomic_uchar reached[1024];
    atomic_uchar *mark = &reached[line % 1024];

    if (atomic_load_explicit(mark, memory_order_relaxed))
        return;
    atomic_store_explicit(mark, 1, memory_order_relaxed);
    _mark_point(file, line);
}
/* Called by ck_assert and its like. */
#define _mark_point(file, line) unit_mark_point(file, line)

/* A large number of elements.  ThreadSanitizer looks at every byte, and needs
 * no more than it takes to fill all blocks and rounds several times. */
#ifdef __SANITIZE_THREAD__
#define UNIT_LARGE(n) ((n) / 8 + 1)
#else
#define UNIT_LARGE(n) (n)
#endif

/* Tag of test cases (tcase_set_tags) in which no process has a second thread:
 * tests/run leaves them out under ThreadSanitizer, which finds nothing there.
 */
#define UNIT_ONE_THREAD "one_thread"

/* Runs a suite; returns what main must return. */
static inline int unit_run(Suite *s)
{
    SRunner *runner = srunner_create(s);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Calls attempt with the first, second, ... allocation failing, until a run has
 * no allocation fail.  A run with a failure must return a negative value, the
 * last one 0; attempt frees what it made either way. */
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

/* Returns the same sequence in each test. */
static inline uint64_t unit_random(void)
{
    static uint64_t x = 88172645463325252;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

#endif
