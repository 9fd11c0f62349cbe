/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/trace/stats.h: classes, rows, scaling up from samples, and the report
 * to hvdrun.
 */
#include "lib/base/log.h"
#include "runtime/core/api/trace.h"
#include "runtime/core/set/set.h"
#include "runtime/core/world/agent_client.h"
#include "runtime/trace/stats.h"
#include "tests/unit/unit.h"

#include <string.h>

static const int ranks[] = {2, 5, 7};
static struct hvd__stats stats;
static struct hvd_stats sum;

static void set_up(void)
{
    hvd__stats_init(&stats, ranks, 3);
    memset(&sum, 0, sizeof(sum));
}

static struct hvd__stats_sample sample(uint64_t bytes)
{
    struct hvd__stats_sample s = {
        .kind = HVD__ALLREDUCE,
        .bytes = bytes,
        .issued_ns = 1000,
        .agreed_ns = 1400,
        .done_ns = 2000,
        .late_rank = -1,
    };

    return s;
}

/* What is published is the sum of all sets, goes on when a set begins anew, and
 * is not written too often. */
START_TEST(test_published)
{
    static struct segment_status status;
    static struct hvd__stats other;
    struct hvd__stats_sample s = sample(100);
    struct status_counts c, before;

    hvd__stats_request(&stats, &s);
    hvd__stats_publish(&stats, NULL, 1000000000);
    hvd__stats_publish(&stats, &status, 1000000000);
    status_read_counts(&status, &before);
    hvd__stats_request(&stats, &s);
    hvd__stats_publish(&stats, &status, 1000000001);
    status_read_counts(&status, &c);
    ck_assert_uint_eq(c.calls, before.calls);
    hvd__stats_publish(&stats, &status, 1200000000);
    status_read_counts(&status, &c);
    ck_assert_uint_eq(c.calls, before.calls + 1);
    ck_assert_uint_eq(c.bytes, before.bytes + 100);
    ck_assert_uint_eq(c.waited_ns, before.waited_ns + 400);
    hvd__stats_init(&other, ranks, 3);
    hvd__stats_request(&other, &s);
    hvd__stats_publish(&other, &status, 1300000000);
    status_read_counts(&status, &c);
    ck_assert_uint_eq(c.calls, before.calls + 2);
    ck_assert_uint_eq(c.waited_ns, before.waited_ns + 800);
}
END_TEST

START_TEST(test_classes)
{
    static const struct {
        uint64_t bytes;
        int class;
    } cases[] = {
        {0, 0},         {63, 0},
        {64, 1},        {1023, 1},
        {1024, 2},      {16 << 10, 3},
        {256 << 10, 4}, {4 << 20, 5},
        {64 << 20, 6},  {(1u << 30) - 1, 6},
        {1u << 30, 7},  {UINT64_MAX, 7},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_int_eq(hvd__stats_class(cases[i].bytes), cases[i].class);
}
END_TEST

START_TEST(test_rows)
{
    struct hvd__stats_sample s = sample(100);

    hvd__stats_request(&stats, &s);
    s.kind = HVD__REDUCESCATTER;
    s.agreed_ns = 0; /* not known */
    s.bytes = 1 << 20;
    hvd__stats_request(&stats, &s);
    s.agreed_ns = 9000; /* never more than the whole time */
    hvd__stats_request(&stats, &s);
    s.kind = HVD__JOIN;
    hvd__stats_request(&stats, &s);
    hvd__stats_count(&stats.cuts, 3);
    hvd__stats_sum(&stats, &sum);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][1].count, 1);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][1].bytes, 100);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][1].time_ns, 1000);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][1].wait_ns, 400);
    ck_assert_uint_eq(sum.rows[HVD__REDUCESCATTER][4].count, 2);
    ck_assert_uint_eq(sum.rows[HVD__REDUCESCATTER][4].time_ns, 2000);
    ck_assert_uint_eq(sum.rows[HVD__REDUCESCATTER][4].wait_ns, 1000);
    ck_assert_uint_eq(sum.cuts, 3);
}
END_TEST

