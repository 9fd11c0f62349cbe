/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/trace/offset: two clocks, and how well their offset is known. */
#include "lib/job/trace/offset.h"
#include "tests/unit/unit.h"

#define MS(n) ((uint64_t)(n)*1000000u)

static const uint64_t now = MS(5000000);

START_TEST(unknown_is_now)
{
    struct offset o = {0};

    ck_assert_uint_eq(offset_ours(&o, 0, now), now);
    ck_assert_uint_eq(offset_ours(&o, MS(1), now), now);
    ck_assert_uint_eq(offset_ours(&o, UINT64_MAX, now), now);
}
END_TEST

/* The offset assumes that the answer was given half way. */
START_TEST(ahead_and_behind)
{
    struct offset o = {0};

    offset_add(&o, now - MS(10), now - MS(5) + MS(7000), now);
    ck_assert_int_eq(o.ahead_ns, (int64_t)MS(7000));
    ck_assert_uint_eq(o.error_ns, MS(5));
    ck_assert_uint_eq(offset_ours(&o, now + MS(7000) - MS(3), now),
                      now - MS(3));
    o = (struct offset){0};
    offset_add(&o, now - MS(10), MS(20), now);
    ck_assert_uint_eq(offset_ours(&o, MS(20), now), now - MS(5));
    ck_assert_uint_eq(offset_ours(&o, MS(15), now), now - MS(10));
}
END_TEST

START_TEST(the_quickest_answer_counts)
{
    struct offset o = {0};

    offset_add(&o, now - MS(100), now + MS(40), now);
    offset_add(&o, now + MS(8), now + MS(9), now + MS(10));
    ck_assert_int_eq(o.ahead_ns, 0);
    offset_add(&o, now + MS(20), now + MS(90), now + MS(80));
    ck_assert_int_eq(o.ahead_ns, 0);
    ck_assert_uint_eq(o.error_ns, MS(1));
}
END_TEST

/* After 100 s two clocks may have drifted apart by 10 ms. */
START_TEST(knowledge_ages)
{
    struct offset o = {0};

    offset_add(&o, now - MS(2), now - MS(1), now);
    offset_add(&o, now + MS(1000), now + MS(1020), now + MS(1020));
    ck_assert_uint_eq(o.error_ns, MS(1));
    offset_add(&o, now + MS(100000), now + MS(100015), now + MS(100020));
    ck_assert_uint_eq(o.error_ns, MS(10));
    ck_assert_int_eq(o.ahead_ns, (int64_t)MS(5));
}
END_TEST

/* A time is not in the future, nor before the beginning. */
START_TEST(bounds)
{
    struct offset o = {0};

    offset_add(&o, now - MS(2), now - MS(1), now);
    ck_assert_uint_eq(offset_ours(&o, now + MS(1), now), now);
    o = (struct offset){0};
    offset_add(&o, now, MS(3 * 5000000), now);
    ck_assert_uint_eq(offset_ours(&o, MS(1), now), 0);
}
END_TEST

/* An answer that came before its question is ignored. */
START_TEST(nonsense)
{
    struct offset o = {0};

    offset_add(&o, now, now, now - MS(1));
    ck_assert_int_eq(o.known, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("offset");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, unknown_is_now);
    tcase_add_test(tc, ahead_and_behind);
    tcase_add_test(tc, the_quickest_answer_counts);
    tcase_add_test(tc, knowledge_ages);
    tcase_add_test(tc, bounds);
    tcase_add_test(tc, nonsense);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
