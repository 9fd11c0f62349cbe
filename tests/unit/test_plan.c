/* SPDX-License-Identifier: Apache-2.0 */
/* lib/hosts/slot_plan.h: Horovod's rule, and plans that cannot be made. */
#include "lib/hosts/slot_plan.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct hostlist parse(const char *hosts)
{
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(hostlist_parse(hosts, &l, &err) == 0, "%s", err.text);
    return l;
}

static void check_rank(const struct plan *p, int rank, const char *host,
                       int local_rank, int local_size, int cross_rank,
                       int cross_size)
{
    const struct plan_rank *r = &p->ranks[rank];

    ck_assert_int_eq(r->rank, rank);
    ck_assert_str_eq(p->hosts[r->host].entry->name, host);
    ck_assert_int_eq(r->local_rank, local_rank);
    ck_assert_int_eq(r->local_size, local_size);
    ck_assert_int_eq(r->cross_rank, cross_rank);
    ck_assert_int_eq(r->cross_size, cross_size);
}

static int make(const struct hostlist *l, int num_proc, struct plan *p,
                struct hb_error *err)
{
    struct plan_options o = {.num_proc = num_proc};

    return plan_make(l, &o, p, err);
}

static struct hostlist list;
static struct plan plan;

static void teardown(void)
{
    plan_free(&plan);
    hostlist_free(&list);
}

static void planned(const char *hosts, struct plan_options o)
{
    struct hb_error err = HB_ERROR_INIT;

    teardown();
    list = parse(hosts);
    ck_assert_msg(plan_make(&list, &o, &plan, &err) == 0, "%s", err.text);
}

START_TEST(test_two_equal_hosts)
{
    planned("a:2,b:2", (struct plan_options){.num_proc = 4});
    ck_assert_int_eq(plan.size, 4);
    ck_assert_int_eq(plan.host_count, 2);
    check_rank(&plan, 0, "a", 0, 2, 0, 2);
    check_rank(&plan, 1, "a", 1, 2, 0, 2);
    check_rank(&plan, 2, "b", 0, 2, 1, 2);
    check_rank(&plan, 3, "b", 1, 2, 1, 2);
    ck_assert_int_eq(plan.hosts[1].ranks[0], 2);
    ck_assert_int_eq(plan.hosts[1].count, 2);
    ck_assert_int_eq(plan.hosts[1].index, 1);
    plan_free(&plan);
    ck_assert_ptr_null(plan.ranks);
}
END_TEST

/* cross_size counts only hosts that have that local rank. */
START_TEST(test_unequal_hosts)
{
    planned("a:1,b:2", (struct plan_options){.num_proc = 3});
    check_rank(&plan, 0, "a", 0, 1, 0, 2);
    check_rank(&plan, 1, "b", 0, 2, 1, 2);
    check_rank(&plan, 2, "b", 1, 2, 0, 1);
}
END_TEST

START_TEST(test_three_hosts_cross_ranks)
{
    planned("a:3,b:1,c:2", (struct plan_options){0});
    ck_assert_int_eq(plan.size, 6);
    check_rank(&plan, 1, "a", 1, 3, 0, 2);
    check_rank(&plan, 2, "a", 2, 3, 0, 1);
    check_rank(&plan, 3, "b", 0, 1, 1, 3);
    check_rank(&plan, 4, "c", 0, 2, 2, 3);
    check_rank(&plan, 5, "c", 1, 2, 1, 2);
}
END_TEST

START_TEST(test_fewer_ranks_than_slots)
{
    planned("localhost:4", (struct plan_options){.num_proc = 2});
    ck_assert_int_eq(plan.size, 2);
    check_rank(&plan, 1, "localhost", 1, 2, 0, 1);
    /* hosts without ranks are not in the plan */
    planned("a:2,b:2,c:2", (struct plan_options){.num_proc = 3});
    ck_assert_int_eq(plan.host_count, 2);
    check_rank(&plan, 2, "b", 0, 1, 1, 2);
    check_rank(&plan, 1, "a", 1, 2, 0, 1);
}
END_TEST

START_TEST(test_hosts_without_slots_have_one)
{
    planned("a,b,c", (struct plan_options){0});
    ck_assert_int_eq(plan.size, 3);
    check_rank(&plan, 2, "c", 0, 1, 2, 3);
}
END_TEST

