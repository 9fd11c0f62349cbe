/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named operations in any order: how ranks agree, what that costs, and that a
 * learned order costs nothing; groups; priorities.
 */
#include "lib/base/alloc.h"
#include "runtime/core/sched/engine_impl.h"
#include "runtime/core/sched/plan.h"
#include "tests/unit/burst.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 24, ELEMS = 300, STEPS = 30 };

static struct hvd_stats stats(void)
{
    struct hvd_stats s = {.size = sizeof(s)};

    hvd_stats(&s);
    return s;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 16;
}

/* Fills order with a permutation of 0 .. n-1 that depends on `seed`. */
static void shuffle(int *order, int n, unsigned seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(next_random(&seed) % (unsigned)(i + 1));
        int t = order[i];

        order[i] = order[k];
        order[k] = t;
    }
}

static int32_t bufs[TENSORS][ELEMS];
static hvd_request *reqs[TENSORS];

static size_t elems_of(int tensor)
{
    return (size_t)(1 + tensor * 37 % ELEMS);
}

static int issue_one(int tensor, int step)
{
    char name[32];

    snprintf(name, sizeof(name), "tensor.%d", tensor);
    for (size_t i = 0; i < elems_of(tensor); i++)
        bufs[tensor][i] = hvd_rank() + tensor + step;
    return hvd_allreduce_async(name, bufs[tensor], bufs[tensor],
                               elems_of(tensor), HVD_INT32, HVD_SUM, NULL,
                               &reqs[tensor]);
}

static int check_one(int tensor, int step)
{
    int n = hvd_size(), sum = n * (n - 1) / 2 + n * (tensor + step);

    want(hvd_wait(reqs[tensor]) == 0);
    for (size_t i = 0; i < elems_of(tensor); i++)
        want(bufs[tensor][i] == sum);
    return 0;
}

/* Every rank issues and waits in an order of its own, a new one in each
 * step. */
