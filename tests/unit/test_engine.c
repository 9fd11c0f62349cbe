/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: asynchronous operations, the thread that drives when no caller
 * waits, several user threads, requests and hvd_shutdown, lack of memory.
 */
#include "lib/base/alloc.h"
#include "runtime/core/world/context.h"
#include "runtime/hvd.h"
#include "runtime/trace/stall.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 64, THREADS = 4, PER_THREAD = 300, LARGE = 1 << 20 };

static size_t batch_count(int i)
{
    static const size_t counts[] = {1, 0, 300, 20000, 3, 70001};

    return counts[i % 6];
}

static int submit_batch(int32_t **bufs, hvd_request **reqs)
{
    for (int i = 0; i < BATCH; i++) {
        char name[16];

        for (size_t k = 0; k < batch_count(i); k++)
            bufs[i][k] = hvd_rank() + i;
        snprintf(name, sizeof(name), "t%d", i);
        want(hvd_allreduce_async(name, bufs[i], bufs[i], batch_count(i),
                                 HVD_INT32, HVD_SUM, NULL, &reqs[i]) == 0);
    }
    return 0;
}

static int check_batch(int i, const int32_t *buf)
{
    int n = hvd_size();

    for (size_t k = 0; k < batch_count(i); k++)
        want(buf[k] == n * (n - 1) / 2 + n * i);
    return 0;
}

/* Waits for the requests forwards, backwards, or by polling. */
static int batch_body(int rank, void *arg)
{
    int32_t *bufs[BATCH];
    hvd_request *reqs[BATCH];

    (void)arg;
    for (int i = 0; i < BATCH; i++)
        want((bufs[i] = malloc(80000 * sizeof(int32_t))));
    want(hvd_init() == 0);
    for (int trial = 0; trial < 12; trial++) {
        int how = (trial + rank) % 3; /* ranks need not do the same */

        want(submit_batch(bufs, reqs) == 0);
        for (int k = 0; k < BATCH; k++) {
            int i = how == 1 ? BATCH - 1 - k : k, done = how != 2;

            while (!done)
                want(hvd_test(reqs[i], &done) == 0);
            want(hvd_wait(reqs[i]) == 0);
            want(check_batch(i, bufs[i]) == 0);
        }
    }
    want(hvd_shutdown() == 0);
    for (int i = 0; i < BATCH; i++)
        free(bufs[i]);
    return 0;
}

START_TEST(test_batches)
{
    ck_assert_int_eq(world_run(_i, batch_body, NULL), 0);
}
END_TEST

/* Rank 0 submits an operation and stays away from the library: only its engine
 * thread can take part in what rank 1 waits for. */
static int background_body(int rank, void *arg)
{
    int32_t *buf = calloc(LARGE, sizeof(*buf));
    hvd_request *req = NULL;

    (void)arg;
    want(buf && hvd_init() == 0);
    for (int i = 1; i <= 20; i++) {
        buf[LARGE - 1] = 1;
        want(hvd_allreduce_async("g", buf, buf, LARGE, HVD_INT32, HVD_SUM, NULL,
                                 &req) == 0);
        if (rank == 0) {
            while (atomic_load(&world_board->flag[0]) < i)
                sched_yield();
        } else {
            want(hvd_wait(req) == 0);
            atomic_store(&world_board->flag[0], i);
        }
        if (rank == 0)
            want(hvd_wait(req) == 0);
        want(buf[LARGE - 1] == 2);
    }
    want(hvd_shutdown() == 0);
    free(buf);
    return 0;
}

START_TEST(test_background)
{
    ck_assert_int_eq(world_run(2, background_body, NULL), 0);
}
END_TEST

/* The stall check's count of carried-out operations is the same on every rank:
 * a mismatch does not count, and each operation of a fused one does. */
static int carried_out_body(int rank, void *arg)
{
    struct segment_status *s;
    hvd_request *reqs[3];
    int32_t x[3] = {1, 1, 1};

    (void)arg;
    want(hvd_init() == 0);
    s = hvd__stall_on();
    want(s && atomic_load(&s->carried_out[0]) == 0);
    for (int i = 0; i < 3; i++)
        want(hvd_barrier(NULL) == 0);
    want(atomic_load(&s->carried_out[0]) == 3);
    for (int i = 0; i < 3; i++)
        want(hvd_allreduce_async(i == 1 ? "b"
                                 : i    ? "c"
                                        : "a",
                                 &x[i], &x[i], 1, HVD_INT32, HVD_SUM, NULL,
                                 &reqs[i]) == 0);
    for (int i = 0; i < 3; i++)
        want(hvd_wait(reqs[i]) == 0);
    want(atomic_load(&s->carried_out[0]) == 6);
    want(hvd_allreduce(x, x, rank ? 2 : 1, HVD_INT32, HVD_SUM, NULL) ==
         -HVD_EMISMATCH);
    want(hvd_barrier(NULL) == 0);
    want(atomic_load(&s->carried_out[0]) == 7);
    return hvd_shutdown();
}

