/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking calls that equal the previous one, for which the library keeps what
 * it made of the arguments: each kind, with new data; mixed with other calls;
 * when another rank calls something else; from threads; after a new hvd_init.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>

enum { TIMES = 6, ELEMS = 12, GATHERS = 2 /* GATHERS: row of hvd_stats */ };

static int32_t send[ELEMS], recv[64 * ELEMS];

static void fill(int rank, int time)
{
    for (int i = 0; i < ELEMS; i++)
        send[i] = 1000 * time + 10 * rank + i;
}

/* Every kind, TIMES times with the same arguments and new data. */
static int kinds_body(int rank, void *arg)
{
    int n;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    for (int t = 0; t < TIMES; t++) {
        fill(rank, t);
        want(hvd_allreduce(send, recv, 3, HVD_INT32, HVD_MAX, NULL) == 0);
        want(recv[2] == 1000 * t + 10 * (n - 1) + 2);
    }
    for (int t = 0; t < TIMES; t++) {
        fill(rank, t);
        want(hvd_broadcast(send, recv, 3, HVD_INT32, n - 1, NULL) == 0);
        want(recv[2] == 1000 * t + 10 * (n - 1) + 2);
    }
    for (int t = 0; t < TIMES; t++) {
        size_t counts[64] = {0};

        fill(rank, t);
        want(hvd_allgather(send, 2, recv, 2 * 64, t % 2 ? counts : NULL,
                           HVD_INT32, NULL) == 0);
        for (int r = 0; r < n; r++)
            want(recv[2 * r + 1] == 1000 * t + 10 * r + 1 &&
                 counts[r] == (t % 2 ? 2 : 0));
    }
    for (int t = 0; t < TIMES; t++) {
        fill(rank, t);
        want(hvd_alltoall(send, NULL, (size_t)(2 * n), recv, 128, NULL,
                          HVD_INT32, NULL) == 0);
        for (int r = 0; r < n; r++)
            want(recv[2 * r + 1] == 1000 * t + 10 * r + 2 * rank + 1);
    }
    for (int t = 0; t < TIMES; t++) {
        fill(rank, t);
        want(hvd_reducescatter(send, recv, (size_t)n, 2, HVD_INT32, HVD_MIN,
                               NULL) == 0);
        want(recv[1] == 1000 * t + 2 * rank + 1);
    }
    for (int t = 0; t < TIMES; t++)
        want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_kinds)
{
    ck_assert_int_eq(world_run(_i, kinds_body, NULL), 0);
}
END_TEST

/* Calls that differ in one argument each, with asynchronous ones between. */
static int between_body(int rank, void *arg)
{
    struct hvd_options opts = HVD_OPTIONS_INIT, twice = HVD_OPTIONS_INIT;
    hvd_request *req;
    int n;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    twice.postscale = 2;
    for (int t = 0; t < 4 * TIMES; t++) {
        int32_t sum = n * 1000 * t + 10 * (n * (n - 1) / 2);

        fill(rank, t);
        /* Three equal calls, with NULL or default options. */
        for (int i = 0; i < 3; i++) {
            want(hvd_allreduce(send, recv, 1, HVD_INT32, HVD_SUM,
                               i % 2 ? &opts : NULL) == 0);
            want(recv[0] == sum);
        }
        switch (t % 6) {
        case 0:
            want(hvd_allreduce(send, recv, 1, HVD_INT32, HVD_SUM, &twice) == 0);
            want(recv[0] == 2 * sum);
            break;
        case 1:
            want(hvd_allreduce(send, recv, 1, HVD_INT32, HVD_MIN, NULL) == 0);
            want(recv[0] == 1000 * t);
            break;
        case 2:
            want(hvd_allreduce(send, recv + 1, 1, HVD_INT32, HVD_SUM, NULL) ==
                 0);
            want(recv[1] == sum);
            break;
        case 3:
            want(hvd_allreduce_async("a", send, recv + 2, 1, HVD_INT32, HVD_SUM,
                                     NULL, &req) == 0);
            want(hvd_allreduce(send, recv, 1, HVD_INT32, HVD_SUM, NULL) == 0);
            want(hvd_wait(req) == 0);
            want(recv[2] == sum && recv[0] == sum);
            break;
        case 4:
            want(hvd_allreduce(send, send + 1, 1, HVD_INT32, HVD_SUM, NULL) ==
                 0);
            want(send[1] == sum);
            break;
        default:
            want(hvd_allreduce(NULL, NULL, 0, HVD_INT32, HVD_SUM, NULL) == 0);
            want(hvd_allreduce(NULL, NULL, 0, HVD_INT32, HVD_SUM, NULL) == 0);
            break;
        }
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_between)
{
    ck_assert_int_eq(world_run(_i, between_body, NULL), 0);
}
END_TEST

/* Rank 0 makes a different call once: all ranks fail, and later calls work. */
static int mismatch_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int t = 0; t < 3 * TIMES; t++) {
        int odd = t % TIMES == 4;
        int rc;

        fill(rank, t);
        rc = hvd_allreduce(send, recv, odd && rank == 0 ? 2 : 3, HVD_INT32,
                           HVD_MAX, NULL);
        want(rc == (odd ? -HVD_EMISMATCH : 0));
        if (odd)
            want(strstr(hvd_error_message(), "count"));
        else
            want(recv[2] == 1000 * t + 10 * (hvd_size() - 1) + 2);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_mismatch)
{
    ck_assert_int_eq(world_run(_i, mismatch_body, NULL), 0);
}
END_TEST

