/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/elastic/strikes: times grow, are bounded, and are forgiven. */
#include "lib/job/elastic/strikes.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static const uint64_t S = 1000000000u;

START_TEST(times_grow)
{
    struct strikes s;
    uint64_t now = 100 * S, until;

    strikes_init(&s, 10000, 60000);
    ck_assert_uint_eq(strikes_until(&s, "a", now), 0);
    until = strikes_add(&s, "a", now, 0);
    ck_assert_uint_eq(until, 110 * S);
    ck_assert_uint_eq(strikes_until(&s, "A", now + 9 * S), until);
    ck_assert_uint_eq(strikes_until(&s, "b", now), 0);
    /* What fails meanwhile is no further strike. */
    ck_assert_uint_eq(strikes_add(&s, "a", now + S, 0), until);
    ck_assert_uint_eq(strikes_until(&s, "a", until), 0);
    now = until;
    until = strikes_add(&s, "a", now, 0);
    ck_assert_uint_eq(until, now + 20 * S);
    now = until;
    until = strikes_add(&s, "a", now, 0);
    ck_assert_uint_eq(until, now + 40 * S);
    for (int i = 0; i < 40; i++) {
        now = until;
        until = strikes_add(&s, "a", now, 0);
        ck_assert_uint_eq(until, now + 60 * S);
    }
    strikes_fini(&s);
}
END_TEST

START_TEST(times_vary)
{
    uint64_t least = UINT64_MAX, longest = 0;
    struct strikes s;
    char name[16];

    strikes_init(&s, 10000, 60000);
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t until;

        snprintf(name, sizeof(name), "n%u", i);
        until = strikes_add(&s, name, S, i * 4294967u) - S;
        least = until < least ? until : least;
        longest = until > longest ? until : longest;
    }
    ck_assert(least >= 10 * S && least < 11 * S);
    ck_assert(longest > 19 * S && longest <= 20 * S);
    strikes_fini(&s);
}
END_TEST

START_TEST(strikes_are_forgiven)
{
    struct strikes s;
    uint64_t now = 0;

    strikes_init(&s, 1000, 3600000);
    for (int i = 0; i < 4; i++)
        now = strikes_add(&s, "a", now, 0);
    ck_assert_uint_eq(strikes_add(&s, "a", now, 0), now + 16 * S);
    now += 1300 * S; /* two of five are forgiven */
    ck_assert_uint_eq(strikes_add(&s, "a", now, 0), now + 8 * S);
    now += 100000 * S;
    ck_assert_uint_eq(strikes_add(&s, "a", now, 0), now + S);
    strikes_fini(&s);
}
END_TEST

/* Names that come and go do not fill the memory. */
START_TEST(many_hosts)
{
    struct strikes s;
    char name[16];

    strikes_init(&s, 3600000, 3600000);
    for (int i = 0; i < STRIKES_HOSTS_MAX + 10; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        strikes_add(&s, name, (uint64_t)(i + 1) * 1000, 0);
    }
    ck_assert_uint_eq(s.count, STRIKES_HOSTS_MAX);
    ck_assert_uint_eq(strikes_until(&s, "n9", S), 0);
    ck_assert_uint_ne(strikes_until(&s, "n10", S), 0);
    strikes_fini(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("strikes");
    TCase *t = tcase_create("strikes");

    tcase_add_test(t, times_grow);
    tcase_add_test(t, times_vary);
    tcase_add_test(t, strikes_are_forgiven);
    tcase_add_test(t, many_hosts);
    suite_add_tcase(suite, t);
    return unit_run(suite);
}
