/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/route/route_choice.h on made-up clusters.  Hosts' networks are
 * written as "name address/prefix speed [v]"; a rule of the test says what can
 * be reached.
 */
#include "lib/job/route/route_choice.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { HOSTS_MAX = 128 };

static struct route_choice choice;
static struct route_host hosts[HOSTS_MAX];
static struct control_interfaces lists[HOSTS_MAX];

/* ---- Making clusters ---- */

static void add_interface(int host, const char *text)
{
    struct control_interfaces *list = &lists[host];
    struct control_interface *i;
    char name[16], address[64], flag[4] = "", *slash;
    int speed;

    ck_assert_int_ge(
        sscanf(text, "%15s %63s %d %3s", name, address, &speed, flag), 3);
    list->items = hb_xrealloc_array(list->items, (size_t)list->count + 1,
                                    sizeof(*list->items));
    i = &list->items[list->count];
    *i = (struct control_interface){.name = hb_xstrdup(name),
                                    .index = list->count + 1,
                                    .speed_mbps = speed,
                                    .flags = CONTROL_INTERFACE_UP};
    slash = strchr(address, '/');
    i->prefix = (int)strtol(slash + 1, NULL, 10);
    *slash = '\0';
    ck_assert_int_eq(hb_netaddr_parse(address, &i->address), 0);
    if (flag[0])
        i->flags |= CONTROL_INTERFACE_VIRTUAL;
    if (hb_netaddr_is_loopback(&i->address))
        i->flags |= CONTROL_INTERFACE_LOOPBACK | CONTROL_INTERFACE_VIRTUAL;
    hosts[host].usable |= UINT64_C(1) << list->count++;
}

/* Makes `count` hosts on as many machines, each with a loopback. */
static void make(int count)
{
    choice.hosts = hosts;
    choice.count = count;
    for (int i = 0; i < count; i++) {
        hosts[i] =
            (struct route_host){.machine = i + 1, .interfaces = &lists[i]};
        add_interface(i, "lo 127.0.0.1/8 0");
    }
}

/* Adds a network to every host; %d in `fmt` is the host's number, from 1. */
static void add_to_all(const char *fmt)
{
    for (int i = 0; i < choice.count; i++) {
        char text[128];
        const char *at = strstr(fmt, "%d");

        snprintf(text, sizeof(text), "%.*s%d%s", (int)(at - fmt), fmt, i + 1,
                 at + 2);
        add_interface(i, text);
    }
}

static void fini(void)
{
    for (int i = 0; i < HOSTS_MAX; i++)
        control_interfaces_fini(&lists[i]);
}

typedef int rule(int from, int to, const char *address);

/* Every host probes its targets; the rule decides which addresses answer. */
static void try_all(rule *answers)
{
    char text[HB_NETADDR_TEXT_MAX];

    for (int from = 0; from < choice.count; from++) {
        int targets[ROUTE_ALL_PAIRS], candidates[ROUTE_CANDIDATES_MAX];
        int n = route_targets(choice.count, from, targets);

        for (int i = 0; i < n; i++) {
            struct route_try t = {.to = targets[i]};
            int count;

            if (route_same_machine(&choice, from, t.to))
                continue;
            count = route_candidates(&choice, from, t.to, candidates);
            for (int k = 0; k < count; k++)
                if (answers(
                        from, t.to,
                        hb_netaddr_format(
                            &lists[t.to].items[candidates[k]].address, text)))
                    t.reached |= UINT64_C(1) << candidates[k];
            hosts[from].tries[hosts[from].try_count++] = t;
        }
    }
    route_choose(&choice);
}

static int always(int from, int to, const char *address)
{
    (void)from;
    (void)to;
    (void)address;
    return 1;
}

static const char *picked(int from, int to)
{
    static char text[HB_NETADDR_TEXT_MAX];
    int i = route_pick(&choice, from, to);

    if (i < 0)
        return "none";
    return hb_netaddr_format(&lists[to].items[i].address, text);
}

/* Checks that all use the same address of each host: prefix and its number. */
static void check_all(const char *prefix)
{
    char expected[HB_NETADDR_TEXT_MAX];

    for (int from = 0; from < choice.count; from++)
        for (int to = 0; to < choice.count; to++) {
            snprintf(expected, sizeof(expected), "%s%d", prefix, to + 1);
            ck_assert_msg(strcmp(picked(from, to), expected) == 0,
                          "%d to %d: %s, not %s", from, to, picked(from, to),
                          expected);
        }
}

/* ---- Who probes whom ---- */

