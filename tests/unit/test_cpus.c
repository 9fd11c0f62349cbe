/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/machine/cpus.h: topology from fixtures, and the binding plan. */
#include "lib/agent/machine/cpus.h"
#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct fixture fixture;

static void setup(void)
{
    fixture_open(&fixture);
}

static void teardown(void)
{
    fixture_close(&fixture);
}

static const char *const cores[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};

/* Writes that file for CPUs n and n + 4. */
static void make_each(const char *file, const char *const text[4])
{
    for (int i = 0; i < 8; i++) {
        char path[128];

        snprintf(path, sizeof(path), "devices/system/cpu/cpu%d/%s", i, file);
        fixture_file(&fixture, path, text[i % 4]);
    }
}

/* Makes two sockets of two cores of two threads.  As on Linux, siblings are n
 * and n + 4. */
static void make_two_sockets(void)
{
    fixture_file(&fixture, "devices/system/node/online", "0-1\n");
    fixture_file(&fixture, "devices/system/node/node0/cpulist", "0-1,4-5\n");
    fixture_file(&fixture, "devices/system/node/node1/cpulist", "2-3,6-7\n");
    make_each("topology/thread_siblings_list", cores);
}

/* Makes caches: index0 of each core, and the last level as given by socket. */
static void make_caches(const char *first, const char *second)
{
    const char *const last[] = {first, first, second, second};

    make_each("cache/index0/shared_cpu_list", cores);
    make_each("cache/index1/shared_cpu_list", last);
}

/* The plan for `ranks` ranks on the CPUs `allowed`. */
struct planned {
    struct cpus cpus;
    struct cpus_set *sets;
    int ranks;
};

static struct planned plan(const char *allowed, enum control_bind bind,
                           int ranks)
{
    struct planned p = {.ranks = ranks};
    struct cpus_set set;

    p.sets = hb_xcalloc((size_t)ranks, sizeof(*p.sets));
    ck_assert_int_eq(cpus_parse(allowed, &set), 0);
    cpus_read(fixture.root, &set, &p.cpus);
    cpus_plan(&p.cpus, bind, ranks, p.sets);
    cpus_set_fini(&set);
    return p;
}

static void planned_fini(struct planned *p)
{
    for (int r = 0; r < p->ranks; r++)
        cpus_set_fini(&p->sets[r]);
    hb_free(p->sets);
    cpus_fini(&p->cpus);
}

/* Compares a plan's CPUs with a text like "0,4 1,5". */
static void expect(const char *allowed, enum control_bind bind, int ranks,
                   const char *expected)
{
    struct planned p = plan(allowed, bind, ranks);
    struct hb_buf text = HB_BUF_INIT;

    for (int r = 0; r < ranks; r++) {
        if (r)
            hb_buf_putc(&text, ' ');
        cpus_format(&p.sets[r], &text);
    }
    ck_assert_str_eq(hb_buf_data(&text), expected);
    hb_buf_free(&text);
    planned_fini(&p);
}

/* Compares the ranks' cache domains with a text like "0011". */
static void expect_domains(const char *allowed, enum control_bind bind,
                           int ranks, const char *expected)
{
    struct planned p = plan(allowed, bind, ranks);
    uint32_t domains[16];
    char text[17] = "";

    memset(domains, 0xee, sizeof(domains));
    cpus_domains(fixture.root, &p.cpus, p.sets, ranks, domains);
    for (int r = 0; r < ranks; r++)
        text[r] = (char)('0' + domains[r]);
    ck_assert_str_eq(text, expected);
    planned_fini(&p);
}

START_TEST(test_domains_of_caches)
{
    make_two_sockets();
    make_caches("0-1,4-5\n", "2-3,6-7\n");
    expect_domains("0-7", CONTROL_BIND_CORE, 4, "0011");
    expect_domains("0-7", CONTROL_BIND_CORE, 6, "001100");
    expect_domains("2-7", CONTROL_BIND_CORE, 4, "0011");
    expect_domains("0-1,4-5", CONTROL_BIND_CORE, 2, "00");
    expect_domains("0-7", CONTROL_BIND_NUMA, 6, "010101");
    /* too few CPUs, more than one cache, unbound, shared CPUs */
    expect_domains("0-7", CONTROL_BIND_CORE, 3, "000");
    expect_domains("0-7", CONTROL_BIND_CORE, 1, "0");
    expect_domains("0-7", CONTROL_BIND_NONE, 4, "0000");
    expect_domains("0-7", CONTROL_BIND_CORE, 9, "000000000");
}
END_TEST

/* Where one cache serves all, or each core has its own, domains are nodes. */
START_TEST(test_domains_of_nodes)
{
    make_two_sockets();
    expect_domains("0-7", CONTROL_BIND_CORE, 4, "0011");
    make_each("cache/index0/shared_cpu_list", cores);
    expect_domains("0-7", CONTROL_BIND_CORE, 4, "0011");
    expect_domains("0-7", CONTROL_BIND_CORE, 8, "01230123");
    make_caches("0-7\n", "0-7\n");
    expect_domains("0-7", CONTROL_BIND_CORE, 4, "0000");
}
END_TEST

