/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/trace/stats.h: classes, rows, scaling up from samples, and the report
 * to hvdrun.
 */
#include "lib/base/log.h"
#include "runtime/core/api/trace.h"
#include "runtime/core/sched/record.h"
#include "runtime/core/set/set.h"
#include "runtime/core/world/agent_client.h"
#include "runtime/trace/stats.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
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

/* Those who watch learn at once of every call, also of those in worlds before.
 */
START_TEST(test_watched)
{
    static struct segment_status status, next;
    static struct hvd__controller c;
    struct hvd_request req = {.op.kind = HVD__ALLREDUCE,
                              .timing = HVD__UNTIMED};
    struct hvd__timeline_owner owner = {.host = "here"};
    struct status_counts now;

    req.op.count = 100;
    req.op.elem_bytes = 1;
    hvd__stats_init(&c.stats, ranks, 3);
    hvd__sets_init();
    setenv("HVD_STATS", "1", 1);
    atomic_store(&hvd__context.status, &status);
    ck_assert_int_eq(hvd__trace_open(&owner, NULL), 0);
    hvd__record_done_one(&c, &req);
    status_read_counts(&status, &now);
    ck_assert_uint_eq(now.calls, 1);
    ck_assert_uint_eq(now.bytes, 100);
    status_add_call(&status, 0, 1000, 7);
    hvd__trace_unwatch();
    hvd__record_done_one(&c, &req); /* nobody watches */
    atomic_store(&hvd__context.status, &next);
    ck_assert_int_eq(hvd__trace_open(&owner, NULL), 0);
    hvd__record_done_one(&c, &req);
    status_read_counts(&next, &now);
    ck_assert_uint_eq(now.calls, 3);
    ck_assert_uint_eq(now.bytes, 1200);
    ck_assert_uint_eq(now.waited_ns, 7);
    hvd__trace_unwatch();
    hvd__stats_close();
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

/* One of four operations is a sample: its times are scaled to all.  One that
 * was timed in any case stands for itself. */
START_TEST(test_samples_are_scaled)
{
    struct hvd__stats_sample s = sample(8);

    ck_assert_uint_eq(hvd__stats_request(&stats, &s), 400);
    s.issued_ns = 0;
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(hvd__stats_request(&stats, &s), 0);
    s.issued_ns = 1000;
    s.timing = HVD__SAMPLED;
    ck_assert_uint_eq(hvd__stats_request(&stats, &s), 4 * 400);
    hvd__stats_sum(&stats, &sum);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].count, 5);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].time_ns, 5000);
    ck_assert_uint_eq(sum.rows[HVD__ALLREDUCE][0].wait_ns, 2000);
    ck_assert_uint_eq(hvd__stats_request(&stats, &s), 400);
}
END_TEST

START_TEST(test_which_are_timed)
{
    uint64_t now = 1000000000;
    int sampled = 0;

    ck_assert_int_eq(hvd__stats_timing(&stats, 8, now), HVD__TIMED);
    for (int i = 0; i < 16000; i++) {
        enum hvd__timing timing = hvd__stats_timing(&stats, 8, now);

        ck_assert_int_ne(timing, HVD__TIMED);
        sampled += timing == HVD__SAMPLED;
    }
    ck_assert_int_gt(sampled, 16000 / STATS_SAMPLE / 2);
    ck_assert_int_lt(sampled, 2 * 16000 / STATS_SAMPLE);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(hvd__stats_timing(&stats, STATS_SMALL_BYTES, now),
                         HVD__TIMED);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(hvd__stats_timing(&stats, 8, now += STATS_RARE_NS + 1),
                         HVD__TIMED);
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
    tcase_add_test(c, test_watched);
    tcase_add_test(c, test_samples_are_scaled);
    tcase_add_test(c, test_which_are_timed);
    tcase_add_test(c, test_move);
    tcase_add_test(c, test_report);
    tcase_add_test(c, test_telling_does_not_free);
    tcase_add_test(c, test_no_memory);
    suite_add_tcase(s, c);
    return unit_run(s);
}