START_TEST(test_carried_out)
{
    ck_assert_int_eq(world_run(2, carried_out_body, NULL), 0);
}
END_TEST

/* ---- Threads ------------------------------------------------------- */

/* All threads issue the same operation, so any order of theirs matches. */
static int issue(int id)
{
    int ok = 1;
    int32_t buf[40];

    for (int i = 0; i < PER_THREAD && ok; i++) {
        hvd_request *req = NULL;

        for (int k = 0; k < 40; k++)
            buf[k] = 1;
        if ((i + id) % 3 == 0)
            ok = hvd_allreduce_async(NULL, buf, buf, 40, HVD_INT32, HVD_SUM,
                                     NULL, &req) == 0 &&
                 hvd_wait(req) == 0;
        else
            ok = hvd_allreduce(buf, buf, 40, HVD_INT32, HVD_SUM, NULL) == 0;
        for (int k = 0; k < 40; k++)
            ok = ok && buf[k] == hvd_size();
    }
    return !ok;
}

static int threads_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    want(world_threads(THREADS, issue) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_threads)
{
    ck_assert_int_eq(world_run(_i, threads_body, NULL), 0);
}
END_TEST

static void *fail_quietly(void *arg)
{
    int *ok = arg;

    *ok = hvd_barrier_async(NULL, NULL, NULL) == -HVD_EINVAL &&
          strstr(hvd_error_message(), "req is NULL");
    return NULL;
}

START_TEST(test_message_per_thread)
{
    pthread_t thread;
    int ok = 0;

    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_wait(NULL), -HVD_EINVAL);
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_quietly, &ok), 0);
    pthread_join(thread, NULL);
    ck_assert(ok);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "hvd_wait"));
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

/* ---- Requests ------------------------------------------------------ */

/* The second use of a name waits until the first is done.  Rank 1 comes late,
 * so that the first is still in flight on rank 0. */
static int duplicate_body(int rank, void *arg)
{
    hvd_request *first = NULL, *second = NULL;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 1)
        while (!atomic_load(&world_board->flag[0]))
            sched_yield();
    want(hvd_barrier_async("b", NULL, &first) == 0);
    if (rank == 0) {
        want(hvd_barrier_async("b", NULL, &second) == -HVD_EDUPNAME);
        want(strstr(hvd_error_message(), "barrier \"b\""));
        atomic_store(&world_board->flag[0], 1);
    }
    want(hvd_wait(first) == 0);
    want(hvd_barrier_async("b", NULL, &second) == 0);
    want(hvd_wait(second) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_duplicate_name)
{
    ck_assert_int_eq(world_run(2, duplicate_body, NULL), 0);
}
END_TEST

/* hvd_shutdown fails pending requests.  hvd_wait frees them even after it, and
 * even in the next world. */
static int pending_body(int rank, void *arg)
{
    static int32_t buf[40];
    hvd_request *reqs[5];
    int done = 0;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 1) {
        want(hvd_shutdown() == 0);
        want(hvd_init() == 0 && hvd_barrier(NULL) == 0);
        want(hvd_shutdown() == 0);
        return 0;
    }
    for (int i = 0; i < 5; i++)
        want(hvd_allreduce_async(NULL, buf, buf, 40, HVD_INT32, HVD_SUM, NULL,
                                 &reqs[i]) == 0);
    want(hvd_shutdown() == 0);
    want(hvd_test(reqs[3], &done) == 0 && done);
    want(hvd_wait(reqs[0]) == -HVD_ESHUTDOWN);
    want(hvd_init() == 0 && hvd_barrier(NULL) == 0);
    for (int i = 1; i < 5; i++) {
        want(hvd_wait(reqs[i]) == -HVD_ESHUTDOWN);
        want(strstr(hvd_error_message(), "shut"));
    }
    want(hvd_barrier(NULL) == -HVD_ESHUTDOWN); /* rank 1 has left again */
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_pending_at_shutdown)
{
    ck_assert_int_eq(world_run(2, pending_body, NULL), 0);
}
END_TEST

struct waiter {
    hvd_request *req;
    int rc;
};

static void *wait_for(void *arg)
{
    struct waiter *w = arg;

    atomic_fetch_add(&world_board->flag[1], 1);
    w->rc = w->req ? hvd_wait(w->req) : hvd_barrier(NULL);
    return NULL;
}

