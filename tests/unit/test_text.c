/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/text.h: sanitizing and shortening text, nearest names. */
#include "lib/base/text.h"
#include "tests/unit/unit.h"

#include <limits.h>
#include <signal.h>
#include <string.h>

START_TEST(test_sanitize_every_byte)
{
    char s[256];
    int i;

    for (i = 1; i < 256; i++)
        s[i - 1] = (char)i;
    s[255] = '\0';
    hb_text_sanitize(s);
    ck_assert_uint_eq(strlen(s), 255);
    for (i = 1; i < 256; i++) {
        int shown = i >= 0x20 && i < 0x7f;

        ck_assert_int_eq(s[i - 1], shown ? i : '?');
    }
}
END_TEST

START_TEST(test_sanitize)
{
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        /* not UTF-8: 8-bit CSI, truncated, overlong, surrogate, too large */
        {"\x9b"
         "31m",
         "?31m"},
        {"\x80 \xff", "? ?"},
        {"\xc3", "?"},
        {"\xe2\x82", "??"},
        {"\xc0\xaf", "??"},
        {"\xed\xa0\x80", "???"},
        {"\xf4\x90\x80\x80", "????"},
        /* C1 controls, and their neighbours */
        {"a\xc2\x80z\xc2\x9fz\xc2\xa0", "a??z??z\xc2\xa0"},
        /* bidirectional controls and separators, with their neighbours */
        {"\xd8\x9b\xd8\x9c\xd8\x9d", "\xd8\x9b??\xd8\x9d"},
        {"\xe2\x80\x8d\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x90",
         "\xe2\x80\x8d??????\xe2\x80\x90"},
        {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf",
         "\xe2\x80\xa7?????????\xe2\x80\xaf"},
        {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa",
         "\xe2\x81\xa5??????\xe2\x81\xaa"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char s[64];

        strcpy(s, cases[i][0]);
        hb_text_sanitize(s);
        ck_assert_str_eq(s, cases[i][1]);
    }
}
END_TEST

START_TEST(test_trim_cut)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc3\xbc", "\xc3\xbc"},
        {"x\xc3", "x"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"x\xe2\x82", "x"},
        {"x\xe2", "x"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"x\xf0\x9f\x98", "x"},
        {"\xf0", ""},
        /* not UTF-8 before either: unchanged */
        {"\x80\x80\x80\x80\x80", "\x80\x80\x80\x80\x80"},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char s[16];

        strcpy(s, cases[i].before);
        hb_text_trim_cut(s);
        ck_assert_str_eq(s, cases[i].after);
    }
}
END_TEST

START_TEST(test_nearest)
{
    static const char *const names[] = {"slots", "max_slots", "port", "user"};
    static const struct {
        const char *given, *expected;
    } cases[] = {
        {"slot", "slots"},   {"SLOTS", "slots"},
        {"solts", "slots"},  {"maxslots", "max_slots"},
        {"prot", "port"},    {"usr", "user"},
        {"bandwidth", NULL}, {"x", NULL},
        {"", NULL},          {"zz", NULL},
    };
    char longest[200];
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = hb_text_nearest(cases[i].given, names, 4);

        if (cases[i].expected)
            ck_assert_str_eq(got, cases[i].expected);
        else
            ck_assert_ptr_null(got);
    }
    memset(longest, 's', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    ck_assert_ptr_null(hb_text_nearest(longest, names, 4));
    ck_assert_ptr_null(hb_text_nearest("slots", names, 0));
}
END_TEST

START_TEST(test_signal_names)
{
    char text[HB_SIGNAL_NAME_MAX];

    ck_assert_str_eq(hb_signal_name(15, text), "SIGTERM");
    ck_assert_str_eq(hb_signal_name(SIGRTMIN + 6, text), "SIGRTMIN+6");
    ck_assert_str_eq(hb_signal_name(200, text), "signal 200");
    ck_assert_str_eq(hb_signal_name(INT_MIN, text), "signal -2147483648");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *c = tcase_create("text");

    tcase_add_test(c, test_sanitize_every_byte);
    tcase_add_test(c, test_sanitize);
    tcase_add_test(c, test_trim_cut);
    tcase_add_test(c, test_nearest);
    tcase_add_test(c, test_signal_names);
    suite_add_tcase(s, c);
    return unit_run(s);
}