static int any_order_body(int rank, void *arg)
{
    int order[TENSORS];

    (void)arg;
    want(hvd_init() == 0);
    for (int step = 0; step < STEPS; step++) {
        shuffle(order, TENSORS, (unsigned)(step * 100 + rank));
        for (int i = 0; i < TENSORS; i++)
            want(issue_one(order[i], step) == 0);
        shuffle(order, TENSORS, (unsigned)(step * 100 + rank + 50));
        for (int i = 0; i < TENSORS; i++)
            want(check_one(order[i], step) == 0);
    }
    want(stats().errors == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_any_order)
{
    ck_assert_int_eq(world_run(_i, any_order_body, NULL), 0);
}
END_TEST

/* After the first step the ranks negotiate nothing, although they issue in
 * different orders; nor after a step that differed. */
static int learning_body(int rank, void *arg)
{
    struct hvd_stats before, after;
    int order[TENSORS];

    (void)arg;
    want(hvd_init() == 0);
    shuffle(order, TENSORS, (unsigned)rank);
    for (int round = 0; round < 2; round++) {
        for (int step = 0; step < STEPS; step++) {
            int n = step == 0 ? TENSORS - 3 * round : TENSORS;

            if (step == 2)
                before = stats();
            burst_begin();
            for (int i = 0; i < TENSORS; i++)
                want(order[i] >= n || issue_one(order[i], step) == 0);
            burst_end();
            for (int i = 0; i < n; i++)
                want(check_one(i, step) == 0);
        }
        after = stats();
        want(after.negotiations == before.negotiations);
        want(after.learned > before.learned);
        want(after.operations - before.operations <=
             (STEPS - 2) * (uint64_t)TENSORS);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_learning)
{
    ck_assert_int_eq(world_run(_i, learning_body, NULL), 0);
}
END_TEST

/* The driver waits, as long as it may, for an operation that it foresees and
 * that is not issued yet.  It proposes nothing else, so nothing is
 * negotiated. */
static int hold_body(int rank, void *arg)
{
    struct hvd_stats before;
    struct hvd__engine *e;

    (void)arg;
    want(hvd_init() == 0);
    e = &hvd__context.sets[HVD_WORLD].engine;
    for (int step = 0; step < 4; step++) {
        before = stats();
        burst_begin();
        if (rank == 0 && step > 1) {
            want(issue_one(1, step) == 0);
            want(engine_try_drive(e, HVD__DRIVER_CALLER));
            for (int i = 0; i < 100; i++)
                want(hvd__controller_step(&e->controller, UINT64_MAX) ==
                     HVD__STEP_HOLD);
            engine_step_back(e);
        }
        want(issue_one(0, step) == 0);
        want((rank == 0 && step > 1) || issue_one(1, step) == 0);
        burst_end();
        want(check_one(0, step) == 0);
        want(check_one(1, step) == 0);
    }
    want(stats().negotiations == before.negotiations);
    want(stats().learned > before.learned);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_hold)
{
    ck_assert_int_eq(world_run(2, hold_body, NULL), 0);
}
END_TEST

/* Ranks fuse different numbers of the operations that they agreed on, with a
 * broadcast among these. */
static int thresholds_body(int rank, void *arg)
{
    static const char *const bytes[] = {"0", "3000", "100000"};
    int order[TENSORS];

    (void)arg;
    want(setenv("HVD_FUSION_THRESHOLD", bytes[rank], 1) == 0);
    want(hvd_init() == 0);
    for (int step = 0; step < STEPS; step++) {
        int32_t x = rank == 2 ? step : -1;
        hvd_request *last = NULL;
        char name[32];

        shuffle(order, TENSORS, (unsigned)(step * 100 + rank));
        for (int i = 0; i < TENSORS; i++)
            want(issue_one(order[i], step) == 0);
        snprintf(name, sizeof(name), "last.%d", step);
        want(hvd_broadcast_async(name, &x, &x, 1, HVD_INT32, 2, NULL, &last) ==
             0);
        for (int i = 0; i < TENSORS; i++)
            want(check_one(order[i], step) == 0);
        want(hvd_wait(last) == 0 && x == step);
    }
    want(stats().errors == 0 && stats().cuts > 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_thresholds)
{
    ck_assert_int_eq(world_run(3, thresholds_body, NULL), 0);
}
END_TEST

/* Blocking waits in opposite orders: each rank waits first for what the other
 * issues last. */
static int crossing_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int step = 0; step < STEPS; step++) {
        int first = (rank + step) % 2;

        want(issue_one(first, step) == 0);
        if (step % 3 == 0)
            want(issue_one(2, step) == 0);
        want(issue_one(1 - first, step) == 0);
        want(check_one(first, step) == 0);
        want(check_one(1 - first, step) == 0);
        if (step % 3 == 0)
            want(check_one(2, step) == 0);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_crossing)
{
    ck_assert_int_eq(world_run(_i, crossing_body, NULL), 0);
}
END_TEST

/* Threads of one process use different names at the same time. */
static int thread_main(int id)
{
    int32_t x[8];

    for (int i = 0; i < 200; i++) {
        hvd_request *req = NULL;
        char name[32];

        snprintf(name, sizeof(name), "thread.%d.%d", id, i % 3);
        for (int k = 0; k < 8; k++)
            x[k] = id + i;
        if (hvd_allreduce_async(name, x, x, 8, HVD_INT32, HVD_SUM, NULL, &req) <
                0 ||
            hvd_wait(req) < 0 || x[7] != hvd_size() * (id + i))
            return 1;
    }
    return 0;
}

static int threads_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    want(world_threads(4, thread_main) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_threads)
{
    ck_assert_int_eq(world_run(_i, threads_body, NULL), 0);
}
END_TEST

/* One rank's tensor changes: that operation fails on all ranks, and others that
 * would be fused with it succeed. */
static int changed_body(int rank, void *arg)
{
    hvd_request *req = NULL;
    int32_t x[4] = {1, 1, 1, 1};

    (void)arg;
    want(hvd_init() == 0);
    for (int step = 0; step < 10; step++) {
        size_t count = step == 5 && rank == 1 ? 3 : 4;

        want(issue_one(0, step) == 0);
        want(hvd_allreduce_async("changes", x, x, count, HVD_INT32, HVD_SUM,
                                 NULL, &req) == 0);
        want(issue_one(1, step) == 0);
        if (step == 5) {
            want(hvd_wait(req) == -HVD_EMISMATCH);
            want(strcmp(hvd_error_message(),
                        "allreduce \"changes\": rank 0 has count 4, rank 1 "
                        "has count 3") == 0);
        } else {
            want(hvd_wait(req) == 0);
        }
        want(check_one(0, step) == 0);
        want(check_one(1, step) == 0);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_changed)
{
    ck_assert_int_eq(world_run(3, changed_body, NULL), 0);
}
END_TEST

/* ---- Groups ---------------------------------------------------------- */

static int group_body(int rank, void *arg)
{
    float a[100], b[7], c[1000];
    const void *sends[3] = {a, b, c};
    void *recvs[3] = {a, b, c};
    const size_t counts[3] = {100, 7, 1000};
    int n;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    for (int step = 0; step < 5; step++) {
        hvd_request *req = NULL;

        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < counts[i]; k++)
                ((float *)recvs[i])[k] = (float)((int)i + rank + step);
        if (step % 2)
            want(hvd_grouped_allreduce(3, sends, recvs, counts, HVD_FLOAT32,
                                       HVD_SUM, NULL) == 0);
        else
            want(hvd_grouped_allreduce_async("group", 3, sends, recvs, counts,
                                             HVD_FLOAT32, HVD_SUM, NULL,
                                             &req) == 0 &&
                 hvd_wait(req) == 0);
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < counts[i]; k++)
                want(((float *)recvs[i])[k] ==
                     (float)(n * ((int)i + step) + n * (n - 1) / 2));
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_group_allreduce)
{
    ck_assert_int_eq(world_run(_i, group_body, NULL), 0);
}
END_TEST

static int group_gather_body(int rank, void *arg)
{
    int32_t one = rank, many[3] = {rank, rank, rank}, out1[8], out2[24];
    const void *sends[2] = {&one, many};
    void *recvs[2] = {out1, out2};
    size_t counts[2] = {1, (size_t)(rank % 3 + 1)}, caps[2] = {8, 24};
    size_t got[16], at = 0;
    int n;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    want(hvd_grouped_allgather(2, sends, counts, recvs, caps, got, HVD_INT32,
                               NULL) == 0);
    for (int r = 0; r < n; r++) {
        want(got[r] == 1 && out1[r] == r);
        want(got[n + r] == (size_t)(r % 3 + 1));
        for (size_t k = 0; k < got[n + r]; k++)
            want(out2[at++] == r);
    }
    caps[0] = rank == 0 ? 0 : 8; /* too small on rank 0 only */
    want(hvd_grouped_allgather(2, sends, counts, recvs, caps, got, HVD_INT32,
                               NULL) == (rank ? 0 : -HVD_EINVAL));
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_group_allgather)
{
    ck_assert_int_eq(world_run(_i, group_gather_body, NULL), 0);
}
END_TEST

static int group_mismatch_body(int rank, void *arg)
{
    int32_t a[4] = {0}, b[4] = {0};
    const void *sends[2] = {a, b};
    void *recvs[2] = {a, b};
    size_t counts[2] = {2, 2};

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_grouped_allreduce(rank ? 1 : 2, sends, recvs, counts, HVD_INT32,
                               HVD_SUM, NULL) == -HVD_EMISMATCH);
    counts[0] = rank ? 1 : 2;
    counts[1] = rank ? 3 : 2;
    want(hvd_grouped_allreduce(2, sends, recvs, counts, HVD_INT32, HVD_SUM,
                               NULL) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(),
                "allreduce: rank 0 has count 2 of member 0, "
                "rank 1 has count 1"));
    counts[0] = counts[1] = 2;
    want(hvd_grouped_allreduce(2, sends, recvs, counts, HVD_INT32, HVD_SUM,
                               NULL) == 0);
    want(hvd_grouped_allreduce(0, sends, recvs, counts, HVD_INT32, HVD_SUM,
                               NULL) == -HVD_EINVAL);
    recvs[1] = NULL;
    want(hvd_grouped_allreduce(2, sends, recvs, counts, HVD_INT32, HVD_SUM,
                               NULL) == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "member 1: recvbuf is NULL"));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_group_mismatch)
{
    ck_assert_int_eq(world_run(2, group_mismatch_body, NULL), 0);
}
END_TEST

