/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: merged, folded, counted; versions compared. */
#include "cmd/hvdrun/tools/findings.h"

#include "tests/unit/unit.h"

#include <string.h>

static const char *const sections[] = {"first", "second", NULL};

static void check_text(const struct findings *f, const char *want)
{
    struct hb_buf out = HB_BUF_INIT;

    findings_format(f, sections, &out);
    ck_assert_str_eq(hb_buf_data(&out), want);
    hb_buf_free(&out);
}

START_TEST(versions)
{
    static const char *const ascending[] = {
        "",   "1",    "1.0",  "1.0.1",    "1.2", "1.10", "2.4.0", "2.18.3",
        "10", "12.1", "12.4", "12.4-rc1", "a",   "b",    "b2.x2", "b2.x10"};
    enum { COUNT = sizeof(ascending) / sizeof(ascending[0]) };

    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++)
            ck_assert_int_eq(
                findings_version_compare(ascending[i], ascending[k]),
                (i > k) - (i < k));
    ck_assert_int_eq(findings_version_compare("1.02", "1.2"), 0);
    ck_assert_int_eq(findings_version_compare("00", "0"), 0);
    ck_assert_int_eq(findings_version_compare("99999999999999999999999",
                                              "100000000000000000000000"),
                     -1);
}
END_TEST

START_TEST(the_same_text_is_told_once)
{
    struct findings f = FINDINGS_INIT;

    findings_add(&f, FINDING_WRONG, "second", "n2", "repair it", "is %s",
                 "bad");
    findings_add(&f, FINDING_WRONG, "first", "n1", "", "worse");
    findings_add(&f, FINDING_WRONG, "second", "n1", "repair it", "is %s",
                 "bad");
    findings_add(&f, FINDING_NOTE, "second", "n1", "", "is bad");
    findings_add(&f, FINDING_OK, "second", NULL, "", "else fine");
    ck_assert_uint_eq(findings_wrong(&f, NULL), 2);
    ck_assert_uint_eq(findings_wrong(&f, "second"), 1);
    ck_assert_uint_eq(findings_wrong(&f, "third"), 0);
    check_text(&f, "WRONG first     n1: worse\n"
                   "ok    second    else fine\n"
                   "note  second    n1: is bad\n"
                   "WRONG second    n[1-2]: is bad\n"
                   "                fix: repair it\n");
    findings_free(&f);
    ck_assert_uint_eq(f.count, 0);
}
END_TEST

START_TEST(hostile_text_stays_a_line)
{
    struct findings f = FINDINGS_INIT;

    findings_add(&f, FINDING_WRONG, "first", "a", "", "x\ny\033[2J");
    check_text(&f, "WRONG first     a: x?y?[2J\n");
    findings_free(&f);
}
END_TEST

START_TEST(the_rare_value_is_the_odd_one)
{
    static const char *const hosts[] = {"n1", "n2", "n3", "n4"};
    static const char *const values[] = {"12.1", "12.1", "11.8", "12.1"};
    struct findings f = FINDINGS_INIT;

    ck_assert_int_eq(findings_compare(&f, FINDING_WRONG, "first", "CUDA",
                                      "install one", hosts, values, 4),
                     0);
    check_text(&f, "WRONG first     n3: CUDA is 11.8; on n[1-2,4] it is 12.1\n"
                   "                fix: install one\n");
    findings_free(&f);
}
END_TEST

START_TEST(of_two_as_common_the_newer_is_the_norm)
{
    static const char *const hosts[] = {"n1", "n2"};
    static const char *const values[] = {"2.4", "2.18"};
    struct findings f = FINDINGS_INIT;

    ck_assert_int_eq(findings_compare(&f, FINDING_WRONG, "first", "NCCL", "",
                                      hosts, values, 2),
                     0);
    check_text(&f, "WRONG first     n1: NCCL is 2.4; on n2 it is 2.18\n");
    findings_free(&f);
}
END_TEST

START_TEST(absent_on_some)
{
    static const char *const hosts[] = {"n1", "n2", "n3"};
    static const char *const values[] = {NULL, NULL, "4.1"};
    struct findings f = FINDINGS_INIT;

    ck_assert_int_eq(findings_compare(&f, FINDING_WRONG, "first", "MPI", "",
                                      hosts, values, 3),
                     0);
    check_text(&f, "WRONG first     n[1-2]: MPI is not there; on n3 it is "
                   "4.1\n");
    findings_free(&f);
}
END_TEST

START_TEST(agreement_and_absence_everywhere_are_fine)
{
    static const char *const hosts[] = {"n1", "n2"};
    static const char *const same[] = {"1", "1"};
    static const char *const none[] = {NULL, NULL};
    struct findings f = FINDINGS_INIT;

    ck_assert_int_eq(
        findings_compare(&f, FINDING_WRONG, "first", "X", "", hosts, same, 2),
        1);
    ck_assert_int_eq(
        findings_compare(&f, FINDING_WRONG, "first", "X", "", hosts, none, 2),
        1);
    ck_assert_int_eq(
        findings_compare(&f, FINDING_WRONG, "first", "X", "", hosts, same, 0),
        1);
    ck_assert_uint_eq(f.count, 0);
    findings_free(&f);
}
END_TEST

START_TEST(as_json)
{
    struct findings f = FINDINGS_INIT;
    json_t *list, *one;

    findings_add(&f, FINDING_OK, "first", NULL, "", "fine");
    findings_add(&f, FINDING_WRONG, "first", "n1", "do", "bad");
    list = findings_json(&f);
    ck_assert_uint_eq(json_array_size(list), 1);
    one = json_array_get(list, 0);
    ck_assert_str_eq(json_string_value(json_object_get(one, "kind")), "wrong");
    ck_assert_str_eq(json_string_value(json_object_get(one, "text")), "bad");
    ck_assert_str_eq(json_string_value(json_object_get(one, "fix")), "do");
    ck_assert_str_eq(
        json_string_value(json_array_get(json_object_get(one, "hosts"), 0)),
        "n1");
    json_decref(list);
    findings_free(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("findings");
    TCase *tc = tcase_create("findings");

    tcase_add_test(tc, versions);
    tcase_add_test(tc, the_same_text_is_told_once);
    tcase_add_test(tc, hostile_text_stays_a_line);
    tcase_add_test(tc, the_rare_value_is_the_odd_one);
    tcase_add_test(tc, of_two_as_common_the_newer_is_the_norm);
    tcase_add_test(tc, absent_on_some);
    tcase_add_test(tc, agreement_and_absence_everywhere_are_fine);
    tcase_add_test(tc, as_json);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