START_TEST(test_targets)
{
    int targets[ROUTE_ALL_PAIRS];

    ck_assert_int_eq(route_targets(1, 0, targets), 0);
    ck_assert_int_eq(route_targets(2, 1, targets), 1);
    ck_assert_int_eq(targets[0], 0);
    ck_assert_int_eq(route_targets(32, 5, targets), 31);
    ck_assert_int_eq(targets[0], 6);
    ck_assert_int_eq(targets[30], 4);
    ck_assert_int_eq(route_targets(33, 0, targets), 8);
    ck_assert_int_eq(route_targets(33, 30, targets), 8); /* 31, 32, 0, 1.. */
    ck_assert_int_eq(route_targets(33, 10, targets), 9);
    ck_assert_int_eq(targets[8], 0);
}
END_TEST

/* No host has a target twice or itself, and every host is a target. */
START_TEST(test_targets_cover)
{
    for (int n = 2; n < HOSTS_MAX; n++) {
        unsigned char tried[HOSTS_MAX] = {0};

        for (int from = 0; from < n; from++) {
            unsigned char seen[HOSTS_MAX] = {0};
            int targets[ROUTE_ALL_PAIRS];
            int count = route_targets(n, from, targets);

            ck_assert_int_le(count, ROUTE_ALL_PAIRS);
            for (int i = 0; i < count; i++) {
                ck_assert_int_ne(targets[i], from);
                ck_assert_int_lt(targets[i], n);
                ck_assert(!seen[targets[i]]++);
                tried[targets[i]] = 1;
            }
        }
        for (int i = 0; i < n; i++)
            ck_assert(tried[i]);
    }
}
END_TEST

/* ---- What is tried, in which order ---- */

static void check_candidates(int from, int to, const char *expected)
{
    int candidates[ROUTE_CANDIDATES_MAX];
    int count = route_candidates(&choice, from, to, candidates);
    char got[256] = "", text[HB_NETADDR_TEXT_MAX];

    for (int i = 0; i < count; i++) {
        strcat(got, i ? " " : "");
        strcat(got, hb_netaddr_format(&lists[to].items[candidates[i]].address,
                                      text));
    }
    ck_assert_str_eq(got, expected);
}

START_TEST(test_order)
{
    make(2);
    add_to_all("docker0 172.17.0.1%d/16 10000 v");
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("eth1 10.1.0.%d/24 25000");
    add_to_all("eth1 fd01::%d/64 25000");
    add_to_all("wifi 10.2.0.%d/24 0");
    check_candidates(0, 1, "10.1.0.2 fd01::2 10.0.0.2 10.2.0.2 172.17.0.12");
}
END_TEST

/* A route is as fast as its slower end: a fast network of the target alone does
 * not help. */
START_TEST(test_slower_end_counts)
{
    make(2);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_interface(1, "ib0 10.9.0.2/24 100000");
    check_candidates(0, 1, "10.0.0.2 10.9.0.2");
}
END_TEST

/* A routed fabric, where each host has a network of its own, is preferred to a
 * slow shared network. */
START_TEST(test_routed_fabric)
{
    make(3);
    add_to_all("mgmt 10.0.0.%d/24 1000");
    add_to_all("fab0 10.64.%d.1/31 100000");
    check_candidates(0, 1, "10.64.2.1 10.0.0.2");
    try_all(always);
    ck_assert_str_eq(picked(0, 2), "10.64.3.1");
    ck_assert_str_eq(picked(2, 0), "10.64.1.1");
}
END_TEST

START_TEST(test_own_address_is_no_candidate)
{
    make(2);
    add_interface(0, "docker0 172.17.0.1/16 10000 v");
    add_interface(1, "docker0 172.17.0.1/16 10000 v");
    add_to_all("eth0 10.0.0.%d/24 1000");
    check_candidates(0, 1, "10.0.0.2");
    /* but tried if nobody knows whether they are one machine */
    hosts[0].machine = hosts[1].machine = 0;
    check_candidates(0, 1, "10.0.0.2 172.17.0.1");
}
END_TEST

START_TEST(test_no_candidates)
{
    make(2);
    check_candidates(0, 1, "");
    add_interface(1, "eth0 10.0.0.2/24 1000");
    hosts[1].usable = 1; /* the user allows lo only */
    check_candidates(0, 1, "");
}
END_TEST

START_TEST(test_many_addresses)
{
    int candidates[ROUTE_CANDIDATES_MAX];
    char text[64];

    make(2);
    add_interface(0, "eth0 10.0.0.1/16 1000");
    while (lists[1].count < CONTROL_INTERFACES_MAX) {
        snprintf(text, sizeof(text), "eth0 10.0.1.%d/16 %d", lists[1].count,
                 lists[1].count);
        add_interface(1, text);
    }
    ck_assert_int_eq(route_candidates(&choice, 0, 1, candidates),
                     ROUTE_CANDIDATES_MAX);
    ck_assert_int_eq(candidates[0], CONTROL_INTERFACES_MAX - 1);
}
END_TEST

