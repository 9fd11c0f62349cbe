/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/route/interfaces.h: made-up /sys trees, and this machine's own. */
#include "lib/agent/route/interfaces.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct fixture fixture;

static void file(const char *path, const char *text)
{
    fixture_file(&fixture, path, text);
}

START_TEST(test_speed)
{
    fixture_open(&fixture);
    file("sys/class/net/eth0/speed", "25000\n");
    file("sys/class/net/eth1/speed", "-1\n");
    file("sys/class/net/eth2/speed", "fast\n");
    file("sys/class/net/eth3/speed", "");
    file("sys/class/net/eth4/speed", "99999999999999999999\n");
    ck_assert_int_eq(interfaces_speed(fixture.root, "eth0"), 25000);
    ck_assert_int_eq(interfaces_speed(fixture.root, "eth1"), 0);
    ck_assert_int_eq(interfaces_speed(fixture.root, "eth2"), 0);
    ck_assert_int_eq(interfaces_speed(fixture.root, "eth3"), 0);
    ck_assert_int_eq(interfaces_speed(fixture.root, "eth4"), 0);
    ck_assert_int_eq(interfaces_speed(fixture.root, "nosuch"), 0);
    fixture_close(&fixture);
}
END_TEST

START_TEST(test_virtual)
{
    fixture_open(&fixture);
    file("sys/class/net/eth0/device/vendor", "0x15b3\n");
    file("sys/class/net/docker0/bridge/x", "");
    file("sys/class/net/docker0/lower_veth1/x", "");
    file("sys/class/net/veth1/speed", "10000\n");
    file("sys/class/net/bond0/lower_eth0/x", "");
    file("sys/class/net/bond0.7/lower_bond0/x", "");
    file("sys/class/net/br0/lower_veth1/x", "");
    file("sys/class/net/br0/lower_bond0.7/x", "");
    file("sys/class/net/loop/lower_loop/x", "");
    ck_assert(!interfaces_virtual(fixture.root, "eth0"));
    ck_assert(interfaces_virtual(fixture.root, "veth1"));
    ck_assert(interfaces_virtual(fixture.root, "docker0"));
    ck_assert(!interfaces_virtual(fixture.root, "bond0"));
    ck_assert(!interfaces_virtual(fixture.root, "bond0.7"));
    ck_assert(!interfaces_virtual(fixture.root, "br0"));
    ck_assert(interfaces_virtual(fixture.root, "loop"));
    ck_assert(interfaces_virtual(fixture.root, "nosuch"));
    fixture_close(&fixture);
}
END_TEST

START_TEST(test_list)
{
    struct control_interfaces list;
    int loopbacks = 0;

    interfaces_read("", &list);
    ck_assert_int_le(list.count, CONTROL_INTERFACES_MAX);
    for (int i = 0; i < list.count; i++) {
        const struct control_interface *one = &list.items[i];
        int loopback = hb_netaddr_is_loopback(&one->address);

        ck_assert_str_ne(one->name, "");
        ck_assert(!hb_netaddr_is_link_local6(&one->address));
        ck_assert_int_le(one->prefix, hb_netaddr_bits(&one->address));
        if (loopback) {
            ck_assert(one->flags & CONTROL_INTERFACE_LOOPBACK);
            ck_assert_int_gt(one->prefix, 0);
            ck_assert_int_gt(one->index, 0);
        }
        loopbacks += loopback;
    }
    ck_assert_int_gt(loopbacks, 0);
    control_interfaces_fini(&list);
}
END_TEST

START_TEST(test_machine)
{
    char *one = interfaces_machine(""), *again = interfaces_machine(""),
         *none = interfaces_machine("/nonexistent"),
         *spaces = interfaces_namespaces(""),
         *no_spaces = interfaces_namespaces("/nonexistent");

    ck_assert_str_eq(one, again);
    ck_assert_str_eq(none, "");
    ck_assert_ptr_nonnull(strchr(spaces, '/'));
    ck_assert_str_eq(no_spaces, "");
    hb_free(spaces);
    hb_free(no_spaces);
    hb_free(one);
    hb_free(again);
    hb_free(none);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("interfaces");
    TCase *c = tcase_create("interfaces");

    tcase_add_unchecked_fixture(c, fixtures_setup, fixtures_teardown);
    tcase_add_test(c, test_speed);
    tcase_add_test(c, test_virtual);
    tcase_add_test(c, test_list);
    tcase_add_test(c, test_machine);
    suite_add_tcase(s, c);
    return unit_run(s);
}
