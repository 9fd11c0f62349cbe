/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/elastic/apart.h. */
#include "lib/job/elastic/apart.h"
#include "tests/unit/unit.h"

enum { HOSTS = 5 };

static struct apart apart;
static struct apart_host hosts[HOSTS];

static void setup(void)
{
    apart_init(&apart, APART_PAIRS_MAX + 20);
    for (int i = 0; i < HOSTS; i++)
        hosts[i] = (struct apart_host){.ranks = 2};
}

static void teardown(void)
{
    apart_fini(&apart);
}

/* Fails unless `host`, which does not reach `other`, is given up next; other
 * -1: any. */
static void expect(int host, int other)
{
    int found = -1;

    ck_assert_int_eq(apart_choose(&apart, hosts, &found), host);
    if (other >= 0)
        ck_assert_int_eq(found, other);
}

START_TEST(nothing)
{
    expect(-1, -1);
}
END_TEST

START_TEST(last_of_equals)
{
    apart_add(&apart, 1, 2);
    apart_add(&apart, 2, 1);
    ck_assert_int_eq(apart.count, 1);
    expect(2, 1);
    expect(-1, -1);
}
END_TEST

START_TEST(fewest_ranks)
{
    hosts[1].ranks = 1;
    apart_add(&apart, 1, 2);
    expect(1, 2);
}
END_TEST

/* A host whose network is broken is in all pairs. */
START_TEST(most_pairs)
{
    apart_add(&apart, 0, 1);
    apart_add(&apart, 2, 1);
    apart_add(&apart, 4, 1);
    hosts[1].ranks = 100;
    expect(1, -1);
    expect(-1, -1);
}
END_TEST

/* A host that the job needs is kept, even if it is in the most pairs. */
START_TEST(needed)
{
    apart_add(&apart, 0, 1);
    apart_add(&apart, 2, 1);
    hosts[1].is_needed = 1;
    expect(2, 1);
    expect(0, 1);
    expect(-1, -1);
    apart_add(&apart, 1, 3);
    hosts[3].is_needed = hosts[1].is_silent = 1;
    expect(1, 3);
}
END_TEST

START_TEST(silent_before_all)
{
    apart_add(&apart, 0, 1);
    apart_add(&apart, 1, 2);
    hosts[0].is_silent = 1;
    expect(0, 1);
    expect(2, 1);
}
END_TEST

/* Two pairs without a common host: two hosts. */
START_TEST(one_by_one)
{
    apart_add(&apart, 0, 1);
    apart_add(&apart, 2, 3);
    expect(3, 2);
    expect(1, 0);
    expect(-1, -1);
}
END_TEST

/* Host 0 reports two hosts in turn: after the second, it is given up. */
START_TEST(liar)
{
    hosts[0].ranks = 9;
    apart_add(&apart, 0, 4);
    expect(4, 0);
    hosts[4].is_gone = 1;
    apart_add(&apart, 0, 3);
    expect(0, 3);
    /* Host 3, which has survived that, is not the first of the next pair. */
    apart_add(&apart, 1, 2);
    expect(2, 1);
    expect(-1, -1);
}
END_TEST

START_TEST(gone)
{
    apart_add(&apart, 0, 1);
    apart_add(&apart, 2, 3);
    hosts[2].is_gone = 1;
    expect(1, 0);
    expect(-1, -1);
}
END_TEST

START_TEST(more_pairs_than_fit)
{
    for (int i = 0; i < APART_PAIRS_MAX + 10; i++)
        apart_add(&apart, i, i + 1);
    ck_assert_int_eq(apart.count, APART_PAIRS_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("apart");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, nothing);
    tcase_add_test(tc, last_of_equals);
    tcase_add_test(tc, fewest_ranks);
    tcase_add_test(tc, most_pairs);
    tcase_add_test(tc, needed);
    tcase_add_test(tc, silent_before_all);
    tcase_add_test(tc, one_by_one);
    tcase_add_test(tc, liar);
    tcase_add_test(tc, gone);
    tcase_add_test(tc, more_pairs_than_fit);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
