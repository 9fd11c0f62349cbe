/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/protocol/worker_stats.h: there and back, adding up, and what is
 * refused; and lib/job/trace/stats_text.h, which prints it.
 */
#include "lib/hosts/hostlist.h"
#include "lib/job/trace/stats_text.h"
#include "lib/protocol/worker.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct worker_stats make(void)
{
    struct worker_stats m;

    memset(&m, 0, sizeof(m));
    m.rows[0][1] = (struct worker_stats_row){100, 6400, 1200000, 300000};
    m.rows[5][7] = (struct worker_stats_row){2, 4ull << 30, 8000000000, 0};
    m.rows[WORKER_STATS_BARRIER][0] =
        (struct worker_stats_row){4, 0, 40000, 20000};
    m.operations = 53;
    m.fused = 60;
    m.learned = 50;
    m.guessed = 3;
    m.cuts = 2;
    m.negotiations = 1;
    m.device_timed = 40;
    m.device_ns = 5000000;
    worker_stats_blame(&m, 1, 200000);
    worker_stats_blame(&m, 0, 100000);
    return m;
}

static void check_equal(const struct worker_stats *a,
                        const struct worker_stats *b)
{
    ck_assert_mem_eq(a->rows, b->rows, sizeof(a->rows));
    ck_assert_uint_eq(a->operations, b->operations);
    ck_assert_uint_eq(a->fused, b->fused);
    ck_assert_uint_eq(a->learned, b->learned);
    ck_assert_uint_eq(a->guessed, b->guessed);
    ck_assert_uint_eq(a->cuts, b->cuts);
    ck_assert_uint_eq(a->negotiations, b->negotiations);
    ck_assert_uint_eq(a->errors, b->errors);
    ck_assert_uint_eq(a->device_timed, b->device_timed);
    ck_assert_uint_eq(a->device_ns, b->device_ns);
    ck_assert_uint_eq(a->blamed_count, b->blamed_count);
    for (uint32_t i = 0; i < a->blamed_count; i++) {
        ck_assert_uint_eq(a->blamed[i].rank, b->blamed[i].rank);
        ck_assert_uint_eq(a->blamed[i].waited_ns, b->blamed[i].waited_ns);
    }
}