/* ---- After a failure -------------------------------------------------- */

/* Unnamed operations issued after one that fails are still matched in order,
 * also where the ranks agreed on all of them at once. */
static int unnamed_mismatch_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < STEPS; i++) {
        int bad = i % 4; /* 3: none of them */
        int32_t x[3][2];
        hvd_request *r[3];

        for (int k = 0; k < 3; k++) {
            x[k][0] = x[k][1] = i + k + rank;
            want(hvd_allreduce_async(NULL, x[k], x[k], rank && k == bad ? 1 : 2,
                                     HVD_INT32, HVD_SUM, NULL, &r[k]) == 0);
        }
        for (int k = 0; k < 3; k++)
            want(hvd_wait(r[k]) == (k == bad ? -HVD_EMISMATCH : 0) &&
                 (k == bad || x[k][1] == 3 * (i + k) + 3));
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_unnamed_mismatch)
{
    ck_assert_int_eq(world_run(3, unnamed_mismatch_body, NULL), 0);
}
END_TEST

/* A rank has no memory for its part: all ranks fail, none waits for it, and a
 * later call is not taken for the failed one. */
static int no_memory_body(int rank, void *arg)
{
    int blocking = *(const int *)arg;
    float x[4] = {1, 2, 3, 4};
    hvd_request *req = NULL;
    int rc;

    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 1)
        hb_alloc_fail_after(blocking ? 0 : 1); /* the request itself is
                                                * allocated */
    if (!blocking)
        want(hvd_allreduce_async(NULL, x, x, 4, HVD_FLOAT32, HVD_ADASUM, NULL,
                                 &req) == 0);
    rc = blocking ? hvd_allreduce(x, x, 4, HVD_FLOAT32, HVD_ADASUM, NULL)
                  : hvd_wait(req);
    hb_alloc_fail_after(-1);
    want(rc == (rank == 1 ? -HVD_ENOMEM : -HVD_ESHUTDOWN));
    want(rank == 1 || strstr(hvd_error_message(), "rank 1"));
    rc = hvd_allreduce(x, x, 4, HVD_FLOAT32, HVD_ADASUM, NULL);
    want(rc == (rank == 1 ? -HVD_ENOMEM : -HVD_ESHUTDOWN));
    want(hvd_shutdown() == 0);
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_no_memory)
{
    ck_assert_int_eq(world_run(2, no_memory_body, &_i), 0);
}
END_TEST