START_TEST(test_refusals)
{
    static const struct {
        const char *hosts;
        int num_proc;
        const char *text;
    } cases[] = {
        {"localhost:2", 3,
         "-np 3: the hosts given have 2 slots (localhost:2); add slots or "
         "lower -np, or give --oversubscribe"},
        {"a", 2,
         "-np 2: the hosts given have 1 slot (a:1); add slots or lower -np, "
         "or give --oversubscribe"},
        {"a:1,b:2,c:3,d:4,e:5", 16,
         "-np 16: the hosts given have 15 slots (a:1, b:2, c:3, d:4, ...); "
         "add slots or lower -np, or give --oversubscribe"},
        {"a", -1, "-np -1: give at least 1"},
        {"a:65536,b:65536", 65537,
         "-np 65537: at most 65536 ranks are possible"},
        {"a:65536,b:65536", 0,
         "the hosts given have 131072 slots (a:65536, b:65536), and at most "
         "65536 ranks are possible; give -np"},
        {"a:2000", 1025,
         "host a would get 1025 ranks, more than the 1024 that one host can "
         "have; lower -np or add hosts"},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hostlist l = parse(cases[i].hosts);
        struct hb_error err = HB_ERROR_INIT;
        struct plan p;

        ck_assert_int_eq(make(&l, cases[i].num_proc, &p, &err), -HVD_EINVAL);
        ck_assert_str_eq(err.text, cases[i].text);
        hostlist_free(&l);
    }
}
END_TEST

START_TEST(test_no_host)
{
    struct hostlist none = HOSTLIST_INIT;
    struct plan p;

    ck_assert_int_eq(make(&none, 0, &p, NULL), -HVD_EINVAL);
    ck_assert_int_eq(make(&none, 1, &p, NULL), -HVD_EINVAL);
}
END_TEST

START_TEST(test_largest_plan)
{
    planned("n[1-64]:1024", (struct plan_options){0});
    ck_assert_int_eq(plan.size, PLAN_RANKS_MAX);
    check_rank(&plan, PLAN_RANKS_MAX - 1, "n64", 1023, 1024, 63, 64);
}
END_TEST

/* In turns, until a host's slots are used up. */
START_TEST(test_map_by_node)
{
    static const int on_a[] = {0, 3, 5}, on_c[] = {2, 4};

    planned("a:3,b:1,c:2", (struct plan_options){.map = PLAN_MAP_NODE});
    ck_assert_int_eq(plan.size, 6);
    check_rank(&plan, 0, "a", 0, 3, 0, 3);
    check_rank(&plan, 1, "b", 0, 1, 1, 3);
    check_rank(&plan, 2, "c", 0, 2, 2, 3);
    check_rank(&plan, 3, "a", 1, 3, 0, 2);
    check_rank(&plan, 4, "c", 1, 2, 1, 2);
    check_rank(&plan, 5, "a", 2, 3, 0, 1);
    ck_assert_mem_eq(plan.hosts[0].ranks, on_a, sizeof(on_a));
    ck_assert_mem_eq(plan.hosts[2].ranks, on_c, sizeof(on_c));
}
END_TEST

static void check_counts(const char *hosts, struct plan_options o,
                         const char *expected)
{
    struct hostlist l = parse(hosts);
    struct hb_error err = HB_ERROR_INIT;
    char text[128] = "";
    struct plan p;

    ck_assert_msg(plan_make(&l, &o, &p, &err) == 0, "%s", err.text);
    for (int i = 0; i < p.host_count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%s:%d", i ? "," : "",
                 p.hosts[i].entry->name, p.hosts[i].count);
    }
    ck_assert_str_eq(text, expected);
    plan_free(&p);
    hostlist_free(&l);
}

START_TEST(test_npernode)
{
    check_counts("a:4,b:4", (struct plan_options){.npernode = 2}, "a:2,b:2");
    check_counts("a:4,b:1", (struct plan_options){.npernode = 2}, "a:2,b:1");
    check_counts("a:4,b:4", (struct plan_options){.num_proc = 3, .npernode = 2},
                 "a:2,b:1");
    check_counts("a:1,b:1",
                 (struct plan_options){.npernode = 2, .oversubscribe = 1},
                 "a:2,b:2");
}
END_TEST

START_TEST(test_oversubscribe)
{
    struct plan_options o = {.num_proc = 7, .oversubscribe = 1};

    check_counts("a:2,b:1", o, "a:4,b:3");
    check_counts("a:4,b:4", (struct plan_options){.num_proc = 5}, "a:4,b:1");
    o.map = PLAN_MAP_NODE;
    check_counts("a:2,b:1", o, "a:4,b:3");
}
END_TEST

