/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/elastic/restarts.c: how often and when a rank is started again. */
#include "lib/job/elastic/restarts.h"
#include "tests/unit/unit.h"

static const uint64_t NOW = 5000000000u, SECOND = 1000000000u;

START_TEST(test_times)
{
    struct restarts r;
    uint64_t usual = SECOND, low, high, middle;

    restarts_init(&r, 3, 12);
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(restarts_plan(&r, 0, NOW, 0, &low), 1);
        ck_assert_int_eq(restarts_plan(&r, 1, NOW, UINT32_MAX, &high), 1);
        ck_assert_int_eq(restarts_plan(&r, 2, NOW, UINT32_MAX / 2, &middle), 1);
        ck_assert_uint_eq(low - NOW, usual / 2);
        ck_assert_uint_le(high - NOW, usual * 3 / 2);
        ck_assert_uint_ge(high - NOW, usual);
        ck_assert_uint_gt(middle, low);
        ck_assert_uint_le(middle, high);
        usual = usual * 2 < 300 * SECOND ? usual * 2 : 300 * SECOND;
    }
    ck_assert_uint_eq(high - NOW, 300 * SECOND);
    ck_assert_int_eq(restarts_plan(&r, 0, NOW, 0, &low), 0);
    restarts_fini(&r);
}
END_TEST

START_TEST(test_order)
{
    struct restarts r;
    uint64_t due;

    restarts_init(&r, 4, 1);
    ck_assert_uint_eq(restarts_next(&r), 0);
    ck_assert_int_eq(restarts_take(&r, UINT64_MAX), -1);
    ck_assert_int_eq(restarts_plan(&r, 3, NOW + 10, 0, &due), 1);
    ck_assert_int_eq(restarts_plan(&r, 1, NOW, 0, &due), 1);
    ck_assert_int_eq(restarts_plan(&r, 1, NOW, 0, &due), 0);
    ck_assert_uint_eq(restarts_next(&r), due);
    ck_assert_int_eq(restarts_take(&r, due - 1), -1);
    ck_assert_int_eq(restarts_take(&r, due), 1);
    ck_assert_int_eq(restarts_take(&r, due), -1);
    ck_assert_uint_eq(restarts_next(&r), due + 10);
    ck_assert_int_eq(restarts_cancel(&r), 3);
    ck_assert_int_eq(restarts_cancel(&r), -1);
    ck_assert_int_eq(restarts_plan(&r, 1, NOW, 0, &due), 0);
    restarts_renew(&r, 1);
    ck_assert_int_eq(restarts_plan(&r, 1, NOW, 0, &due), 1);
    ck_assert_uint_eq(due, NOW + SECOND / 2);
    restarts_fini(&r);
}
END_TEST

/* Many at once, in any order, some of them planned again, come out by time. */
START_TEST(test_many)
{
    enum { MANY = 65536 };
    struct restarts r;
    uint32_t random = 1;
    uint64_t due, last = 0;
    int count = 0, rank;

    restarts_init(&r, MANY, 2);
    for (int i = 0; i < MANY + MANY / 4; i++) {
        random = random * 1664525 + 1013904223;
        ck_assert_int_eq(restarts_plan(&r, i % MANY, NOW + random, 0, &due), 1);
    }
    while ((rank = restarts_take(&r, UINT64_MAX)) >= 0) {
        ck_assert_uint_ge(r.ranks[rank].due_ns, last);
        last = r.ranks[rank].due_ns;
        ck_assert(restarts_next(&r) == 0 || restarts_next(&r) >= last);
        count++;
    }
    ck_assert_int_eq(count, MANY);
    restarts_fini(&r);
}
END_TEST

START_TEST(test_none)
{
    struct restarts r;
    uint64_t due = 7;

    restarts_init(&r, 1, 0);
    ck_assert_int_eq(restarts_plan(&r, 0, NOW, 0, &due), 0);
    ck_assert_uint_eq(due, 7);
    restarts_fini(&r);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("restarts");
    TCase *t = tcase_create("restarts");

    tcase_add_test(t, test_times);
    tcase_add_test(t, test_order);
    tcase_add_test(t, test_many);
    tcase_add_test(t, test_none);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