/* ---- The choice ---- */

START_TEST(test_everybody_reaches_all)
{
    make(5);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("eth1 10.1.0.%d/24 25000");
    try_all(always);
    check_all("10.1.0.");
}
END_TEST

static int slow_only(int from, int to, const char *address)
{
    (void)from;
    (void)to;
    return strncmp(address, "10.0.", 5) == 0;
}

START_TEST(test_fast_network_is_not_connected)
{
    make(4);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("eth1 10.1.0.%d/24 25000");
    try_all(slow_only);
    check_all("10.0.0.");
}
END_TEST

START_TEST(test_ipv4_before_ipv6)
{
    make(3);
    add_to_all("eth0 fd00::%d/64 1000");
    add_to_all("eth0 10.0.0.%d/24 1000");
    try_all(always);
    check_all("10.0.0.");
}
END_TEST

START_TEST(test_ipv6_only)
{
    make(3);
    add_to_all("eth0 fd00::%d/64 1000");
    try_all(always);
    check_all("fd00::");
}
END_TEST

static int by_family(int from, int to, const char *address)
{
    (void)to;
    return (strchr(address, ':') != NULL) == (from == 2);
}

/* One host reaches the others by IPv6 only: each pair is decided by itself. */
START_TEST(test_mixed_families)
{
    make(3);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("eth0 fd00::%d/64 1000");
    try_all(by_family);
    ck_assert_str_eq(picked(1, 0), "10.0.0.1");
    ck_assert_str_eq(picked(2, 0), "fd00::1");
    ck_assert_str_eq(picked(0, 2), "10.0.0.3");
    ck_assert_int_eq(hosts[0].common, -1);
    ck_assert_int_ge(hosts[0].popular, 1);
    ck_assert_int_ge(hosts[2].common, 1);
}
END_TEST

/* Interface names differ between hosts and do not matter. */
START_TEST(test_names_differ)
{
    make(3);
    add_interface(0, "eth0 10.0.0.1/24 1000");
    add_interface(0, "eth1 10.7.0.1/24 1000");
    add_interface(1, "eth1 10.0.0.2/24 1000");
    add_interface(2, "enp3s0 10.0.0.3/24 1000");
    try_all(slow_only);
    check_all("10.0.0.");
    ck_assert_str_eq(lists[1].items[route_pick(&choice, 0, 1)].name, "eth1");
}
END_TEST

/* Two hosts also share a fast network of their own: still all use the common
 * one to reach them. */
START_TEST(test_common_before_fast)
{
    make(3);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_interface(0, "ib0 10.9.0.1/24 100000");
    add_interface(1, "ib0 10.9.0.2/24 100000");
    try_all(slow_only);
    check_all("10.0.0.");
}
END_TEST

static int ib_between_two(int from, int to, const char *address)
{
    return strncmp(address, "10.9.", 5) != 0 || (from < 2 && to < 2);
}

START_TEST(test_fast_network_of_some)
{
    make(3);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("ib0 10.9.0.%d/24 100000");
    try_all(ib_between_two);
    check_all("10.0.0.");
}
END_TEST

static int one_way(int from, int to, const char *address)
{
    (void)address;
    return !(from == 0 && to == 1);
}

START_TEST(test_one_way)
{
    make(3);
    add_to_all("eth0 10.0.0.%d/24 1000");
    try_all(one_way);
    ck_assert_str_eq(picked(0, 1), "none");
    ck_assert_str_eq(picked(1, 0), "10.0.0.1");
    ck_assert_str_eq(picked(2, 1), "10.0.0.2");
    ck_assert(route_find_try(&choice, 0, 1)->reached == 0);
}
END_TEST

START_TEST(test_absent_host_has_no_say)
{
    make(3);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("eth1 10.1.0.%d/24 25000");
    try_all(always);
    hosts[2].tries[0].reached = hosts[2].tries[1].reached = 0;
    hosts[2].absent = 1;
    route_choose(&choice);
    ck_assert_str_eq(picked(0, 1), "10.1.0.2");
}
END_TEST

/* ---- Names of one machine ---- */

START_TEST(test_one_machine)
{
    make(3);
    add_interface(0, "eth0 10.0.0.1/24 1000");
    add_interface(1, "eth0 10.0.0.1/24 1000");
    add_interface(2, "eth0 10.0.0.1/24 1000");
    hosts[1].machine = hosts[2].machine = 1;
    try_all(always);
    ck_assert_int_eq(hosts[0].try_count, 0);
    ck_assert_str_eq(picked(0, 1), "127.0.0.1");
    ck_assert_str_eq(picked(2, 2), "127.0.0.1");
}
END_TEST

