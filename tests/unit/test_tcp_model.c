/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The algorithms that a TCP group chooses from its model, where published
 * analyses put the switch points; and all members get the same model from
 * measuring and from its knobs.
 */
#include "runtime/plane/tcp/tcp.h"
#include "tests/unit/tcp_group.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MS = 20000 };

static struct hvd__tcp_model link_of(int members, double gbps)
{
    struct hvd__tcp_model m = {members, 20.0, gbps * 1e3};

    return m;
}

static enum hvd__tcp_algorithm allreduce(int members, double gbps, size_t bytes)
{
    struct hvd__tcp_model m = link_of(members, gbps);

    return hvd__tcp_choose_allreduce(&m, bytes);
}

static enum hvd__tcp_algorithm broadcast(int members, double gbps, size_t bytes)
{
    struct hvd__tcp_model m = link_of(members, gbps);

    return hvd__tcp_choose_broadcast(&m, bytes);
}

/* n* = alpha log2 P / (beta (log2 P - 2 (P - 1) / P)); on fast links the cost
 * of reducing makes it up to five times smaller. */
START_TEST(test_switch_points)
{
    static const struct {
        int members;
        double gbps;
        size_t bytes;
    } rows[] = {
        {4, 1.2, 96000},  {8, 1.2, 58000},   {64, 1.2, 36000},
        {4, 11., 880000}, {16, 3.0, 113000}, {64, 11., 330000},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_int_eq(
            allreduce(rows[i].members, rows[i].gbps, rows[i].bytes / 5),
            HVD__TCP_RD);
        ck_assert_int_eq(
            allreduce(rows[i].members, rows[i].gbps, rows[i].bytes * 5 / 4),
            HVD__TCP_RABENSEIFNER);
    }
}
END_TEST

START_TEST(test_extremes)
{
    for (int n = 1; n <= 64; n++) {
        enum hvd__tcp_algorithm small = allreduce(n, 1.2, 8);
        enum hvd__tcp_algorithm large = allreduce(n, 1.2, (size_t)1 << 34);
        int power = (n & (n - 1)) == 0;

        /* Folding costs two more rounds: with 3 members that is a ring. */
        ck_assert(small == HVD__TCP_RD || n == 3);
        if (n > 2)
            ck_assert_int_eq(large,
                             power ? HVD__TCP_RABENSEIFNER : HVD__TCP_RING);
    }
    ck_assert_int_eq(allreduce(2, 1.2, 256 << 10), HVD__TCP_RD);
}
END_TEST

START_TEST(test_broadcast)
{
    for (int n = 4; n <= 64; n++) {
        ck_assert_int_eq(broadcast(n, 1.2, 8), HVD__TCP_TREE);
        ck_assert_int_eq(broadcast(n, 1.2, (size_t)1 << 34), HVD__TCP_CHAIN);
    }
}
END_TEST

/* The more other members, the less data rides along. */
START_TEST(test_ride)
{
    size_t last = SIZE_MAX;

    for (int n = 2; n <= 64; n++) {
        struct hvd__tcp_model m = link_of(n, 3.0);
        size_t bytes = hvd__tcp_ride_bytes(&m);

        ck_assert_uint_ge(bytes, 1024);
        ck_assert_uint_le(bytes, 256 << 10);
        ck_assert((bytes & (bytes - 1)) == 0);
        if ((n & (n - 1)) == 0) {
            ck_assert_uint_le(bytes, last);
            last = bytes;
        }
    }
    ck_assert_uint_lt(last, 64 << 10);
}
END_TEST

START_TEST(test_names)
{
    ck_assert_str_eq(hvd__tcp_algorithm_name(HVD__TCP_RD), "tcp.rd");
    ck_assert_str_eq(hvd__tcp_algorithm_name(HVD__TCP_CHAIN), "tcp.chain");
    for (int a = HVD__TCP_AUTO; a <= HVD__TCP_CHAIN; a++)
        for (int b = HVD__TCP_AUTO; b < a; b++)
            ck_assert_str_ne(
                hvd__tcp_algorithm_name((enum hvd__tcp_algorithm)a),
                hvd__tcp_algorithm_name((enum hvd__tcp_algorithm)b));
}
END_TEST

/* ---- Measuring ------------------------------------------------------- */

/* Exchanges all members' models and compares them. */
static int same_on_all(struct tcp_group *g, struct hvd__tcp *t, int me)
{
    struct hvd__tcp_model mine = *hvd__tcp_model(t), theirs[TCP_GROUP_MAX];
    struct hvd__tcp_block blocks[TCP_GROUP_MAX];

    for (int i = 0; i < g->n; i++)
        blocks[i] = (struct hvd__tcp_block){&theirs[i], sizeof(theirs[i])};
    hvd__tcp_exchange(t, &mine, sizeof(mine), 0, blocks);
    must(tcp_group_finish(t, NULL) == 1);
    for (int i = 0; i < g->n; i++)
        must(i == me || (theirs[i].members == mine.members &&
                         theirs[i].alpha_us == mine.alpha_us &&
                         theirs[i].bytes_per_us == mine.bytes_per_us));
    return 0;
}

static int measured_body(struct tcp_group *g, int me)
{
    const struct hvd__tcp_model *m;
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    m = hvd__tcp_model(t);
    must(m->members == g->n && m->alpha_us > 0 && m->bytes_per_us > 0);
    must(same_on_all(g, t, me) == 0);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_measured)
{
    struct tcp_group g = {.n = _i, .body = measured_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* Members with different knobs agree on the worst. */
static int knobs_body(struct tcp_group *g, int me)
{
    const struct hvd__tcp_model *m;
    struct hvd__tcp *t = NULL;

    must(setenv("HVD_TCP_ALPHA_US", me == 1 ? "2000000e-1" : "1.5", 1) == 0);
    must(setenv("HOROVOD_TCP_BETA_GBPS", me == 2 ? "0.25" : "12.5", 1) == 0);
    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    m = hvd__tcp_model(t);
    must(fabs(m->alpha_us - 2e5) < 1 && fabs(m->bytes_per_us - 250) < 1);
    must(same_on_all(g, t, me) == 0);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_knobs)
{
    struct tcp_group g = {.n = 3, .body = knobs_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static int bad_knob_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    int rc;

    if (me == 0)
        must(setenv("HVD_TCP_ALPHA_US", "fast", 1) == 0);
    rc = tcp_group_open(g, me, OPEN_MS, &t, &err);
    if (me == 0) {
        must(rc == -HVD_EINVAL && !t);
        must(strncmp(err.text, "HVD_TCP_ALPHA_US: ", 18) == 0);
    } else {
        must(rc == -HVD_EPEER && err.rank == 100);
    }
    return 0;
}

START_TEST(test_bad_knob)
{
    struct tcp_group g = {.n = 2, .body = bad_knob_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static Suite *tcp_model_suite(void)
{
    Suite *s = suite_create("tcp_model");
    TCase *t = tcase_create("tcp_model");

    tcase_set_timeout(t, 100);
    tcase_add_test(t, test_switch_points);
    tcase_add_test(t, test_extremes);
    tcase_add_test(t, test_broadcast);
    tcase_add_test(t, test_ride);
    tcase_add_test(t, test_names);
    tcase_add_loop_test(t, test_measured, 1, 9);
    tcase_add_test(t, test_knobs);
    tcase_add_test(t, test_bad_knob);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_model_suite());
}
