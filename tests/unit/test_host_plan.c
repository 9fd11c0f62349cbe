/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/hvdrun/host_plan.h: which hosts the options choose. */
#include "cmd/hvdrun/host_plan.h"

#include "tests/unit/unit.h"

#include <string.h>

static struct hostlist hosts;
static struct plan plan;
static struct hb_error err;

/* Reads the hosts of `o` and expects the first to be `name`, with `slots`. */
static void expect(const struct options *o, const char *hostname,
                   const char *name, int slots)
{
    hostlist_free(&hosts);
    memset(&hosts, 0, sizeof(hosts));
    ck_assert_int_eq(host_plan_read(o, hostname, &hosts, &err), 0);
    ck_assert_str_eq(hosts.entries[0].name, name);
    ck_assert_int_eq(hosts.entries[0].slots, slots);
}

START_TEST(chooses_hosts)
{
    struct options o = {.num_proc = 3, .stdin_rank = -1};

    expect(&o, "n7", "n7", 3);
    expect(&o, "no valid name", "localhost", 3);
    o.hosts = (char *)"a:2,b:2";
    expect(&o, "n7", "a", 2);
    ck_assert_uint_eq(hosts.count, 2);
    o.hosts = NULL;
    o.hostfile = (char *)"/nonexistent";
    ck_assert_int_lt(host_plan_read(&o, "n7", &hosts, &err), 0);
    hostlist_free(&hosts);
}
END_TEST

START_TEST(stdin_names_a_rank)
{
    struct options o = {
        .hosts = (char *)"a:2,b:2", .num_proc = 3, .stdin_rank = 2};

    expect(&o, "n7", "a", 2);
    ck_assert_int_eq(host_plan_make(&o, &hosts, &plan, &err), 0);
    ck_assert_int_eq(plan.size, 3);
    plan_free(&plan);
    o.stdin_rank = 3;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &plan, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--stdin 3: there are only ranks 0 to 2");
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

static void expect_limits(int min_np, int max_np, const char *text)
{
    struct options o = {.hosts = (char *)"a:2,b:2",
                        .stdin_rank = -1,
                        .min_np = min_np,
                        .max_np = max_np};

    expect(&o, "n7", "a", 2);
    err = (struct hb_error)HB_ERROR_INIT;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &plan, &err),
                     *text ? -HVD_EINVAL : 0);
    ck_assert_str_eq(err.text, text);
    plan_free(&plan);
    hostlist_free(&hosts);
}

START_TEST(limits_of_an_elastic_job)
{
    expect_limits(4, 4, "");
    expect_limits(1, 0, "");
    expect_limits(5, 0, "--min-np 5: the job has only 4 ranks");
    expect_limits(1, 5, "");
    expect_limits(0, 3, "--max-np 3: the job has 4 ranks already");
}
END_TEST

START_TEST(multiples)
{
    struct options o = {
        .hosts = (char *)"a:2,b:2", .stdin_rank = -1, .np_multiple = 2};

    expect(&o, "n7", "a", 2);
    ck_assert_int_eq(host_plan_make(&o, &hosts, &plan, &err), 0);
    plan_free(&plan);
    o.np_multiple = 3;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &plan, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--np-multiple 3: the job has 4 ranks");
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

static void clear(void)
{
    memset(&hosts, 0, sizeof(hosts));
    memset(&plan, 0, sizeof(plan));
    hb_error_clear(&err);
}

int main(void)
{
    Suite *s = suite_create("host_plan");
    TCase *t = tcase_create("all");

    tcase_add_checked_fixture(t, clear, NULL);
    tcase_add_test(t, chooses_hosts);
    tcase_add_test(t, stdin_names_a_rank);
    tcase_add_test(t, limits_of_an_elastic_job);
    tcase_add_test(t, multiples);
    suite_add_tcase(s, t);
    return unit_run(s);
}
