/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/route/route_filter.h */
#include "lib/job/route/route_filter.h"
#include "tests/unit/unit.h"

#include <string.h>

static int passes(const char *list, const char *name, const char *address)
{
    struct control_interface i = {.name = (char *)(uintptr_t)name};
    struct hb_error err = HB_ERROR_INIT;
    struct route_filter f;
    int rc;

    ck_assert_int_eq(hb_netaddr_parse(address, &i.address), 0);
    ck_assert_msg(route_filter_parse(list, &f, &err) == 0, "%s", err.text);
    rc = route_filter_match(&f, &i);
    route_filter_fini(&f);
    return rc;
}

START_TEST(test_match)
{
    ck_assert(passes(NULL, "eth0", "10.0.0.1"));
    ck_assert(passes("eth0", "eth0", "10.0.0.1"));
    ck_assert(passes("eth0", "eth0:1", "10.0.0.1"));
    ck_assert(!passes("eth0", "eth01", "10.0.0.1"));
    ck_assert(!passes("eth0", "eth", "10.0.0.1"));
    ck_assert(passes("ib0,eth1,eth0", "eth0", "10.0.0.1"));
    ck_assert(passes("10.0.0.0/24", "x", "10.0.0.1"));
    ck_assert(passes("10.0.0.77/24", "x", "10.0.0.1"));
    ck_assert(!passes("10.0.0.0/24", "x", "10.0.1.1"));
    ck_assert(!passes("10.0.0.0/24", "x", "fd00::1"));
    ck_assert(passes("nosuch,fd00::/8", "x", "fd12::1"));
    ck_assert(passes("0.0.0.0/0", "x", "192.168.1.1"));
    ck_assert(passes("10.0.0.1", "x", "10.0.0.1"));
    ck_assert(!passes("10.0.0.1", "x", "10.0.0.2"));
    ck_assert(passes("::1", "lo", "::1"));
}
END_TEST

START_TEST(test_refusals)
{
    static const struct {
        const char *list, *text;
    } cases[] = {
        {"10.0.0.0/99", "'10.0.0.0/99' is not a network"},
        {"eth0,10.0.0/24", "'10.0.0/24' is not a network"},
        {"10.0.0.0/", "'10.0.0.0/' is not a network"},
        {"10.0.0.0/-1", "'10.0.0.0/-1' is not a network"},
        {"10.0.0.0/2 ", "'10.0.0.0/2 ' is not a network"},
        {"10.0.0.0/99999999999999999999", "is not a network"},
        {"fd00::/129", "'fd00::/129' is not a network"},
        {"eth0/8", "'eth0/8' is not a network"},
        {"", "an item is empty"},
        {"eth0,,eth1", "an item is empty"},
        {"eth0,", "an item is empty"},
        {"eth 0", "'eth 0' is neither the name of an interface nor"},
        {"averyverylongname", "is neither the name of an interface nor"},
        {"fd00::zz", "'fd00::zz' is neither the name of an interface nor"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;
        struct route_filter f;

        ck_assert_int_eq(route_filter_parse(cases[i].list, &f, &err),
                         -HVD_EINVAL);
        ck_assert_msg(strncmp(err.text, "--network-interfaces: ", 22) == 0 &&
                          strstr(err.text, cases[i].text),
                      "%s", err.text);
        ck_assert_int_eq(f.count, 0);
        ck_assert_ptr_null(f.items);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("route_filter");
    TCase *c = tcase_create("route_filter");

    tcase_add_test(c, test_match);
    tcase_add_test(c, test_refusals);
    suite_add_tcase(s, c);
    return unit_run(s);
}
