/* SPDX-License-Identifier: Apache-2.0 */
/* The placement of ranks: hosts of any size, ranks in any order. */
#include "lib/base/alloc.h"
#include "runtime/plane/hier/map.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

START_TEST(test_uneven_hosts)
{
    static const uint32_t host_of[] = {0, 1, 1, 2, 0, 1};
    struct hvd__map m;

    ck_assert_int_eq(hvd__map_init(&m, 6, 3, host_of, 64, NULL), 0);
    ck_assert_int_eq(m.lanes, 1);
    ck_assert_int_eq(hvd__map_local_size(&m, 0), 2);
    ck_assert_int_eq(hvd__map_local_size(&m, 1), 3);
    ck_assert_int_eq(hvd__map_local_size(&m, 2), 1);
    ck_assert_uint_eq(hvd__map_rank(&m, 0, 1), 4);
    ck_assert_uint_eq(hvd__map_rank(&m, 1, 0), 1);
    ck_assert_uint_eq(hvd__map_rank(&m, 1, 2), 5);
    ck_assert_uint_eq(hvd__map_rank(&m, 2, 0), 3);
    hvd__map_name(&m, 1, "n1");
    ck_assert_str_eq(hvd__map_host_name(&m, 5), "n1");
    ck_assert_str_eq(hvd__map_host_name(&m, 0), "");
    ck_assert_str_eq(hvd__map_host_name(&m, 6), "?");
    hvd__map_fini(&m);
    hvd__map_fini(&m);
}
END_TEST

START_TEST(test_lanes)
{
    static const uint32_t host_of[] = {0, 0, 0, 1, 1, 1, 1};
    struct hvd__map m;

    ck_assert_int_eq(hvd__map_init(&m, 7, 2, host_of, 64, NULL), 0);
    ck_assert_int_eq(m.lanes, 3);
    hvd__map_fini(&m);
}
END_TEST

START_TEST(test_refused)
{
    static const uint32_t host_of[] = {0, 0, 2, 2};
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__map m;

    ck_assert_int_eq(hvd__map_init(&m, 4, 3, host_of, 64, &err), -HVD_EPROTO);
    ck_assert_str_eq(err.text, "host 1 of 3 has 0 ranks, not 1 to 64");
    ck_assert_int_eq(hvd__map_init(&m, 2, 1, host_of, 1, NULL), -HVD_EPROTO);
}
END_TEST

START_TEST(test_no_memory)
{
    static const uint32_t host_of[] = {0, 1};
    struct hvd__map m;

    static const int ranks[] = {1};
    struct hvd__map s;

    for (long n = 0; n < 5; n++) {
        hb_alloc_fail_after(n);
        ck_assert_int_eq(hvd__map_init(&m, 2, 2, host_of, 64, NULL),
                         -HVD_ENOMEM);
        ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
    }
    ck_assert_int_eq(hvd__map_init(&m, 2, 2, host_of, 64, NULL), 0);
    for (long n = 0; n < 7; n++) {
        hb_alloc_fail_after(n);
        ck_assert_int_eq(hvd__map_subset(&s, &m, ranks, 1, NULL), -HVD_ENOMEM);
        ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
        hvd__map_fini(&s);
    }
    hvd__map_fini(&m);
}
END_TEST

/* Some ranks of three hosts, and a subset of those. */
START_TEST(test_subset)
{
    static const uint32_t host_of[] = {0, 1, 1, 2, 0, 2, 1};
    static const int ranks[] = {2, 3, 5, 6};
    static const int again[] = {0, 3};
    struct hvd__map m, s, t;

    ck_assert_int_eq(hvd__map_init(&m, 7, 3, host_of, 64, NULL), 0);
    for (int h = 0; h < 3; h++)
        hvd__map_name(&m, h, h == 0 ? "n0" : h == 1 ? "n1" : "n2");
    ck_assert(!hvd__map_is_flat(&m));
    ck_assert_uint_eq(hvd__map_world(&m, 1, 2), 6);

    ck_assert_int_eq(hvd__map_subset(&s, &m, ranks, 4, NULL), 0);
    ck_assert_int_eq(s.size, 4);
    ck_assert_int_eq(s.hosts, 2);
    ck_assert_int_eq(s.lanes, 2);
    ck_assert_uint_eq(hvd__map_rank(&s, 0, 0), 0);
    ck_assert_uint_eq(hvd__map_rank(&s, 0, 1), 3);
    ck_assert_uint_eq(hvd__map_world(&s, 0, 1), 6);
    ck_assert_uint_eq(hvd__map_world(&s, 1, 0), 3);
    ck_assert_str_eq(hvd__map_host_name(&s, 6), "n1");
    ck_assert_str_eq(hvd__map_host_name(&s, 3), "n2");
    ck_assert_str_eq(hvd__map_host_name(&s, 0), "?");

    ck_assert_int_eq(hvd__map_subset(&t, &s, again, 2, NULL), 0);
    ck_assert_int_eq(t.hosts, 1);
    ck_assert_uint_eq(hvd__map_world(&t, 0, 1), 6);
    hvd__map_fini(&t);
    hvd__map_fini(&s);
    hvd__map_fini(&m);
}
END_TEST

static Suite *map_suite(void)
{
    Suite *s = suite_create("map");
    TCase *t = tcase_create("map");

    tcase_add_test(t, test_uneven_hosts);
    tcase_add_test(t, test_lanes);
    tcase_add_test(t, test_refused);
    tcase_add_test(t, test_no_memory);
    tcase_add_test(t, test_subset);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(map_suite());
}