START_TEST(test_domains_given)
{
    static const struct {
        const char *text, *expected; /* expected NULL: refused */
    } cases[] = {
        {"0", "00000"},
        {"3,3,1,1,3", "00110"},
        {"0,1", "01111"},
        {"9,8,7,6,5,4,3", "01234"},
        {"8191", "00000"},
        {"", NULL},
        {",", NULL},
        {"0,", NULL},
        {",0", NULL},
        {"0,,1", NULL},
        {"a", NULL},
        {"0 1", NULL},
        {"-1", NULL},
        {"8192", NULL},
        {"0,1,2,3,4,5,x", NULL},
        {"0-3", NULL},
        {"99999999999", NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t domains[5] = {7, 7, 7, 7, 7};
        char text[6] = "";
        int rc = cpus_domains_parse(cases[i].text, 5, domains);

        ck_assert_int_eq(rc, cases[i].expected ? 0 : -HVD_EINVAL);
        for (int r = 0; r < 5; r++)
            text[r] = (char)('0' + domains[r]);
        ck_assert_str_eq(text, cases[i].expected ? cases[i].expected : "77777");
    }
}
END_TEST

START_TEST(test_topology)
{
    struct planned p;

    make_two_sockets();
    p = plan("0-7", CONTROL_BIND_NONE, 1);
    ck_assert_int_eq(p.cpus.count, 8);
    ck_assert_int_eq(p.cpus.cores, 4);
    ck_assert_int_eq(p.cpus.nodes, 2);
    ck_assert_int_eq(p.cpus.items[5].core, 1);
    ck_assert_int_eq(p.cpus.items[6].node, 1);
    planned_fini(&p);
}
END_TEST

START_TEST(test_core)
{
    make_two_sockets();
    expect("0-7", CONTROL_BIND_CORE, 1, "0-7");
    expect("0-7", CONTROL_BIND_CORE, 2, "0-1,4-5 2-3,6-7");
    expect("0-7", CONTROL_BIND_CORE, 3, "0-1,4-5 2,6 3,7");
    expect("0-7", CONTROL_BIND_CORE, 4, "0,4 1,5 2,6 3,7");
    expect("0-7", CONTROL_BIND_CORE, 6, "0,4 1,5 2,6 3,7 0,4 1,5");
}
END_TEST

START_TEST(test_core_within_the_mask)
{
    make_two_sockets();
    expect("1,5,7", CONTROL_BIND_CORE, 2, "1,5 7");
    expect("3", CONTROL_BIND_CORE, 2, "3 3");
}
END_TEST

START_TEST(test_remark)
{
    const struct cpus two = {.cores = 2, .nodes = 1}, one = {.cores = 1};
    const struct cpus none = {.cores = 0};
    char *text = cpus_remark(&two, CONTROL_BIND_CORE, 3);

    ck_assert_str_eq(text, "3 ranks on 2 cores: some share one");
    hb_free(text);
    text = cpus_remark(&one, CONTROL_BIND_CORE, 2);
    ck_assert_str_eq(text, "2 ranks on 1 core: they share it");
    hb_free(text);
    ck_assert_ptr_null(cpus_remark(&two, CONTROL_BIND_CORE, 2));
    ck_assert_ptr_null(cpus_remark(&two, CONTROL_BIND_NUMA, 3));
    ck_assert_ptr_null(cpus_remark(&two, CONTROL_BIND_NONE, 3));
    ck_assert_ptr_null(cpus_remark(&none, CONTROL_BIND_CORE, 3));
}
END_TEST

START_TEST(test_numa)
{
    make_two_sockets();
    expect("0-7", CONTROL_BIND_NUMA, 3, "0-1,4-5 2-3,6-7 0-1,4-5");
    expect("2-3", CONTROL_BIND_NUMA, 2, "2-3 2-3");
}
END_TEST

START_TEST(test_none)
{
    make_two_sockets();
    expect("0-7", CONTROL_BIND_NONE, 2, "- -");
}
END_TEST

START_TEST(test_no_sysfs_at_all)
{
    expect("0-3", CONTROL_BIND_CORE, 2, "0-1 2-3");
    expect("0-3", CONTROL_BIND_NUMA, 2, "0-3 0-3");
}
END_TEST

START_TEST(test_no_cpu_at_all)
{
    expect("", CONTROL_BIND_CORE, 2, "- -");
}
END_TEST

START_TEST(test_parse)
{
    static const char *const bad[] = {
        "x", "1-", "-1", "3-1", "1,x", "1 2", "8192", "99999999999999999999"};
    struct cpus_set s;

    ck_assert_int_eq(cpus_parse("8,0-2\n", &s), 0);
    ck_assert_int_eq(s.count, 4);
    ck_assert_int_eq(s.ids[3], 8);
    cpus_set_fini(&s);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(cpus_parse(bad[i], &s) == -HVD_EINVAL, "%s", bad[i]);
}
END_TEST

START_TEST(test_allowed_and_mask)
{
    struct cpus_set mine;
    cpu_set_t *mask;
    size_t bytes;

    ck_assert_int_eq(cpus_allowed(&mine, NULL), 0);
    ck_assert_int_ge(mine.count, 1);
    mask = cpus_mask(&mine, &bytes);
    ck_assert_int_eq(CPU_COUNT_S(bytes, mask), mine.count);
    ck_assert(CPU_ISSET_S((size_t)mine.ids[0], bytes, mask));
    CPU_FREE(mask);
    cpus_set_fini(&mine);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cpus");
    TCase *t = tcase_create("cpus");

    tcase_add_unchecked_fixture(t, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_domains_of_caches);
    tcase_add_test(t, test_domains_of_nodes);
    tcase_add_test(t, test_domains_given);
    tcase_add_test(t, test_topology);
    tcase_add_test(t, test_core);
    tcase_add_test(t, test_core_within_the_mask);
    tcase_add_test(t, test_remark);
    tcase_add_test(t, test_numa);
    tcase_add_test(t, test_none);
    tcase_add_test(t, test_no_sysfs_at_all);
    tcase_add_test(t, test_no_cpu_at_all);
    tcase_add_test(t, test_parse);
    tcase_add_test(t, test_allowed_and_mask);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
