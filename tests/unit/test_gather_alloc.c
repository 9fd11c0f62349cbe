/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allgather and alltoall whose callers are asked for memory: on the planes that
 * libhvd itself contains.  tests/system/test_gather_alloc.sh has the plug-ins.
 */
#include "runtime/hvd.h"
#include "tests/system/prog/gather_alloc_cases.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

static int body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    want(gather_alloc_cases(UNIT_LARGE(100)) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_one_host)
{
    ck_assert_int_eq(world_run(_i, body, NULL), 0);
}
END_TEST

/* One rank on each host; several; different numbers, so that some have no
 * connection of their own. */
static const char *const places[] = {"ab", "abc", "aabb", "aaab", "abbaa"};

START_TEST(test_hosts)
{
    const char *place = places[_i];
    struct world w = {.size = (int)strlen(place), .body = body, .place = place};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

static Suite *room_suite(void)
{
    Suite *s = suite_create("gather_alloc");
    TCase *tc = tcase_create("gather_alloc");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_one_host, 1, 6);
    tcase_add_loop_test(tc, test_hosts, 0, sizeof(places) / sizeof(places[0]));
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return unit_run(room_suite());
}
