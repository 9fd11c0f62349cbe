/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/stall/culprit: which rank's failure caused the others'. */
#include "lib/job/stall/culprit.h"
#include "tests/unit/unit.h"

/* Finds the culprit among ranks in order of death, each with the rank that it
 * blames (-1: none). */
static int find(const int (*dead)[2], size_t count, size_t *at)
{
    struct control_exited failed[8];

    for (size_t i = 0; i < count; i++)
        failed[i] = (struct control_exited){.rank = dead[i][0],
                                            .blames = dead[i][1] + 1};
    *at = 99;
    return culprit_find(failed, count, at);
}

START_TEST(the_first_blames_nobody)
{
    static const int dead[][2] = {{2, -1}, {0, 2}, {1, 0}};
    size_t at;

    ck_assert_int_eq(find(dead, 1, &at), -1);
    ck_assert_uint_eq(at, 0);
    ck_assert_int_eq(find(dead, 3, &at), -1);
    ck_assert_uint_eq(at, 0);
}
END_TEST

START_TEST(the_blamed_one_has_failed_later)
{
    static const int dead[][2] = {{0, 2}, {1, 2}, {2, -1}};
    size_t at;

    ck_assert_int_eq(find(dead, 3, &at), -1);
    ck_assert_uint_eq(at, 2);
}
END_TEST

START_TEST(a_chain)
{
    static const int dead[][2] = {{5, 4}, {3, -1}, {4, 2}, {2, 7}};
    size_t at;

    ck_assert_int_eq(find(dead, 4, &at), 7);
    ck_assert_uint_eq(at, 3);
    ck_assert_int_eq(find(dead, 3, &at), 2);
    ck_assert_uint_eq(at, 2);
}
END_TEST

START_TEST(the_blamed_one_has_not_failed)
{
    static const int dead[][2] = {{1, 0}, {2, 0}};
    size_t at;

    ck_assert_int_eq(find(dead, 2, &at), 0);
    ck_assert_uint_eq(at, 0);
}
END_TEST

START_TEST(a_circle)
{
    static const int dead[][2] = {{1, 2}, {2, 0}, {0, 1}}, self[][2] = {{3, 3}};
    size_t at;

    ck_assert_int_eq(find(dead, 3, &at), -1);
    ck_assert_uint_eq(at, 0);
    ck_assert_int_eq(find(self, 1, &at), -1);
    ck_assert_uint_eq(at, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("culprit");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, the_first_blames_nobody);
    tcase_add_test(tc, the_blamed_one_has_failed_later);
    tcase_add_test(tc, a_chain);
    tcase_add_test(tc, the_blamed_one_has_not_failed);
    tcase_add_test(tc, a_circle);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