START_TEST(test_two_names_and_another)
{
    make(3);
    add_interface(0, "eth0 10.0.0.1/24 1000");
    add_interface(1, "eth0 10.0.0.1/24 1000");
    add_interface(2, "eth0 10.0.0.3/24 1000");
    hosts[1].machine = 1;
    try_all(always);
    ck_assert_str_eq(picked(0, 1), "10.0.0.1");
    ck_assert_str_eq(picked(2, 1), "10.0.0.1");
    ck_assert_str_eq(picked(1, 2), "10.0.0.3");
}
END_TEST

START_TEST(test_no_network_at_all)
{
    make(2);
    hosts[1].machine = 1;
    hosts[0].usable = 0; /* not even lo is usable */
    try_all(always);
    ck_assert_str_eq(picked(0, 1), "127.0.0.1");
    ck_assert_str_eq(picked(1, 0), "none");
}
END_TEST

/* ---- Part of the pairs ---- */

START_TEST(test_hundred_hosts)
{
    make(100);
    add_to_all("eth0 10.0.0.%d/24 1000");
    add_to_all("eth1 10.1.0.%d/24 25000");
    for (int i = 0; i < 100; i++)
        add_interface(i, "docker0 172.17.0.1/16 10000 v");
    try_all(always);
    ck_assert_ptr_null(route_find_try(&choice, 20, 50));
    check_all("10.1.0.");
}
END_TEST

/* The first half reach each other over net 1, the second half over net 2, and
 * all reach host 0 over both. */
static int halves(int from, int to, const char *address)
{
    int net = from < 50 ? '1' : '2';

    if (to == 0 || (from < 50) != (to < 50))
        return 1;
    return address[3] == net;
}

START_TEST(test_hundred_hosts_in_halves)
{
    make(100);
    add_to_all("eth1 10.1.0.%d/24 1000");
    add_to_all("eth2 10.2.0.%d/24 1000");
    try_all(halves);
    ck_assert_str_eq(picked(10, 40), "10.1.0.41");
    ck_assert_str_eq(picked(60, 90), "10.2.0.91");
    ck_assert_str_eq(picked(90, 0), "10.1.0.1");
}
END_TEST

/* A host's callers use several of its addresses: a host that has not probed it
 * takes the one in its own network. */
static int split(int from, int to, const char *address)
{
    return to != 50 || (from % 2 == 0) == (strncmp(address, "10.1.", 5) == 0);
}

START_TEST(test_guess_by_network)
{
    make(100);
    for (int i = 0; i < 100; i++) {
        char text[64];

        snprintf(text, sizeof(text), "eth1 10.1.0.%d/24 1000", i + 1);
        if (i % 2 == 0 || i == 50)
            add_interface(i, text);
        snprintf(text, sizeof(text), "eth2 10.2.0.%d/24 1000", i + 1);
        if (i % 2 == 1 || i == 50)
            add_interface(i, text);
    }
    try_all(split);
    ck_assert_int_eq(hosts[50].common, -1);
    ck_assert_str_eq(picked(10, 50), "10.1.0.51");
    ck_assert_str_eq(picked(11, 50), "10.2.0.51");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("route_choice");
    TCase *c = tcase_create("route_choice");

    tcase_add_checked_fixture(c, NULL, fini);
    tcase_add_test(c, test_targets);
    tcase_add_test(c, test_targets_cover);
    tcase_add_test(c, test_order);
    tcase_add_test(c, test_slower_end_counts);
    tcase_add_test(c, test_routed_fabric);
    tcase_add_test(c, test_own_address_is_no_candidate);
    tcase_add_test(c, test_no_candidates);
    tcase_add_test(c, test_many_addresses);
    tcase_add_test(c, test_everybody_reaches_all);
    tcase_add_test(c, test_fast_network_is_not_connected);
    tcase_add_test(c, test_ipv4_before_ipv6);
    tcase_add_test(c, test_ipv6_only);
    tcase_add_test(c, test_mixed_families);
    tcase_add_test(c, test_names_differ);
    tcase_add_test(c, test_common_before_fast);
    tcase_add_test(c, test_fast_network_of_some);
    tcase_add_test(c, test_one_way);
    tcase_add_test(c, test_absent_host_has_no_say);
    tcase_add_test(c, test_one_machine);
    tcase_add_test(c, test_two_names_and_another);
    tcase_add_test(c, test_no_network_at_all);
    tcase_add_test(c, test_hundred_hosts);
    tcase_add_test(c, test_hundred_hosts_in_halves);
    tcase_add_test(c, test_guess_by_network);
    suite_add_tcase(s, c);
    return unit_run(s);
}
