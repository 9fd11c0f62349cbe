/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Join: ranks that have no more data help the others, change nothing, and
 * learn who was last.
 */
#include "runtime/plane/reduce.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int last_of(int n)
{
    return n - 1;
}

/* Rank r has r + 1 batches. */
static int uneven_body(int rank, void *arg)
{
    int n, last = -1;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i <= rank; i++) {
            int live = n - i;
            int32_t x[3] = {rank + 1, -rank - 1, 2};
            hvd_request *req = NULL;
            char name[16];

            snprintf(name, sizeof(name), "g%d", i % 2);
            want(hvd_allreduce_async(name, x, x, 1, HVD_INT32, HVD_SUM, NULL,
                                     &req) == 0);
            want(hvd_wait(req) == 0);
            want(x[0] == live * (i + 1 + n) / 2);
            want(hvd_allreduce(x + 1, x + 1, 1, HVD_INT32, HVD_MAX, NULL) == 0);
            want(x[1] == -i - 1);
            want(hvd_allreduce(x + 2, x + 2, 1, HVD_INT32, HVD_PRODUCT, NULL) ==
                 0);
            want(x[2] == 1 << live);
        }
        want(hvd_join(&last, NULL) == 0);
        want(last == last_of(n));
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_uneven)
{
    ck_assert_int_eq(world_run(_i, uneven_body, NULL), 0);
}
END_TEST

/* Every dtype and op: what the joined rank 2 gives changes nothing. */
static int neutral_one(int rank, enum hvd_dtype dtype, enum hvd_op op)
{
    const struct hvd__reduce_args args = {1.0, 1.0, 1, 0};
    hvd__reduce_fn *reduce = hvd__reduce_get(dtype, op);
    uint64_t in[2][4], out[4], expected[4];
    const void *srcs[2] = {in[0], in[1]};
    size_t count = sizeof(out) / hvd_dtype_size(dtype);

    if (!reduce)
        return 0;
    for (int r = 0; r < 2; r++)
        memset(in[r], dtype == HVD_BOOL ? r : 0x3c + 0x80 * r, sizeof(in[r]));
    want(hvd_allreduce(in[rank], out, count, dtype, op, NULL) == 0);
    reduce(expected, srcs, 2, count, &args);
    want(memcmp(out, expected, sizeof(out)) == 0);
    return 0;
}

static int neutral_body(int rank, void *arg)
{
    static const enum hvd_op ops[] = {HVD_SUM,     HVD_MIN,  HVD_MAX,
                                      HVD_PRODUCT, HVD_BAND, HVD_BOR};

    (void)arg;
    want(hvd_init() == 0);
    for (int dtype = 0; rank < 2 && dtype <= HVD_BFLOAT16; dtype++)
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
            want(neutral_one(rank, (enum hvd_dtype)dtype, ops[o]) == 0);
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_neutral)
{
    ck_assert_int_eq(world_run(3, neutral_body, NULL), 0);
}
END_TEST

/* The other collectives, of ranks 1 and 2 while rank 0 has joined. */
static int others_body(int rank, void *arg)
{
    int32_t one = 10 + rank, got[8], rows[4] = {1, 2, 3, 4}, mine[4] = {0};
    size_t counts[3], splits[3] = {1, 2, 1};
    int last = -1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank) {
        want(hvd_allgather(&one, 1, got, 8, counts, HVD_INT32, NULL) == 0);
        want(counts[0] == 0 && counts[1] == 1 && counts[2] == 1);
        want(got[0] == 11 && got[1] == 12);
        want(hvd_alltoall(rows, splits, 4, got, 8, counts, HVD_INT32, NULL) ==
             0);
        want(counts[0] == 0 && counts[1] == splits[rank]);
        want(counts[2] == splits[rank]);
        want(got[0] == (rank == 1 ? 2 : 4));
        want(hvd_reducescatter(rows, mine, 4, 1, HVD_INT32, HVD_SUM, NULL) ==
             0);
        want(mine[0] == (rank == 1 ? 6 : 8)); /* rank 0 has two rows */
        want(hvd_broadcast(&one, &one, 1, HVD_INT32, 1, NULL) == 0);
        want(one == 11);
        want(hvd_broadcast(&one, &one, 1, HVD_INT32, 0, NULL) == -HVD_EINVAL);
        want(strcmp(hvd_error_message(), "broadcast: root 0 has joined") == 0);
        want(hvd_barrier(NULL) == 0);
    }
    want(hvd_join(&last, NULL) == 0);
    want(last == 2);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_others)
{
    ck_assert_int_eq(world_run(3, others_body, NULL), 0);
}
END_TEST

