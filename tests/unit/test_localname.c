/* SPDX-License-Identifier: Apache-2.0 */
/* lib/transport/localname.h: which names mean this machine. */
#include "lib/transport/localname.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <string.h>

START_TEST(names)
{
    ck_assert_int_eq(transport_name_is_local("localhost", "n1"), 1);
    ck_assert_int_eq(transport_name_is_local("n1", "n1"), 1);
    ck_assert_int_eq(transport_name_is_local("N1", "n1.cluster"), 1);
    ck_assert_int_eq(transport_name_is_local("n2", "n1"), 0);
    ck_assert_int_eq(transport_name_is_local("", "n1"), 0);
}
END_TEST

START_TEST(loopback)
{
    ck_assert_int_eq(transport_name_is_local("127.0.0.1", "n1"), 1);
    ck_assert_int_eq(transport_name_is_local("127.1.2.3", "n1"), 1);
    ck_assert_int_eq(transport_name_is_local("::1", "n1"), 1);
}
END_TEST

/* TEST-NET-1 and the documentation prefix: no machine has them. */
START_TEST(addresses_of_others)
{
    static const char *const others[] = {
        "192.0.2.1",      "2001:db8::1", "2001:db8::1%eth0", "192.0.2",
        "192.0.2.1.1",    "256.0.0.1",   "[::1]:80",         "%eth0",
        "2001:db8::1::2", ":",
    };
    char longest[300];

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_msg(transport_name_is_local(others[i], "n1") == 0, "%s",
                      others[i]);
    for (size_t i = 0; i < sizeof(longest); i++)
        longest[i] = i + 1 < sizeof(longest) ? '1' : '\0';
    ck_assert_int_eq(transport_name_is_local(longest, "n1"), 0);
}
END_TEST

/* All addresses that this machine has. */
START_TEST(addresses_of_interfaces)
{
    struct ifaddrs *list, *i;
    char text[INET6_ADDRSTRLEN + 8];

    ck_assert_int_eq(getifaddrs(&list), 0);
    for (i = list; i; i = i->ifa_next) {
        const void *bytes;
        int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;

        if (family == AF_INET)
            bytes = &((const struct sockaddr_in *)(const void *)i->ifa_addr)
                         ->sin_addr;
        else if (family == AF_INET6)
            bytes = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)
                         ->sin6_addr;
        else
            continue;
        ck_assert_ptr_nonnull(inet_ntop(family, bytes, text, sizeof(text)));
        ck_assert_msg(transport_name_is_local(text, "n1") == 1, "%s", text);
        if (family == AF_INET6) {
            strcat(text, "%eth7");
            ck_assert_int_eq(transport_name_is_local(text, "n1"), 1);
        }
    }
    freeifaddrs(list);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("localname");
    TCase *t = tcase_create("localname");

    tcase_add_test(t, names);
    tcase_add_test(t, loopback);
    tcase_add_test(t, addresses_of_others);
    tcase_add_test(t, addresses_of_interfaces);
    suite_add_tcase(s, t);
    return unit_run(s);
}
