/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/job_same.c: which names of the plan are the same host. */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

enum { HOSTS = 3 };

static struct plan plan = {.host_count = HOSTS};
static int same_as[HOSTS];
static struct job_config config = {.plan = &plan, .same_as = same_as};
static struct job_host hosts[HOSTS];
static struct job job = {.config = &config, .hosts = hosts};

static void setup(void)
{
    memset(hosts, 0, sizeof(hosts));
    for (int i = 0; i < HOSTS; i++)
        hosts[i].index = i;
}

static void teardown(void)
{
    for (int i = 0; i < HOSTS; i++)
        hb_free(hosts[i].identity);
}

static void hello(int i, const char *name, const char *machine,
                  const char *namespaces)
{
    struct control_hello m = {.host = (char *)name,
                              .machine = (char *)machine,
                              .namespaces = (char *)namespaces};

    job_same_hello(&hosts[i], &m);
}

START_TEST(two_names_of_one_machine)
{
    hello(0, "x", "boot/1", "2/3/0");
    hello(1, "n1", "boot/7", "2/3/0");
    hello(2, "n1", "boot/7", "2/3/0");
    ck_assert_int_eq(job_same_found(&job), 1);
    ck_assert_int_eq(same_as[0], 0);
    ck_assert_int_eq(same_as[1], 1);
    ck_assert_int_eq(same_as[2], 1);
}
END_TEST

/* Virtual machines resumed from one snapshot of memory have equal boot ids and
 * namespace numbers. */
START_TEST(copies_of_a_machine)
{
    hello(0, "n0", "boot/1", "2/3/0");
    hello(1, "n1", "boot/1", "2/3/0");
    hello(2, "n2", "boot/1", "2/3/0");
    ck_assert_int_eq(job_same_found(&job), 0);
    for (int i = 0; i < HOSTS; i++)
        ck_assert_int_eq(same_as[i], i);
}
END_TEST

START_TEST(who_cannot_tell)
{
    hello(0, "n", "", "2/3/0");
    hello(1, "n", "boot/1", "");
    hello(2, "n", "", "");
    ck_assert_int_eq(job_same_found(&job), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("job_same");
    TCase *c = tcase_create("job_same");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, two_names_of_one_machine);
    tcase_add_test(c, copies_of_a_machine);
    tcase_add_test(c, who_cannot_tell);
    suite_add_tcase(s, c);
    return unit_run(s);
}
