/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/tty_text: what reaches a terminal, fed whole or in bytes. */
#include "lib/job/output/tty_text.h"
#include "tests/unit/unit.h"

#include <string.h>

static const char *const cases[][2] = {
    {"plain\ttext\r\nand more\n", "plain\ttext\r\nand more\n"},
    {"\033[31mred\033[0m \033[38:5:1;4mx\033[m",
     "\033[31mred\033[0m \033[38:5:1;4mx\033[m"},
    {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xa0",
     "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xa0"},
    /* inside a character, a byte that alone would be a C1 control */
    {"\xc3\x9b \xe2\x82\x9b", "\xc3\x9b \xe2\x82\x9b"},
    /* sequences that move the cursor, erase or change settings */
    {"a\033[1G\033[2Kb", "ab"},
    {"a\033[1;1Hb\033Ec\033Md\033ce\0337f", "abcdef"},
    {"a\033(0b\033#8c", "abc"},
    {"a\033[?1049hb\033[>4;2mc\033[4 qd", "abcd"},
    {"a\b\v\f\a\016\017\177b", "ab"},
    {"a\xc2\x85"
     "b\xc2\x9b"
     "Gc\x9bGd\x84"
     "e",
     "abGcGde"},
    /* overlong forms of U+009B; a surrogate; beyond the last character */
    {"a\xe0\x82\x9bGb", "a\xe0Gb"},
    {"a\xf0\x80\x82\x9bGb", "a\xf0Gb"},
    {"a\xed\xa0\x9bGb", "a\xed\xa0Gb"},
    {"a\xf4\x90\x9b\x9bGb\xf8\x9bGc", "a\xf4Gb\xf8Gc"},
    {"\xe0\xa0\x9b\xed\x9f\x9b\xf0\x90\x9b\x9b\xf4\x8f\x9b\x9b",
     "\xe0\xa0\x9b\xed\x9f\x9b\xf0\x90\x9b\x9b\xf4\x8f\x9b\x9b"},
    {"a\033]0;title\007b\033]8;;x\033\\c\033Pq\033\\d", "abcd"},
    {"a\033]0;x\033[1Gb", "ab"},
    {"a\033\033[1Gb\033[\033[1Gc", "abc"},
    /* too long for a colour sequence */
    {"a\033[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1mb", "ab"},
    {"a\033[0;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1mb",
     "a\033[0;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1mb"},
    /* a sequence ends with its line */
    {"a\033[\nb\033]0;\rc\xc2\nd", "a\nb\rc\nd"},
};

START_TEST(what_passes)
{
    struct hb_buf out = HB_BUF_INIT;
    struct tty_text t = {0};

    tty_text_filter(&t, cases[_i][0], strlen(cases[_i][0]), &out);
    ck_assert_str_eq(hb_buf_data(&out), cases[_i][1]);
    hb_buf_free(&out);
}
END_TEST

START_TEST(in_any_pieces)
{
    struct hb_buf out = HB_BUF_INIT;
    struct tty_text t = {0};

    for (const char *p = cases[_i][0]; *p; p++)
        tty_text_filter(&t, p, 1, &out);
    ck_assert_str_eq(hb_buf_data(&out), cases[_i][1]);
    hb_buf_free(&out);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tty_text");
    TCase *tc = tcase_create("tty_text");
    int count = (int)(sizeof(cases) / sizeof(cases[0]));

    tcase_add_loop_test(tc, what_passes, 0, count);
    tcase_add_loop_test(tc, in_any_pieces, 0, count);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