/* Threads are inside the library when another one shuts it down. */
static int waiting_body(int rank, void *arg)
{
    struct waiter w[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    pthread_t threads[3];

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 1) {
        while (atomic_load(&world_board->flag[2]) == 0)
            sched_yield();
        return hvd_shutdown();
    }
    want(hvd_barrier_async(NULL, NULL, &w[1].req) == 0);
    want(hvd_barrier_async(NULL, NULL, &w[2].req) == 0);
    for (int i = 0; i < 3; i++)
        want(pthread_create(&threads[i], NULL, wait_for, &w[i]) == 0);
    while (atomic_load(&world_board->flag[1]) < 3)
        sched_yield();
    want(hvd_shutdown() == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        want(w[i].rc == -HVD_ESHUTDOWN || w[i].rc == -HVD_ENOTINIT);
    }
    want(w[1].rc == -HVD_ESHUTDOWN && w[2].rc == -HVD_ESHUTDOWN);
    atomic_store(&world_board->flag[2], 1);
    return 0;
}

START_TEST(test_waiting_at_shutdown)
{
    ck_assert_int_eq(world_run(2, waiting_body, NULL), 0);
}
END_TEST

static void *until_refused(void *arg)
{
    int *rc = arg;

    while (!*rc) {
        hvd_request *req = NULL;

        *rc = hvd_barrier(NULL);
        if (!*rc && (*rc = hvd_barrier_async(NULL, NULL, &req)) == 0)
            *rc = hvd_wait(req);
    }
    return NULL;
}

/* Threads enter the library during hvd_shutdown: they touch no freed memory. */
static int entering_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    for (int i = 0; i < 40; i++) {
        pthread_t threads[THREADS];
        int rcs[THREADS] = {0};

        want(hvd_init() == 0);
        for (int t = 0; t < THREADS; t++)
            want(pthread_create(&threads[t], NULL, until_refused, &rcs[t]) ==
                 0);
        for (int k = 0; k < i; k++)
            sched_yield();
        want(hvd_shutdown() == 0);
        for (int t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
            want(rcs[t] == -HVD_ESHUTDOWN || rcs[t] == -HVD_ENOTINIT);
        }
    }
    return 0;
}

START_TEST(test_entering_at_shutdown)
{
    ck_assert_int_eq(world_run(2, entering_body, NULL), 0);
}
END_TEST

static int init_once(int i)
{
    (void)i;
    return hvd_init();
}

/* All threads that call hvd_init at the same time get the same world. */
static int init_threads_body(int rank, void *arg)
{
    (void)arg;
    want(world_threads(THREADS, init_once) == 0);
    want(hvd_rank() == rank);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    want(!hvd_is_initialized());
    return 0;
}

START_TEST(test_init_from_threads)
{
    ck_assert_int_eq(world_run(2, init_threads_body, NULL), 0);
}
END_TEST

/* ---- Memory and rest ----------------------------------------------- */

START_TEST(test_no_memory)
{
    hvd_request *req = NULL;
    int rc;

    ck_assert_int_eq(hvd_init(), 0);
    hb_alloc_fail_after(0);
    rc = hvd_barrier_async("b", NULL, &req);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
    ck_assert_int_eq(rc, -HVD_ENOMEM);
    ck_assert_ptr_null(req);
    ck_assert_int_eq(hvd_barrier_async("b", NULL, &req), 0);
    ck_assert_int_eq(hvd_wait(req), 0);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

/* A blocking call allocates nothing. */
START_TEST(test_blocking_needs_no_memory)
{
    int32_t v = 3;

    ck_assert_int_eq(hvd_init(), 0);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL), 0);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 0);
    ck_assert_int_eq(v, 3);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Between operations a rank uses at most 0.5 % of a core, also when its engine
 * thread exists. */
static int idle_body(int rank, void *arg)
{
    struct timespec nap = {0, 400 * 1000 * 1000};
    hvd_request *req = NULL;
    uint64_t before_ns;

    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier_async("b", NULL, &req) == 0);
    want(hvd_wait(req) == 0);
    want(hvd_barrier(NULL) == 0);
    before_ns = cpu_ns();
    nanosleep(&nap, NULL);
    want(cpu_ns() - before_ns <= 2 * 1000 * 1000);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_idle)
{
    ck_assert_int_eq(world_run(2, idle_body, NULL), 0);
}
END_TEST

static Suite *engine_suite(void)
{
    Suite *s = suite_create("engine");
    TCase *t = tcase_create("engine");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_batches, 1, 5);
    tcase_add_test(t, test_background);
    tcase_add_test(t, test_carried_out);
    tcase_add_loop_test(t, test_threads, 1, 4);
    tcase_add_test(t, test_message_per_thread);
    tcase_add_test(t, test_duplicate_name);
    tcase_add_test(t, test_pending_at_shutdown);
    tcase_add_test(t, test_waiting_at_shutdown);
    tcase_add_test(t, test_entering_at_shutdown);
    tcase_add_test(t, test_init_from_threads);
    tcase_add_test(t, test_no_memory);
    tcase_add_test(t, test_blocking_needs_no_memory);
    tcase_add_test(t, test_idle);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(engine_suite());
}
