/* SPDX-License-Identifier: Apache-2.0 */
/* lib/hosts/plan.h: Horovod's rule, and plans that cannot be made. */
#include "lib/hosts/plan.h"
#include "tests/unit/unit.h"

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

START_TEST(test_two_equal_hosts)
{
    struct hostlist l = parse("a:2,b:2");
    struct plan p;

    ck_assert_int_eq(plan_make(&l, 4, &p, NULL), 0);
    ck_assert_int_eq(p.size, 4);
    ck_assert_int_eq(p.host_count, 2);
    check_rank(&p, 0, "a", 0, 2, 0, 2);
    check_rank(&p, 1, "a", 1, 2, 0, 2);
    check_rank(&p, 2, "b", 0, 2, 1, 2);
    check_rank(&p, 3, "b", 1, 2, 1, 2);
    ck_assert_int_eq(p.hosts[1].first_rank, 2);
    ck_assert_int_eq(p.hosts[1].count, 2);
    ck_assert_int_eq(p.hosts[1].index, 1);
    plan_free(&p);
    ck_assert_ptr_null(p.ranks);
    plan_free(&p);
    hostlist_free(&l);
}
END_TEST

/* cross_size counts only the hosts that have that local rank. */
START_TEST(test_unequal_hosts)
{
    struct hostlist l = parse("a:1,b:2");
    struct plan p;

    ck_assert_int_eq(plan_make(&l, 3, &p, NULL), 0);
    check_rank(&p, 0, "a", 0, 1, 0, 2);
    check_rank(&p, 1, "b", 0, 2, 1, 2);
    check_rank(&p, 2, "b", 1, 2, 0, 1);
    plan_free(&p);
    hostlist_free(&l);
}
END_TEST

START_TEST(test_three_hosts_cross_ranks)
{
    struct hostlist l = parse("a:3,b:1,c:2");
    struct plan p;

    ck_assert_int_eq(plan_make(&l, 0, &p, NULL), 0);
    ck_assert_int_eq(p.size, 6);
    check_rank(&p, 1, "a", 1, 3, 0, 2);
    check_rank(&p, 2, "a", 2, 3, 0, 1);
    check_rank(&p, 3, "b", 0, 1, 1, 3);
    check_rank(&p, 4, "c", 0, 2, 2, 3);
    check_rank(&p, 5, "c", 1, 2, 1, 2);
    plan_free(&p);
    hostlist_free(&l);
}
END_TEST

START_TEST(test_fewer_ranks_than_slots)
{
    struct hostlist l = parse("localhost:4");
    struct plan p;

    ck_assert_int_eq(plan_make(&l, 2, &p, NULL), 0);
    ck_assert_int_eq(p.size, 2);
    check_rank(&p, 1, "localhost", 1, 2, 0, 1);
    plan_free(&p);
    hostlist_free(&l);
    /* hosts that get nothing are not in the plan */
    l = parse("a:2,b:2,c:2");
    ck_assert_int_eq(plan_make(&l, 3, &p, NULL), 0);
    ck_assert_int_eq(p.host_count, 2);
    check_rank(&p, 2, "b", 0, 1, 1, 2);
    check_rank(&p, 1, "a", 1, 2, 0, 1);
    plan_free(&p);
    hostlist_free(&l);
}
END_TEST

START_TEST(test_hosts_without_slots_have_one)
{
    struct hostlist l = parse("a,b,c");
    struct plan p;

    ck_assert_int_eq(plan_make(&l, 0, &p, NULL), 0);
    ck_assert_int_eq(p.size, 3);
    check_rank(&p, 2, "c", 0, 1, 2, 3);
    plan_free(&p);
    hostlist_free(&l);
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
         "lower -np"},
        {"a", 2,
         "-np 2: the hosts given have 1 slot (a:1); add slots or lower -np"},
        {"a:1,b:2,c:3,d:4,e:5", 16,
         "-np 16: the hosts given have 15 slots (a:1, b:2, c:3, d:4, ...); "
         "add slots or lower -np"},
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

        ck_assert_int_eq(plan_make(&l, cases[i].num_proc, &p, &err),
                         -HVD_EINVAL);
        ck_assert_str_eq(err.text, cases[i].text);
        hostlist_free(&l);
    }
}
END_TEST

START_TEST(test_no_host)
{
    struct hostlist none = HOSTLIST_INIT;
    struct plan p;

    ck_assert_int_eq(plan_make(&none, 0, &p, NULL), -HVD_EINVAL);
    ck_assert_int_eq(plan_make(&none, 1, &p, NULL), -HVD_EINVAL);
}
END_TEST

START_TEST(test_largest_plan)
{
    struct hostlist l = parse("n[1-64]:1024");
    struct plan p;

    ck_assert_int_eq(plan_make(&l, 0, &p, NULL), 0);
    ck_assert_int_eq(p.size, PLAN_RANKS_MAX);
    check_rank(&p, PLAN_RANKS_MAX - 1, "n64", 1023, 1024, 63, 64);
    plan_free(&p);
    hostlist_free(&l);
}
END_TEST

static int make_small(void *arg)
{
    struct plan p = {NULL, 0, NULL, 0};
    int rc = plan_make(arg, 3, &p, NULL);

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

int main(void)
{
    Suite *s = suite_create("plan");
    TCase *c = tcase_create("plan");

    tcase_add_test(c, test_two_equal_hosts);
    tcase_add_test(c, test_unequal_hosts);
    tcase_add_test(c, test_three_hosts_cross_ranks);
    tcase_add_test(c, test_fewer_ranks_than_slots);
    tcase_add_test(c, test_hosts_without_slots_have_one);
    tcase_add_test(c, test_refusals);
    tcase_add_test(c, test_no_host);
    tcase_add_test(c, test_largest_plan);
    tcase_add_test(c, test_allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
