/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/sys/clock.h: units, and a clock that never runs backwards. */
#include "lib/base/sys/clock.h"
#include "tests/unit/unit.h"

#include <time.h>

START_TEST(test_monotonic)
{
    uint64_t before = hb_now_ns(), now;
    int i;

    for (i = 0; i < 1000; i++) {
        now = hb_now_ns();
        ck_assert(now >= before);
        before = now;
    }
}
END_TEST

START_TEST(test_wall_is_in_nanoseconds)
{
    uint64_t before = (uint64_t)time(NULL);
    uint64_t seconds = hb_wall_ns() / 1000000000u;

    ck_assert(seconds + 1 >= before);
    ck_assert(seconds <= (uint64_t)time(NULL) + 1);
}
END_TEST

START_TEST(test_sleep)
{
    ck_assert_uint_eq(hb_sleep_ns(50, 1000, 0), 50);
    ck_assert_uint_eq(hb_sleep_ns(50, 1000, 1020), 20);
    ck_assert_uint_eq(hb_sleep_ns(50, 1000, 2000), 50);
    ck_assert_uint_eq(hb_sleep_ns(50, 1000, 1000), 0);
    ck_assert_uint_eq(hb_sleep_ns(50, 1000, 10), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("clock");
    TCase *c = tcase_create("clock");

    tcase_add_test(c, test_monotonic);
    tcase_add_test(c, test_wall_is_in_nanoseconds);
    tcase_add_test(c, test_sleep);
    suite_add_tcase(s, c);
    return unit_run(s);
}
