/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/error.h: the first error is kept; context; one-line texts. */
#include "lib/base/error.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

START_TEST(test_set_fills_and_returns)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = hb_error_set(&err, HVD_ENOENT, "host %s: %d", "n1", 3);

    ck_assert_int_eq(rc, -HVD_ENOENT);
    ck_assert_int_eq(err.status, -HVD_ENOENT);
    ck_assert_str_eq(err.text, "host n1: 3");
    ck_assert_int_eq(err.sys_errno, 0);
    ck_assert_int_eq(err.rank, -1);
    ck_assert_str_eq(err.host, "");
}
END_TEST

START_TEST(test_first_error_wins)
{
    struct hb_error err = HB_ERROR_INIT;

    hb_error_set(&err, HVD_EPROTO, "first");
    ck_assert_int_eq(hb_error_set(&err, HVD_EINVAL, "second"), -HVD_EINVAL);
    ck_assert_int_eq(hb_error_sys(&err, EIO, "third"), -HVD_ESYSTEM);
    ck_assert_int_eq(err.status, -HVD_EPROTO);
    ck_assert_str_eq(err.text, "first");
    ck_assert_int_eq(err.sys_errno, 0);
    hb_error_clear(&err);
    ck_assert_int_eq(err.status, 0);
    ck_assert_int_eq(err.rank, -1);
    hb_error_set(&err, HVD_EINVAL, "second");
    ck_assert_str_eq(err.text, "second");
}
END_TEST

START_TEST(test_null_error)
{
    ck_assert_int_eq(hb_error_set(NULL, HVD_EPEER, "x"), -HVD_EPEER);
    ck_assert_int_eq(hb_error_sys(NULL, ENOMEM, "x"), -HVD_ENOMEM);
    ck_assert_int_eq(hb_error_context(NULL, "x"), -HVD_ESYSTEM);
}
END_TEST

START_TEST(test_context)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hb_error_context(&err, "x"), -HVD_ESYSTEM);
    ck_assert_str_eq(err.text, "");
    hb_error_set(&err, HVD_EINVAL, "cause");
    ck_assert_int_eq(hb_error_context(&err, "file %s", "f"), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "file f: cause");
    /* The error's own text may be an argument. */
    hb_error_context(&err, "%s", err.text);
    ck_assert_str_eq(err.text, "file f: cause: file f: cause");
}
END_TEST

START_TEST(test_first_stage_wins)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hb_error_stage(NULL, HB_STAGE_NAME), -HVD_ESYSTEM);
    ck_assert_int_eq(hb_error_stage(&err, HB_STAGE_NAME), -HVD_ESYSTEM);
    ck_assert_int_eq(err.stage, HB_STAGE_NONE);
    hb_error_set(&err, HVD_EPERM, "cause");
    ck_assert_int_eq(hb_error_stage(&err, HB_STAGE_LOGIN), -HVD_EPERM);
    hb_error_stage(&err, HB_STAGE_NAME);
    ck_assert_int_eq(err.stage, HB_STAGE_LOGIN);
}
END_TEST

START_TEST(test_control_bytes_become_marks)
{
    struct hb_error err = HB_ERROR_INIT;

    hb_error_set(&err, HVD_EINVAL,
                 "a\nb\tc\033[2Jd\x7f"
                 "e\xc2\x9b"
                 "f\r");
    ck_assert_str_eq(err.text, "a?b?c?[2Jd?e??f?");
    hb_error_context(&err, "x\ny");
    ck_assert_str_eq(err.text, "x?y: a?b?c?[2Jd?e??f?");
    hb_error_clear(&err);
    hb_error_set(&err, HVD_EINVAL, "gr\xc3\xbc\xc3\x9f");
    ck_assert_str_eq(err.text, "gr\xc3\xbc\xc3\x9f");
}
END_TEST