START_TEST(test_there_and_back)
{
    struct worker_stats m = make(), got;
    struct hb_buf out = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(worker_encode_stats(&out, &m), 0);
    ck_assert_int_eq(frame_decode(&out, WORKER_STATS_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, WORKER_STATS);
    ck_assert_int_eq(worker_stats_read(f.payload, f.len, &got), 0);
    check_equal(&got, &m);
    hb_buf_free(&out);
}
END_TEST

START_TEST(test_the_largest_fits)
{
    struct worker_stats m, got;
    struct hb_buf out = HB_BUF_INIT;

    memset(&m, 0xff, sizeof(m));
    m.blamed_count = WORKER_STATS_BLAMED;
    ck_assert_int_eq(worker_stats_write(&out, &m), 0);
    ck_assert_uint_le(hb_buf_len(&out), WORKER_STATS_MAX);
    ck_assert_int_eq(
        worker_stats_read(hb_buf_data(&out), hb_buf_len(&out), &got), 0);
    check_equal(&got, &m);
    worker_stats_add(&got, &m); /* numbers do not overflow */
    ck_assert_uint_eq(got.rows[0][0].count, UINT64_MAX);
    ck_assert_uint_eq(got.operations, UINT64_MAX);
    hb_buf_free(&out);
}
END_TEST

START_TEST(test_adding)
{
    struct worker_stats sum, m = make();

    memset(&sum, 0, sizeof(sum));
    worker_stats_add(&sum, &m);
    worker_stats_add(&sum, &m);
    ck_assert_uint_eq(sum.rows[0][1].count, 200);
    ck_assert_uint_eq(sum.rows[5][7].time_ns, 16000000000);
    ck_assert_uint_eq(sum.cuts, 4);
    ck_assert_uint_eq(sum.blamed_count, 2);
    ck_assert_uint_eq(sum.blamed[0].waited_ns, 400000);
}
END_TEST

/* Only the ranks that were waited for longest have a place. */
START_TEST(test_many_blamed)
{
    struct worker_stats m;
    uint64_t least = UINT64_MAX;

    memset(&m, 0, sizeof(m));
    for (uint32_t r = 0; r < 2 * WORKER_STATS_BLAMED; r++)
        worker_stats_blame(&m, r, 1 + r * 7 % 64);
    worker_stats_blame(&m, 999, 0);
    ck_assert_uint_eq(m.blamed_count, WORKER_STATS_BLAMED);
    for (uint32_t i = 0; i < m.blamed_count; i++)
        if (m.blamed[i].waited_ns < least)
            least = m.blamed[i].waited_ns;
    ck_assert_uint_eq(least, 33);
}
END_TEST

static int read_with(size_t at, unsigned char byte, size_t cut)
{
    struct worker_stats m = make(), got;
    struct hb_buf out = HB_BUF_INIT;
    int rc;

    ck_assert_int_eq(worker_stats_write(&out, &m), 0);
    hb_buf_data(&out)[at] = (char)byte;
    rc = worker_stats_read(hb_buf_data(&out), hb_buf_len(&out) - cut, &got);
    hb_buf_free(&out);
    return rc;
}

START_TEST(test_refused)
{
    struct worker_stats m = make();
    struct hb_buf out = HB_BUF_INIT;
    size_t len;

    ck_assert_int_eq(worker_stats_write(&out, &m), 0);
    len = hb_buf_len(&out);
    hb_buf_free(&out);
    for (size_t cut = 1; cut <= len; cut++)
        ck_assert_int_eq(read_with(0, 0, cut), -HVD_EPROTO);
    ck_assert_int_eq(read_with(0, 0, 0), 0);
    ck_assert_int_eq(read_with(1, 2, 0), -HVD_EPROTO);  /* rows */
    ck_assert_int_eq(read_with(2, 6, 0), -HVD_EPROTO);  /* kind */
    ck_assert_int_eq(read_with(3, 8, 0), -HVD_EPROTO);  /* class */
    ck_assert_int_eq(read_with(11, 0, 0), -HVD_EPROTO); /* count 0 */
    ck_assert_int_eq(read_with(2, 5, 0), -HVD_EPROTO);  /* not ascending */
}
END_TEST

static int attempt(void *arg)
{
    struct hb_buf out = HB_BUF_INIT;
    int rc = worker_encode_stats(&out, arg);

    hb_buf_free(&out);
    return rc;
}

START_TEST(test_no_memory)
{
    struct worker_stats m = make();

    unit_fail_each(attempt, &m);
}
END_TEST

/* ---- The table ------------------------------------------------------ */

static void make_plan(struct hostlist *hosts, struct plan *plan)
{
    const struct plan_options options = {.num_proc = 2};

    ck_assert_int_eq(hostlist_parse("n1:1,n2:1", hosts, NULL), 0);
    ck_assert_int_eq(plan_make(hosts, &options, plan, NULL), 0);
}

START_TEST(test_table)
{
    struct hostlist hosts = HOSTLIST_INIT;
    struct plan plan = {0};
    struct stats_sum sum = {0};
    struct worker_stats m = make();
    struct hb_buf out = HB_BUF_INIT;

    make_plan(&hosts, &plan);
    m.rows[1][0] = (struct worker_stats_row){3, 120, 0, 0}; /* not timed */
    worker_stats_blame(&m, 77, 5); /* no rank of the plan */
    stats_sum_add(&sum, &plan, &m);
    m.errors = 1;
    stats_sum_add(&sum, &plan, &m);
    stats_text(&out, &sum, &plan);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "hvdrun: statistics of 2 ranks, calls and bytes per rank\n"
        "                      size      calls       bytes  mean time"
        "   waiting\n"
        "  allreduce        < 1 KiB        100    6.25 KiB    12.0 us"
        "      25 %\n"
        "  broadcast         < 64 B          3       120 B          -"
        "         -\n"
        "  barrier                           4         0 B    10.0 us"
        "      50 %\n"
        "  reducescatter   >= 1 GiB          2    4.00 GiB     4.00 s"
        "       0 %\n"
        "  operations: 53 per rank, of 2.06 requests each; 94 % foreseen, "
        "2 cut, 1 negotiated\n"
        "  on the device: 40 per rank, of 125 us each\n"
        "  requests that failed: 1\n"
        "  most waited for: rank 1 on host n2, 400 us (67 % of all)\n");
    hb_buf_free(&out);
    stats_sum_fini(&sum);
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

START_TEST(test_table_of_nothing)
{
    struct hostlist hosts = HOSTLIST_INIT;
    struct plan plan = {0};
    struct stats_sum sum = {0};
    struct worker_stats none;
    struct hb_buf out = HB_BUF_INIT;

    make_plan(&hosts, &plan);
    stats_text(&out, &sum, &plan);
    ck_assert_str_eq(hb_buf_data(&out),
                     "hvdrun: no rank told its statistics\n");
    hb_buf_clear(&out);
    memset(&none, 0, sizeof(none));
    stats_sum_add(&sum, &plan, &none);
    stats_text(&out, &sum, &plan);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&out), "operations: 0 per rank"));
    ck_assert_ptr_null(strstr(hb_buf_data(&out), "waited for"));
    hb_buf_free(&out);
    stats_sum_fini(&sum);
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("worker_stats");
    TCase *c = tcase_create("message");

    tcase_add_test(c, test_there_and_back);
    tcase_add_test(c, test_the_largest_fits);
    tcase_add_test(c, test_adding);
    tcase_add_test(c, test_many_blamed);
    tcase_add_test(c, test_refused);
    tcase_add_test(c, test_no_memory);
    suite_add_tcase(s, c);
    c = tcase_create("table");
    tcase_add_test(c, test_table);
    tcase_add_test(c, test_table_of_nothing);
    suite_add_tcase(s, c);
    return unit_run(s);
}