/* Rank 0 sends more than there is room for once: all ranks fail, later calls
 * work, and each call is counted once. */
static int room_body(int rank, void *arg)
{
    struct hvd_stats stats = {.size = sizeof(stats)};
    uint64_t calls = 0;
    size_t counts[4];
    int n;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    for (int t = 0; t < 3 * TIMES; t++) {
        int odd = t % TIMES == 4;
        size_t own = odd && rank == 0 ? 3 : 2;
        int rc;

        fill(rank, t);
        rc = hvd_allgather(send, own, recv, (size_t)(2 * n), counts, HVD_INT32,
                           NULL);
        want(rc == (odd ? -HVD_EINVAL : 0));
        want(counts[0] == (odd ? 3 : 2) && counts[n - 1] == 2);
        if (odd)
            want(strstr(hvd_error_message(), "has room for"));
        else
            want(recv[2 * n - 1] == 1000 * t + 10 * (n - 1) + 1);
    }
    want(hvd_stats(&stats) == 0);
    for (int c = 0; c < HVD_STATS_CLASSES; c++)
        calls += stats.rows[GATHERS][c].count;
    want(calls == 3 * TIMES && stats.errors == 3);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_room)
{
    ck_assert_int_eq(world_run(_i, room_body, NULL), 0);
}
END_TEST

/* Adasum, which needs memory of its own; then ranks join one after the
 * other. */
static int joined_body(int rank, void *arg)
{
    static float x[ELEMS], y[ELEMS];
    int last = -1;

    (void)arg;
    want(hvd_init() == 0);
    for (int t = 0; t < TIMES; t++) {
        for (int i = 0; i < ELEMS; i++)
            x[i] = (float)(t + 1);
        want(hvd_allreduce(x, y, ELEMS, HVD_FLOAT32, HVD_ADASUM, NULL) == 0);
        want(y[0] == (float)(t + 1) && y[ELEMS - 1] == y[0]);
    }
    for (int t = 0; t < TIMES * (rank + 1); t++) {
        int from = t / TIMES; /* lower ranks have joined */

        x[0] = (float)(rank + 1);
        want(hvd_allreduce(x, y, 1, HVD_FLOAT32, HVD_SUM, NULL) == 0);
        for (int r = from; r < hvd_size(); r++)
            y[0] -= (float)(r + 1);
        want(y[0] == 0);
    }
    want(hvd_join(&last, NULL) == 0);
    want(last == hvd_size() - 1);
    want(hvd_allreduce(x, y, 1, HVD_FLOAT32, HVD_MAX, NULL) == 0);
    want(y[0] == (float)hvd_size());
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_joined)
{
    ck_assert_int_eq(world_run(3, joined_body, NULL), 0);
}
END_TEST

/* Rank 0 leaves while the others wait in the same call; then all return. */
static int leave_body(int rank, void *arg)
{
    (void)arg;
    for (int round = 0; round < 2; round++) {
        want(hvd_init() == 0);
        for (int t = 0; t < TIMES; t++) {
            fill(rank, t);
            want(hvd_allreduce(send, recv, 3, HVD_INT32, HVD_MAX, NULL) == 0);
            want(recv[0] == 1000 * t + 10 * (hvd_size() - 1));
        }
        if (rank > 0) {
            want(hvd_allreduce(send, recv, 3, HVD_INT32, HVD_MAX, NULL) ==
                 -HVD_ESHUTDOWN);
            want(strstr(hvd_error_message(), "rank 0"));
            want(hvd_allreduce(send, recv, 3, HVD_INT32, HVD_MAX, NULL) ==
                 -HVD_ESHUTDOWN);
        }
        want(hvd_shutdown() == 0);
        want(hvd_allreduce(send, recv, 3, HVD_INT32, HVD_MAX, NULL) ==
             -HVD_ENOTINIT);
    }
    return 0;
}

START_TEST(test_leave)
{
    ck_assert_int_eq(world_run(3, leave_body, NULL), 0);
}
END_TEST

/* Threads that issue the same call: any order of theirs is right. */
static int thread_main(int i)
{
    int failed = 0;

    (void)i;
    for (int t = 0; t < 50 * TIMES; t++)
        failed |= hvd_allreduce(send, recv, 1, HVD_INT32, HVD_SUM, NULL) != 0;
    return failed;
}

static int threads_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    send[0] = rank;
    want(world_threads(3, thread_main) == 0);
    want(recv[0] == hvd_size() * (hvd_size() - 1) / 2);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_threads)
{
    ck_assert_int_eq(world_run(2, threads_body, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("again");
    TCase *tc = tcase_create("again");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_kinds, 1, 4);
    tcase_add_loop_test(tc, test_between, 1, 4);
    tcase_add_loop_test(tc, test_mismatch, 2, 4);
    tcase_add_loop_test(tc, test_room, 2, 4);
    tcase_add_test(tc, test_joined);
    tcase_add_test(tc, test_leave);
    tcase_add_test(tc, test_threads);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