START_TEST(test_long_texts_are_cut)
{
    struct hb_error err = HB_ERROR_INIT;
    char text[2000];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    hb_error_set(&err, HVD_EINVAL, "%s", text);
    ck_assert_uint_eq(strlen(err.text), HB_ERROR_TEXT_MAX - 1);
    hb_error_context(&err, "context");
    ck_assert_uint_eq(strlen(err.text), HB_ERROR_TEXT_MAX - 1);
    ck_assert_int_eq(strncmp(err.text, "context: xxx", 12), 0);
    hb_error_context(&err, "%s", text);
    ck_assert_uint_eq(strlen(err.text), HB_ERROR_TEXT_MAX - 1);
    /* A character of several bytes is not cut. */
    hb_error_clear(&err);
    memcpy(text + HB_ERROR_TEXT_MAX - 2, "\xc3\xbc", 2);
    hb_error_set(&err, HVD_EINVAL, "%s", text);
    ck_assert_uint_eq(strlen(err.text), HB_ERROR_TEXT_MAX - 2);
}
END_TEST

START_TEST(test_sys_maps_and_names)
{
    static const struct {
        int e, status;
    } cases[] = {{ENOMEM, HVD_ENOMEM},
                 {ENOENT, HVD_ENOENT},
                 {EACCES, HVD_EPERM},
                 {EPERM, HVD_EPERM},
                 {EIO, HVD_ESYSTEM}};
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;
        char expected[256];

        ck_assert_int_eq(hb_error_sys(&err, cases[i].e, "open %s", "f"),
                         -cases[i].status);
        ck_assert_int_eq(err.status, -cases[i].status);
        ck_assert_int_eq(err.sys_errno, cases[i].e);
        snprintf(expected, sizeof(expected), "open f: %s",
                 strerror(cases[i].e));
        ck_assert_str_eq(err.text, expected);
    }
}
END_TEST

START_TEST(test_sys_keeps_the_cause_of_a_long_text)
{
    struct hb_error err = HB_ERROR_INIT;
    char path[1000];
    size_t len;

    memset(path, 'p', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    hb_error_sys(&err, EIO, "open %s", path);
    len = strlen(err.text);
    ck_assert_uint_lt(len, HB_ERROR_TEXT_MAX);
    ck_assert_str_eq(err.text + len - strlen(strerror(EIO)), strerror(EIO));
}
END_TEST

START_TEST(test_status_names)
{
    int i;

    ck_assert_str_eq(hb_status_name(HVD_EPEER), "HVD_EPEER");
    ck_assert_str_eq(hb_status_name(-HVD_EPEER), "HVD_EPEER");
    ck_assert_str_eq(hb_status_text(-HVD_EPEER), "a peer died");
    for (i = 0; i < HVD_STATUS_COUNT; i++) {
        ck_assert_int_eq(strncmp(hb_status_name(i), "HVD_", 4), 0);
        ck_assert_str_ne(hb_status_name(i), "HVD_UNKNOWN");
        ck_assert_str_ne(hb_status_text(-i), "unknown status");
    }
    ck_assert_str_eq(hb_status_name(HVD_STATUS_COUNT), "HVD_UNKNOWN");
    ck_assert_str_eq(hb_status_text(-12345), "unknown status");
    ck_assert_str_eq(hb_status_name(-2147483647 - 1), "HVD_UNKNOWN");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("error");
    TCase *c = tcase_create("error");

    tcase_add_test(c, test_set_fills_and_returns);
    tcase_add_test(c, test_first_error_wins);
    tcase_add_test(c, test_null_error);
    tcase_add_test(c, test_context);
    tcase_add_test(c, test_first_stage_wins);
    tcase_add_test(c, test_control_bytes_become_marks);
    tcase_add_test(c, test_long_texts_are_cut);
    tcase_add_test(c, test_sys_maps_and_names);
    tcase_add_test(c, test_sys_keeps_the_cause_of_a_long_text);
    tcase_add_test(c, test_status_names);
    suite_add_tcase(s, c);
    return unit_run(s);
}
