/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/sys/netaddr.h */
#include "lib/base/hvd_status.h"
#include "lib/base/sys/netaddr.h"
#include "tests/unit/unit.h"

#include <netinet/in.h>
#include <sys/un.h>

static struct hb_netaddr parsed(const char *s)
{
    struct hb_netaddr a;

    ck_assert_msg(hb_netaddr_parse(s, &a) == 0, "%s", s);
    return a;
}

START_TEST(test_there_and_back)
{
    static const char *const texts[] = {
        "0.0.0.0",
        "10.1.2.3",
        "255.255.255.255",
        "::",
        "::1",
        "fd00:1::ffff:2",
        "2001:db8:1111:2222:3333:4444:5555:6666",
        "::ffff:10.0.0.1"};
    char text[HB_NETADDR_TEXT_MAX];

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct sockaddr_storage sa;
        struct hb_netaddr a = parsed(texts[i]), b;

        ck_assert_str_eq(hb_netaddr_format(&a, text), texts[i]);
        ck_assert_uint_gt(hb_netaddr_to_sockaddr(&a, 4711, &sa), 0);
        ck_assert_int_eq(
            hb_netaddr_from_sockaddr((const struct sockaddr *)&sa, &b), 0);
        ck_assert(hb_netaddr_equal(&a, &b));
    }
}
END_TEST

START_TEST(test_refusals)
{
    static const char *const bad[] = {
        "",          "10",       "10.0.0",   "10.0.0.256", "10.0.0.1/8",
        " 10.0.0.1", "n1",       ":",        ":::",        "fe80::1%eth0",
        "[::1]",     "1:2:3::g", "10.0.0.1 "};
    struct hb_netaddr a = {.family = 9};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(hb_netaddr_parse(bad[i], &a) == -HVD_EINVAL, "%s",
                      bad[i]);
    ck_assert_int_eq(a.family, 9);
}
END_TEST

START_TEST(test_none)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_storage sa;
    struct hb_netaddr none = {0}, a;
    char text[HB_NETADDR_TEXT_MAX] = "x";

    ck_assert_str_eq(hb_netaddr_format(&none, text), "");
    ck_assert_int_eq(hb_netaddr_bits(&none), 0);
    ck_assert_uint_eq(hb_netaddr_to_sockaddr(&none, 1, &sa), 0);
    ck_assert_int_eq(
        hb_netaddr_from_sockaddr((const struct sockaddr *)&local, &a),
        -HVD_EINVAL);
}
END_TEST

START_TEST(test_networks)
{
    static const struct {
        const char *a, *b;
        int prefix, same;
    } cases[] = {
        {"10.1.2.3", "10.1.2.4", 24, 1}, {"10.1.2.3", "10.1.3.3", 24, 0},
        {"10.1.2.3", "10.1.3.3", 23, 1}, {"10.1.2.127", "10.1.2.128", 25, 0},
        {"10.1.2.3", "10.1.2.3", 32, 1}, {"10.1.2.3", "10.1.2.2", 32, 0},
        {"10.1.2.3", "11.9.9.9", 0, 1},  {"10.1.2.3", "10.1.2.3", 33, 0},
        {"10.1.2.3", "10.1.2.3", -1, 0}, {"10.1.2.3", "::ffff:a01:203", 0, 0},
        {"fd00::1", "fd00::2", 64, 1},   {"fd00::1", "fd00:0:0:1::1", 64, 0},
        {"fd00::1", "fd00::1", 128, 1},  {"fd00::1", "fd00::3", 127, 0},
        {"fd00::2", "fd00::3", 127, 1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_netaddr a = parsed(cases[i].a), b = parsed(cases[i].b);

        ck_assert_msg(hb_netaddr_same_net(&a, &b, cases[i].prefix) ==
                          cases[i].same,
                      "%s %s /%d", cases[i].a, cases[i].b, cases[i].prefix);
    }
}
END_TEST

START_TEST(test_kinds)
{
    struct hb_netaddr a = parsed("127.3.2.1"), b = parsed("::1"),
                      c = parsed("fe80::1"), d = parsed("febf::1"),
                      e = parsed("fec0::1"), f = parsed("126.0.0.1");

    ck_assert(hb_netaddr_is_loopback(&a) && hb_netaddr_is_loopback(&b));
    ck_assert(!hb_netaddr_is_loopback(&c) && !hb_netaddr_is_loopback(&f));
    ck_assert(hb_netaddr_is_link_local6(&c) && hb_netaddr_is_link_local6(&d));
    ck_assert(!hb_netaddr_is_link_local6(&e) && !hb_netaddr_is_link_local6(&a));
    ck_assert_int_eq(hb_netaddr_bits(&a), 32);
    ck_assert_int_eq(hb_netaddr_bits(&b), 128);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("netaddr");
    TCase *c = tcase_create("netaddr");

    tcase_add_test(c, test_there_and_back);
    tcase_add_test(c, test_refusals);
    tcase_add_test(c, test_none);
    tcase_add_test(c, test_networks);
    tcase_add_test(c, test_kinds);
    suite_add_tcase(s, c);
    return unit_run(s);
}
