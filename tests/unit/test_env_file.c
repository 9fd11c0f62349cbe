/* SPDX-License-Identifier: Apache-2.0 */
/* --env-file: the form of a line, and errors with its number. */
#include "cmd/hvdrun/options/env_file.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hb_strv got = HB_STRV_INIT;
static struct hb_error err;

static void setup(void)
{
    hb_error_clear(&err);
}

static void teardown(void)
{
    hb_strv_free(&got);
}

static int parse(const char *text, size_t len)
{
    hb_strv_free(&got);
    hb_error_clear(&err);
    return env_file_parse("f", text, len, &got, &err);
}

static const struct {
    const char *line, *item;
} lines[] = {
    {"A=1", "A=1"},
    {"A=", "A="},
    {"  A=1  \t\r", "A=1"},
    {"A= spaces around ", "A=spaces around"},
    {"A=a=b", "A=a=b"},
    {"A=a # b", "A=a # b"},
    {"A=http://x/#y", "A=http://x/#y"},
    {"export A=1", "A=1"},
    {"export=1", "export=1"},
    {"a.b-c=1", "a.b-c=1"},
    {"A='$HOME \\n \"'", "A=$HOME \\n \""},
    {"A=\"a\\n\\t\\\"\\\\\\$\\`'\"", "A=a\n\t\"\\$`'"},
    {"A=''", "A="},
    {"A='x' # comment", "A=x"},
    {"A=\"#x\"", "A=#x"},
    {"A=it's", "A=it's"},
    {"A=\xc3\xa9\xff", "A=\xc3\xa9\xff"},
};

START_TEST(a_line)
{
    ck_assert_int_eq(parse(lines[_i].line, strlen(lines[_i].line)), 0);
    ck_assert_uint_eq(got.count, 1);
    ck_assert_str_eq(got.items[0], lines[_i].item);
}
END_TEST

START_TEST(several_lines)
{
    static const char text[] = "\n# comment\n  # another\nA=1\r\n\nB=2\nA=3";

    ck_assert_int_eq(parse(text, sizeof(text) - 1), 0);
    ck_assert_uint_eq(got.count, 3);
    ck_assert_str_eq(got.items[0], "A=1");
    ck_assert_str_eq(got.items[1], "B=2");
    ck_assert_str_eq(got.items[2], "A=3");
    ck_assert_int_eq(parse("", 0), 0);
    ck_assert_uint_eq(got.count, 0);
}
END_TEST

static const struct {
    const char *text, *message;
} wrong[] = {
    {"A=1\nB\n", "f:2: expected NAME=VALUE"},
    {"export A\n", "f:1: expected NAME=VALUE"},
    {"=1\n", "f:1: no variable can have this name"},
    {"A B=1\n", "f:1: no variable can have this name"},
    {"\n\nA='x\n'\n", "f:3: the quote is not closed on this line"},
    {"A=\"x\\\"\n", "f:1: the quote is not closed on this line"},
    {"A='x'y\n", "f:1: text after the closing quote"},
    {"A=\"\\x\"\n", "f:1: \\ in double quotes stands only before "
                    "n t \" \\ $ `; write \\\\"},
    {"A=\"\\", "f:1: \\ in double quotes stands only before "
               "n t \" \\ $ `; write \\\\"},
};

START_TEST(mistakes_have_their_line)
{
    ck_assert_int_eq(parse(wrong[_i].text, strlen(wrong[_i].text)),
                     -HVD_EINVAL);
    ck_assert_str_eq(err.text, wrong[_i].message);
}
END_TEST

START_TEST(zero_bytes)
{
    ck_assert_int_lt(parse("A=1\nB=\0\n", 8), 0);
    ck_assert_str_eq(err.text, "f:2: a zero byte; is this a text file?");
}
END_TEST

START_TEST(a_long_value_is_kept)
{
    size_t len = 200000;
    char *text = malloc(len + 3);

    memset(text, 'v', len + 2);
    memcpy(text, "A=", 2);
    ck_assert_int_eq(parse(text, len + 2), 0);
    ck_assert_uint_eq(strlen(got.items[0]), len + 2);
    free(text);
}
END_TEST

START_TEST(a_file)
{
    char path[] = "/tmp/test_env_file.XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "A=1\nB='2'\n", 10), 10);
    close(fd);
    ck_assert_int_eq(env_file_read(path, &got, &err), 0);
    ck_assert_uint_eq(got.count, 2);
    ck_assert_str_eq(got.items[1], "B=2");
    unlink(path);
    ck_assert_int_eq(env_file_read(path, &got, &err), -HVD_ENOENT);
    hb_error_clear(&err);
    ck_assert_int_lt(env_file_read("/tmp", &got, &err), 0);
    ck_assert_str_eq(err.text, "/tmp: is a directory");
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
    Suite *s = suite_create("env_file");
    TCase *t = tcase_create("env_file");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_line, 0, COUNT(lines));
    tcase_add_test(t, several_lines);
    tcase_add_loop_test(t, mistakes_have_their_line, 0, COUNT(wrong));
    tcase_add_test(t, zero_bytes);
    tcase_add_test(t, a_long_value_is_kept);
    tcase_add_test(t, a_file);
    suite_add_tcase(s, t);
    return unit_run(s);
}