/* One of four operations was timed: its times are scaled to all. */
START_TEST(test_samples_are_scaled)
{
    struct hvd__stats_sample s = sample(8);

    hvd__stats_request(&stats, &s);
    s.issued_ns = 0;
    for (int i = 0; i < 3; i++)
        hvd__stats_request(&stats, &s);
    hvd__stats_sum(&stats, &sum);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].count, 4);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].time_ns, 4000);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].wait_ns, 1600);
}
END_TEST

START_TEST(test_which_are_timed)
{
    int timed = 0;

    for (int i = 0; i < 16000; i++)
        timed += hvd__stats_timed(&stats, 8);
    ck_assert_int_gt(timed, 16000 / STATS_SAMPLE / 2);
    ck_assert_int_lt(timed, 2 * 16000 / STATS_SAMPLE);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(hvd__stats_timed(&stats, STATS_SMALL_BYTES), 1);
}
END_TEST

START_TEST(test_move)
{
    struct hvd__stats other;
    struct hvd__stats_sample s = sample(8);

    hvd__stats_init(&other, ranks, 3);
    hvd__stats_request(&stats, &s);
    hvd__stats_request(&other, &s);
    hvd__stats_count(&other.learned, 5);
    hvd__stats_move(&stats, &other);
    hvd__stats_sum(&other, &sum);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].count, 0);
    ck_assert_uint_eq(sum.learned, 0);
    hvd__stats_sum(&stats, &sum);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].count, 2);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].time_ns, 2000);
    ck_assert_uint_eq(sum.learned, 5);
}
END_TEST

/* Ranks of a set are reported as ranks of the world. */
START_TEST(test_report)
{
    struct hvd__stats_sample s = sample(8);
    struct worker_stats report;

    ck_assert_int_eq(hvd__stats_wanted(), 0);
    s.late_rank = 1;
    hvd__stats_request(&stats, &s); /* nobody wants statistics */
    ck_assert_int_eq(hvd__stats_open(8), 0);
    ck_assert_int_eq(hvd__stats_wanted(), 1);
    hvd__stats_request(&stats, &s);
    hvd__stats_request(&stats, &s);
    s.late_rank = 2;
    hvd__stats_request(&stats, &s);
    s.late_rank = 3; /* no rank of the set */
    hvd__stats_request(&stats, &s);
    hvd__stats_sum(&stats, &sum);
    hvd__stats_report(&sum, &report);
    ck_assert_uint_eq(report.rows[HVD__ALLREDUCE][0].count, 5);
    ck_assert_uint_eq(report.rows[HVD__ALLREDUCE][0].wait_ns, 2000);
    ck_assert_uint_eq(report.blamed_count, 2);
    ck_assert_uint_eq(report.blamed[0].rank, 5);
    ck_assert_uint_eq(report.blamed[0].waited_ns, 800);
    ck_assert_uint_eq(report.blamed[1].rank, 7);
    ck_assert_uint_eq(report.blamed[1].waited_ns, 400);
    hvd__stats_close();
    hvd__stats_close();
    ck_assert_int_eq(hvd__stats_wanted(), 0);
}
END_TEST

static int attempt(void *arg)
{
    int rc = hvd__stats_open(*(int *)arg);

    hvd__stats_close();
    return rc;
}

/* exit() reports the statistics while other threads may still count. */
START_TEST(test_telling_does_not_free)
{
    struct hvd__agent agent = HVD__AGENT_INIT;
    struct hb_log log = {0};

    hvd__sets_init();
    ck_assert_int_eq(hvd__stats_open(8), 0);
    hvd__trace_close(&agent, &log);
    ck_assert_int_eq(hvd__stats_wanted(), 1);
    hvd__stats_close();
}
END_TEST

START_TEST(test_no_memory)
{
    int n = 4;

    unit_fail_each(attempt, &n);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stats");
    TCase *c = tcase_create("stats");

    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, test_classes);
    tcase_add_test(c, test_rows);
    tcase_add_test(c, test_published);
    tcase_add_test(c, test_samples_are_scaled);
    tcase_add_test(c, test_which_are_timed);
    tcase_add_test(c, test_move);
    tcase_add_test(c, test_report);
    tcase_add_test(c, test_telling_does_not_free);
    tcase_add_test(c, test_no_memory);
    suite_add_tcase(s, c);
    return unit_run(s);
}
