/* SPDX-License-Identifier: Apache-2.0 */
/* Folding host names; a host list reads the result back. */
#include "lib/hosts/hostfold.h"

#include "lib/base/alloc.h"
#include "lib/hosts/hostlist.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 64 };

static void check_fold(const char *words, const char *want)
{
    char text[512];
    const char *names[NAMES_MAX];
    size_t count = 0;
    char *got;

    snprintf(text, sizeof(text), "%s", words);
    for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
        names[count++] = w;
    got = hostfold(names, count);
    ck_assert_str_eq(got, want);
    hb_free(got);
}

START_TEST(nothing_and_one)
{
    check_fold("", "");
    check_fold("node7", "node7");
    check_fold("login", "login");
}
END_TEST

START_TEST(runs_become_ranges)
{
    check_fold("n1 n2 n3", "n[1-3]");
    check_fold("n3 n1 n2", "n[1-3]");
    check_fold("n1 n2 n4 n7 n8", "n[1-2,4,7-8]");
    check_fold("n8 n9 n10 n11", "n[8-11]");
    check_fold("n08 n09 n10 n11", "n[08-11]");
    check_fold("n099 n100", "n[099-100]");
}
END_TEST

START_TEST(widths_stay_apart)
{
    check_fold("n1 n02", "n[1,02]");
    check_fold("n9 n010", "n[9,010]");
    check_fold("n01 n2 n03", "n[01,2,03]");
    check_fold("n1 n01", "n[1,01]");
}
END_TEST

START_TEST(groups_by_what_is_around)
{
    check_fold("gpu2 login gpu1 cpu1", "cpu1,gpu[1-2],login");
    check_fold("n1.a.lan n2.a.lan n3.b.lan", "n[1-2].a.lan,n3.b.lan");
    check_fold("r1-n05.x2 r1-n06.x2", "r1-n[05-06].x2");
    check_fold("n n1 n2", "n[1-2],n");
    check_fold("10.0.0.1 10.0.0.2 10.0.1.1", "10.0.0.[1-2],10.0.1.1");
    check_fold("fe80::1 fe80::2", "fe80::1,fe80::2");
}
END_TEST

START_TEST(twice_is_once)
{
    check_fold("a a b1 b1 b2", "a,b[1-2]");
}
END_TEST

START_TEST(long_numbers_are_text)
{
    check_fold("i-1234567890123 i-1234567890124",
               "i-1234567890123,i-1234567890124");
}
END_TEST

START_TEST(reads_back)
{
    static const char *const names[] = {"n08", "n09",    "n10",    "n12",
                                        "gpu", "x3.lan", "x4.lan", "n7"};
    enum { COUNT = sizeof(names) / sizeof(names[0]) };
    struct hostlist l = HOSTLIST_INIT;
    char *text = hostfold(names, COUNT);

    ck_assert_int_eq(hostlist_parse(text, &l, NULL), 0);
    ck_assert_uint_eq(l.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        int found = 0;

        for (size_t k = 0; k < l.count; k++)
            found += strcmp(names[i], l.entries[k].name) == 0;
        ck_assert_msg(found == 1, "%s not in %s", names[i], text);
    }
    hostlist_free(&l);
    hb_free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hostfold");
    TCase *tc = tcase_create("hostfold");

    tcase_add_test(tc, nothing_and_one);
    tcase_add_test(tc, runs_become_ranges);
    tcase_add_test(tc, widths_stay_apart);
    tcase_add_test(tc, groups_by_what_is_around);
    tcase_add_test(tc, twice_is_once);
    tcase_add_test(tc, long_numbers_are_text);
    tcase_add_test(tc, reads_back);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
