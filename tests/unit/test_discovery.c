/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/discovery/discovery: answers that are taken and refused, and hosts
 * that come and go. */
#include "lib/job/discovery/discovery.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct discovery d;
static struct hb_error err;

static void setup(void)
{
    discovery_init(&d, 3);
    hb_error_clear(&err);
}

static void teardown(void)
{
    discovery_fini(&d);
}

static int take(const char *text)
{
    return discovery_take(&d, "its output", text, strlen(text), &err);
}

static void expect(const char *want)
{
    char have[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < d.hosts.count; i++)
        used += (size_t)snprintf(have + used, sizeof(have) - used, "%s%s:%d",
                                 i ? " " : "", d.hosts.entries[i].name,
                                 d.hosts.entries[i].slots);
    ck_assert_str_eq(have, want);
}

START_TEST(forms)
{
    ck_assert_int_eq(take("b:2\n\n# a comment\na\nc slots=4\r\n"), 1);
    expect("b:2 a:3 c:4");
    ck_assert_int_eq(discovery_slots(&d), 9);
    ck_assert_int_eq(take("b:2\na\nc:4"), 0);
    ck_assert_int_eq(take("b:2\na\nc:5"), 1); /* more slots, at once */
    expect("b:2 a:3 c:5");
    ck_assert_int_eq(take("a\nb:2\nc:5"), 1); /* another order */
    expect("a:3 b:2 c:5");
}
END_TEST

START_TEST(hosts_go_when_missing_twice)
{
    take("a:1\nb:1");
    ck_assert_int_eq(take("b:1"), 1);
    expect("b:1 a:1");
    ck_assert_int_eq(take("a:1\nb:1"), 1); /* it flaps */
    take("b:1");
    ck_assert_int_eq(take("b:1"), 1);
    expect("b:1");
    ck_assert_int_eq(take(" # none\n"), 0);
    expect("b:1");
    ck_assert_int_eq(take(""), 1);
    expect("");
    ck_assert_int_eq(take("\n"), 0);
    ck_assert_int_eq(take("c"), 1);
    expect("c:3");
}
END_TEST

/* Nothing of a refused answer counts, and it is no answer without a host. */
START_TEST(refused)
{
    static const struct {
        const char *answer, *why;
    } bad[] = {
        {"a:1\nb:b:c\n", "its output:2:"}, {"a:65537\n", "its output:1:"},
        {"a:-1\n", "its output:1:"},       {"<html>\n", "its output:1:"},
        {"a slots=x", "its output:1:"},    {"a b c", "its output:1:"},
    };

    take("n:1\nm:1");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        hb_error_clear(&err);
        ck_assert_int_eq(take(bad[i].answer), -HVD_EINVAL);
        ck_assert_msg(strstr(err.text, bad[i].why) == err.text, "%s: %s",
                      bad[i].answer, err.text);
        expect("n:1 m:1");
    }
    take("n:1");
    take("garbage:x");
    expect("n:1 m:1");
    take("n:1");
    expect("n:1");
}
END_TEST

START_TEST(zero_bytes_are_refused)
{
    ck_assert_int_lt(discovery_take(&d, "x", "a\0b", 3, &err), 0);
    ck_assert_int_lt(discovery_take(&d, "x", "\0", 1, &err), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("discovery");
    TCase *t = tcase_create("discovery");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, forms);
    tcase_add_test(t, hosts_go_when_missing_twice);
    tcase_add_test(t, refused);
    tcase_add_test(t, zero_bytes_are_refused);
    suite_add_tcase(suite, t);
    return unit_run(suite);
}
