/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/text.h: cleaning and cutting text, nearest names. */
#include "lib/base/text.h"
#include "tests/unit/unit.h"

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
        int control = i < 0x20 || i == 0x7f;

        ck_assert_int_eq(s[i - 1], control ? '?' : (char)i);
    }
}
END_TEST

START_TEST(test_sanitize_c1_controls)
{
    char s[] = "a\xc2\x80"
               "b\xc2\x9f"
               "c\xc2\xa0"
               "d\xc2";

    hb_text_sanitize(s);
    ck_assert_str_eq(s, "a??b??c\xc2\xa0"
                        "d\xc2");
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
        /* never was UTF-8: stays */
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

START_TEST(test_make_utf8)
{
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x80 \xff", "? ?"},
        {"\xc3", "?"},
        {"\xe2\x82", "??"},
        {"\xc0\xaf", "??"},
        {"\xed\xa0\x80", "???"},
        {"\xf4\x90\x80\x80", "????"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char s[32];

        strcpy(s, cases[i][0]);
        hb_text_make_utf8(s);
        ck_assert_str_eq(s, cases[i][1]);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *c = tcase_create("text");

    tcase_add_test(c, test_make_utf8);
    tcase_add_test(c, test_sanitize_every_byte);
    tcase_add_test(c, test_sanitize_c1_controls);
    tcase_add_test(c, test_trim_cut);
    tcase_add_test(c, test_nearest);
    suite_add_tcase(s, c);
    return unit_run(s);
}