/* ---- Many ------------------------------------------------------------- */

enum { MANY = 10000 };

/* More operations than ranks announce in one round, in reverse on rank 0. */
static int many_body(int rank, void *arg)
{
    static int32_t x[MANY];
    static hvd_request *many[MANY];
    char name[32];

    (void)arg;
    want(hvd_init() == 0);
    burst_begin();
    for (int k = 0; k < MANY; k++) {
        int i = rank ? k : MANY - 1 - k;

        x[i] = i;
        snprintf(name, sizeof(name), "tensor.%d", i);
        want(hvd_allreduce_async(name, &x[i], &x[i], 1, HVD_INT32, HVD_SUM,
                                 NULL, &many[i]) == 0);
    }
    burst_end();
    for (int i = 0; i < MANY; i++)
        want(hvd_wait(many[i]) == 0 && x[i] == 2 * i);
    want(stats().negotiations < 20);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_many)
{
    ck_assert_int_eq(world_run(2, many_body, NULL), 0);
}
END_TEST

/* Names that never come again do not fill the plan; those in flight stay in
 * it. */
START_TEST(test_names)
{
    struct hvd_request request;
    struct hvd__entry *e, *busy = NULL;
    struct hvd__plan plan;
    char name[32];

    hvd__plan_init(&plan);
    for (int i = 0; i < HVD__PLAN_NAMES_MAX + MANY; i++) {
        snprintf(name, sizeof(name), "step.%d", i);
        e = hvd__plan_entry(&plan, name, hvd__name_hash(name));
        ck_assert_ptr_nonnull(e);
        ck_assert_str_eq(e->name, name);
        ck_assert_ptr_ne(e, busy);
        hvd__plan_done(&plan, e, (uint64_t)i);
        if (i == 7) {
            busy = e;
            busy->pending = &request;
        }
    }
    ck_assert_uint_eq(plan.count, HVD__PLAN_NAMES_MAX);
    ck_assert_ptr_eq(hvd__plan_entry(&plan, "step.7", hvd__name_hash("step.7")),
                     busy);
    ck_assert_ptr_eq(hvd__plan_entry(&plan, name, hvd__name_hash(name)), e);
    hvd__plan_fini(&plan);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("order");
    TCase *tc = tcase_create("order");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_any_order, 1, 5);
    tcase_add_test(tc, test_thresholds);
    tcase_add_test(tc, test_changed);
    tcase_add_loop_test(tc, test_crossing, 2, 5);
    tcase_add_loop_test(tc, test_threads, 1, 4);
    tcase_add_loop_test(tc, test_group_allreduce, 1, 5);
    tcase_add_loop_test(tc, test_group_allgather, 1, 5);
    tcase_add_test(tc, test_group_mismatch);
    tcase_add_test(tc, test_unnamed_mismatch);
    tcase_add_loop_test(tc, test_no_memory, 0, 2);
    tcase_add_test(tc, test_names);
    suite_add_tcase(s, tc);
    tc = tcase_create("counts");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_learning, 1, 5);
    tcase_add_test(tc, test_hold);
    tcase_add_test(tc, test_many);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