/* Groups, averages of all and of the live. */
static int averages_body(int rank, void *arg)
{
    struct hvd_options live = HVD_OPTIONS_INIT;
    float a = 6, b = 12, x = 6;
    const void *sends[2] = {&a, &b};
    void *recvs[2] = {&a, &b};
    size_t counts[2] = {1, 1}, rows[2] = {3, 6};
    float c[3] = {6, 6, 6}, d[6] = {12, 12, 12, 12, 12, 12}, out[3];
    const void *row_sends[2] = {c, d};
    void *row_recvs[2] = {out, out + 1};

    (void)arg;
    live.live_average = 1;
    want(hvd_init() == 0);
    if (rank) {
        want(hvd_grouped_allreduce(2, sends, recvs, counts, HVD_FLOAT32,
                                   HVD_AVERAGE, NULL) == 0);
        want(a == 4 && b == 8);
        want(hvd_allreduce(&x, &x, 1, HVD_FLOAT32, HVD_AVERAGE, &live) == 0);
        want(x == 6);
        want(hvd_grouped_reducescatter(2, row_sends, row_recvs, rows, counts,
                                       HVD_FLOAT32, HVD_AVERAGE, &live) == 0);
        want(out[0] == 6 && out[1] == 12 && out[2] == 12);
        want(hvd_reducescatter(c, out, 3, 1, HVD_FLOAT32, HVD_AVERAGE, &live) ==
             0);
        want(out[0] == 6);
    }
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_averages)
{
    ck_assert_int_eq(world_run(3, averages_body, NULL), 0);
}
END_TEST

/* What a rank may not do meanwhile. */
static int misuse_body(int rank, void *arg)
{
    hvd_request *join = NULL, *req = NULL;
    int32_t x = 1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 0) {
        want(hvd_join_async(NULL, NULL, &join) == 0);
        want(hvd_allreduce_async("late", &x, &x, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == -HVD_EINVAL);
        want(hvd_join_async(NULL, NULL, &req) == -HVD_EINVAL);
    } else {
        want(hvd_allreduce_async("alone", &x, &x, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == 0);
        want(hvd_wait(req) == 0 && x == 1);
        want(hvd_join_async(NULL, NULL, &join) == 0);
    }
    want(hvd_wait(join) == 0);
    x = 1;
    want(hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, NULL) == 0 && x == 2);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_misuse)
{
    ck_assert_int_eq(world_run(2, misuse_body, NULL), 0);
}
END_TEST

static void *reduce(void *arg)
{
    int32_t x = 1;

    *(int *)arg = hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, NULL);
    return NULL;
}

/* Another thread's blocking call is in flight too. */
static int busy_body(int rank, void *arg)
{
    struct timespec nap = {0, 50 * 1000 * 1000};
    pthread_t thread;
    int rc = -1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 0) {
        want(pthread_create(&thread, NULL, reduce, &rc) == 0);
        nanosleep(&nap, NULL);
        want(hvd_join(NULL, NULL) == -HVD_EINVAL);
        want(strstr(hvd_error_message(), "in flight"));
        atomic_store(&world_board->flag[0], 1);
        want(pthread_join(thread, NULL) == 0);
    } else {
        while (!atomic_load(&world_board->flag[0]))
            sched_yield();
        reduce(&rc);
    }
    want(rc == 0);
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_busy)
{
    ck_assert_int_eq(world_run(2, busy_body, NULL), 0);
}
END_TEST

/* What is narrowed is packed on its way: by the stand-in too, or hosts of
 * different sizes would count different rounds. */
enum { NARROWED = 5000000 };

static int narrowed_body(int rank, void *arg)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    int last = -1;

    (void)arg;
    o.wire = HVD_WIRE_FLOAT16;
    want(hvd_init() == 0);
    if (rank != 0) {
        float *x = malloc(NARROWED * sizeof(*x));

        want(x != NULL);
        for (size_t i = 0; i < NARROWED; i++)
            x[i] = (float)(i % 100) + 1;
        want(hvd_allreduce(x, x, NARROWED, HVD_FLOAT32, HVD_SUM, &o) == 0);
        for (size_t i = 0; i < NARROWED; i++)
            want(x[i] == 2 * ((float)(i % 100) + 1));
        free(x);
    }
    want(hvd_join(&last, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_narrowed)
{
    static const char *const places[] = {NULL, "aab", "abb", "abc"};
    struct world w = {.size = 3, .body = narrowed_body, .place = places[_i]};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("join");
    TCase *tc = tcase_create("join");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_uneven, 1, 5);
    tcase_add_test(tc, test_neutral);
    tcase_add_test(tc, test_others);
    tcase_add_test(tc, test_averages);
    tcase_add_test(tc, test_misuse);
    tcase_add_test(tc, test_busy);
    tcase_add_loop_test(tc, test_narrowed, 0, 4);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