/* max_slots limits --oversubscribe. */
START_TEST(test_max_slots)
{
    static const char text[] = "a slots=1 max_slots=3\nb slots=1\n";
    struct plan_options o = {.num_proc = 6, .oversubscribe = 1};
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct plan p;

    ck_assert_int_eq(
        hostlist_parse_file_text("f", text, sizeof(text) - 1, &l, NULL), 0);
    ck_assert_int_eq(plan_make(&l, &o, &p, NULL), 0);
    ck_assert_int_eq(p.hosts[0].count, 3);
    ck_assert_int_eq(p.hosts[1].count, 3);
    plan_free(&p);
    o.npernode = 2;
    ck_assert_int_eq(plan_make(&l, &o, &p, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "-np 6: the hosts given have 4 slots with "
                               "--npernode 2 (a:3, b:1); raise that or lower "
                               "-np");
    l.count = 1;
    o.npernode = 0;
    hb_error_clear(&err);
    ck_assert_int_eq(plan_make(&l, &o, &p, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "-np 6: the hosts given have 3 slots up to "
                               "their max_slots (a:3); raise that or lower "
                               "-np");
    l.count = 2;
    hostlist_free(&l);
}
END_TEST

static int make_small(void *arg)
{
    struct plan p = {0};
    int rc = make(arg, 3, &p, NULL);

    plan_free(&p);
    return rc;
}

START_TEST(test_allocation_failures)
{
    struct hostlist l = parse("a:2,b:2");

    unit_fail_each(make_small, &l);
    hostlist_free(&l);
}
END_TEST

/* Numbers stay with a host, and are given again when it is gone. */
START_TEST(a_plan_that_grows)
{
    static const struct host_entry more[] = {{.name = (char *)"c"},
                                             {.name = (char *)"d"}};
    struct hostlist l = HOSTLIST_INIT;
    struct plan p;

    ck_assert_int_eq(hostlist_parse("a:2,b:1", &l, NULL), 0);
    ck_assert_int_eq(make(&l, 3, &p, NULL), 0);
    ck_assert_int_eq(p.np, 3);
    plan_reserve(&p, 8, 4);
    ck_assert_int_eq(p.size, 8);
    ck_assert_int_eq(p.np, 3);
    ck_assert(p.ranks[2].is_bound && !p.ranks[3].is_bound);
    ck_assert_int_eq(plan_bind(&p, 0, 4, 2), 4);
    ck_assert_int_eq(p.hosts[0].ranks[2], 3);
    ck_assert_int_eq(p.hosts[0].ranks[3], 4);
    ck_assert_int_eq(p.ranks[4].local_rank, 3);
    ck_assert_int_eq(plan_bind(&p, 0, 3, 2), 4);
    ck_assert_int_eq(plan_add_host(&p, &more[0]), 2);
    ck_assert_int_eq(plan_bind(&p, 2, 2, 2), 2);
    ck_assert_int_eq(p.hosts[2].ranks[0], 5);
    ck_assert_int_eq(p.ranks[6].host, 2);
    ck_assert_int_eq(plan_add_host(&p, &more[1]), 3);
    ck_assert_int_eq(plan_add_host(&p, &more[1]), -1);
    ck_assert_int_eq(plan_bind(&p, 3, 3, 3), 1);
    plan_unbind(&p, 0);
    ck_assert(!p.ranks[0].is_bound && p.ranks[0].rank == 0);
    ck_assert_int_eq(plan_bind(&p, 3, 3, 3), 3);
    ck_assert_int_eq(p.hosts[3].ranks[0], 0); /* ascending */
    ck_assert_int_eq(p.hosts[3].ranks[2], 7);
    ck_assert_int_eq(p.ranks[7].local_rank, 2);
    plan_unbind(&p, 3);
    ck_assert_int_eq(p.ranks[7].host, 3); /* for messages about it */
    ck_assert(!p.ranks[7].is_bound);
    plan_free(&p);
    hostlist_free(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan");
    TCase *c = tcase_create("plan");

    tcase_add_checked_fixture(c, NULL, teardown);
    tcase_add_test(c, a_plan_that_grows);
    tcase_add_test(c, test_two_equal_hosts);
    tcase_add_test(c, test_unequal_hosts);
    tcase_add_test(c, test_three_hosts_cross_ranks);
    tcase_add_test(c, test_fewer_ranks_than_slots);
    tcase_add_test(c, test_hosts_without_slots_have_one);
    tcase_add_test(c, test_refusals);
    tcase_add_test(c, test_no_host);
    tcase_add_test(c, test_largest_plan);
    tcase_add_test(c, test_map_by_node);
    tcase_add_test(c, test_npernode);
    tcase_add_test(c, test_oversubscribe);
    tcase_add_test(c, test_max_slots);
    tcase_add_test(c, test_allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
