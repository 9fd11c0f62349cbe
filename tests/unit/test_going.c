/* SPDX-License-Identifier: Apache-2.0 */
/* lib/hosts/going: every form of a line, and what is refused. */
#include "lib/hosts/going.h"
#include "tests/unit/unit.h"

#include "lib/base/alloc.h"

#include <string.h>

static struct going *list;
static size_t count;
static struct hb_error err;

static int parse(const char *text, size_t len)
{
    list = NULL;
    count = 0;
    hb_error_clear(&err);
    return going_parse(text, len, &list, &count, &err);
}

START_TEST(forms)
{
    static const char text[] = "# comment\n"
                               "\n"
                               "n2 120\n"
                               " n3\t# soon\n"
                               "n4 1.5 \r\n"
                               "n5 2m#\n"
                               "n6 0";
    static const struct {
        const char *host;
        int64_t left_ms;
    } want[] = {
        {"n2", 120000}, {"n3", -1}, {"n4", 1500}, {"n5", 120000}, {"n6", 0}};

    ck_assert_int_eq(parse(text, strlen(text)), 0);
    ck_assert_uint_eq(count, sizeof(want) / sizeof(want[0]));
    for (size_t i = 0; i < count; i++) {
        ck_assert_str_eq(list[i].host, want[i].host);
        ck_assert_int_eq(list[i].left_ms, want[i].left_ms);
    }
    hb_free(list);
    ck_assert_int_eq(parse("", 0), 0);
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(many)
{
    size_t len = (size_t)GOING_BYTES_MAX;
    char *text = hb_xmalloc(len + 1);

    for (size_t i = 0; i <= len; i++)
        text[i] = i % 2 ? '\n' : 'n';
    ck_assert_int_eq(parse(text, len), 0);
    ck_assert_uint_eq(count, len / 2);
    hb_free(list);
    ck_assert_int_eq(parse(text, len + 1), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "longer than 65536 bytes");
    hb_free(text);
}
END_TEST

START_TEST(refusals)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"n1\nn2 1 2\n", "line 2: more than a host and its seconds"},
        {"n1 soon", "line 1: 'soon' is no time from 0 to 86400 seconds"},
        {"n1 -1", "line 1: '-1' is no time from 0 to 86400 seconds"},
        {"n1 86401", "line 1: '86401' is no time from 0 to 86400 seconds"},
    };
    char longest[GOING_LINE_MAX];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(parse(cases[i].text, strlen(cases[i].text)),
                         -HVD_EINVAL);
        ck_assert_str_eq(err.text, cases[i].want);
        ck_assert_ptr_null(list);
    }
    ck_assert_int_eq(parse("n1\0 5", 5), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "line 1: too long, or with a 0 byte");
    memset(longest, 'n', sizeof(longest));
    ck_assert_int_eq(parse(longest, sizeof(longest)), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "line 1: too long, or with a 0 byte");
    ck_assert_int_eq(parse(longest, sizeof(longest) - 1), 0);
    ck_assert_uint_eq(strlen(list[0].host), sizeof(longest) - 1);
    hb_free(list);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("going");
    TCase *t = tcase_create("going");

    tcase_add_test(t, forms);
    tcase_add_test(t, many);
    tcase_add_test(t, refusals);
    suite_add_tcase(s, t);
    return unit_run(s);
}
