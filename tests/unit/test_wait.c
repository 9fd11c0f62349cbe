/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_wait_for: how long it waits on each plane, who drives meanwhile, and
 * that it leaves the request as it is. */
#include "lib/base/sys/clock.h"
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SHORT_MS = 60, LONG_MS = 60 * 1000, TRIES = 10 };

static const uint64_t ms_ns = 1000000;

/* As on a machine where other threads use every core: each yield of the calling
 * thread then costs a time slice. */
static __thread int slow_yields;

int sched_yield(void)
{
    const struct timespec slice = {0, 3 * 1000 * 1000};

    return slow_yields ? nanosleep(&slice, NULL)
                       : (int)syscall(SYS_sched_yield);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void await_flag(int flag, int value)
{
    const struct timespec step = {0, 200 * 1000};

    while (atomic_load(&world_board->flag[flag]) < value)
        nanosleep(&step, NULL);
}

/* Waits SHORT_MS for a request that cannot be done.  A plane that slept as long
 * as without a limit would be late by 190 ms or more; one that did not sleep
 * would use all the time as CPU time.  Another process may take the core away
 * at any time, so that only the best of several tries counts. */
static int short_waits(hvd_request *req)
{
    uint64_t late_ns = UINT64_MAX, busy_ns = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t began_ns = hb_now_ns(), used_ns = cpu_ns(), took_ns;
        int done = -1;

        want(hvd_wait_for(req, SHORT_MS, &done) == 0 && done == 0);
        took_ns = hb_now_ns() - began_ns;
        used_ns = cpu_ns() - used_ns;
        want(took_ns >= SHORT_MS * ms_ns);
        if (took_ns - SHORT_MS * ms_ns < late_ns)
            late_ns = took_ns - SHORT_MS * ms_ns;
        if (used_ns < busy_ns)
            busy_ns = used_ns;
    }
    want(late_ns < 90 * ms_ns);
    want(busy_ns < SHORT_MS * ms_ns / 3);
    return 0;
}

/* The last rank comes late; the others wait for it in vain at first. */
static int limit_body(int rank, void *arg)
{
    hvd_request *req = NULL;
    int32_t x = 1, done = -1;
    int last;

    (void)arg;
    want(hvd_init() == 0);
    last = rank == hvd_size() - 1;
    if (last)
        await_flag(0, hvd_size() - 1);
    want(hvd_allreduce_async("x", &x, &x, 1, HVD_INT32, HVD_SUM, NULL, &req) ==
         0);
    if (!last) {
        want(hvd_wait_for(req, 0, &done) == 0 && done == 0);
        want(short_waits(req) == 0);
        atomic_fetch_add(&world_board->flag[0], 1);
    }
    want(hvd_wait_for(req, rank == 0 ? -1 : LONG_MS, &done) == 0 && done == 1);
    want(x == hvd_size());
    want(hvd_wait_for(req, 0, &done) == 0 && done == 1);
    want(hvd_wait_for(req, SHORT_MS, &done) == 0 && done == 1);
    want(hvd_test(req, &done) == 0 && done == 1);
    want(hvd_wait(req) == 0);
    return hvd_shutdown();
}

/* One host, one rank on each of two hosts, and several on both. */
static const char *const places[] = {"aa", "ab", "aabb"};

START_TEST(test_limit)
{
    struct world w = {.body = limit_body, .place = places[_i]};

    w.size = (int)strlen(w.place);
    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

static void *wait_without_limit(void *arg)
{
    return hvd_wait(arg) == 0 ? NULL : arg;
}

/* Another thread drives, and the thread with the limit sleeps until its turn.
 */
static int two_threads_body(int rank, void *arg)
{
    hvd_request *first = NULL, *second = NULL;
    pthread_t thread;
    void *failed;
    int done = 0;

    want(hvd_init() == 0);
    if (rank == 1)
        await_flag(0, 1);
    want(hvd_barrier_async("first", NULL, &first) == 0);
    want(hvd_barrier_async("second", NULL, &second) == 0);
    want(pthread_create(&thread, NULL, wait_without_limit, first) == 0);
    if (rank == 0) {
        slow_yields = *(int *)arg;
        want(short_waits(second) == 0);
        slow_yields = 0;
        atomic_store(&world_board->flag[0], 1);
    }
    want(hvd_wait_for(second, LONG_MS, &done) == 0 && done == 1);
    want(pthread_join(thread, &failed) == 0 && !failed);
    want(hvd_wait(second) == 0);
    return hvd_shutdown();
}

START_TEST(test_two_threads)
{
    int slow = _i;

    ck_assert_int_eq(world_run(2, two_threads_body, &slow), 0);
}
END_TEST

/* After a time that is over, the engine's thread goes on with the operation, as
 * after hvd_test. */
static int goes_on_body(int rank, void *arg)
{
    hvd_request *req = NULL;
    int done = -1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 1)
        await_flag(0, 1);
    want(hvd_barrier_async(NULL, NULL, &req) == 0);
    if (rank == 0) {
        want(hvd_wait_for(req, 1, &done) == 0 && done == 0);
        atomic_store(&world_board->flag[0], 1);
        await_flag(1, 1);
    } else {
        want(hvd_wait(req) == 0);
        atomic_store(&world_board->flag[1], 1);
    }
    if (rank == 0)
        want(hvd_wait(req) == 0);
    return hvd_shutdown();
}

START_TEST(test_goes_on)
{
    ck_assert_int_eq(world_run(2, goes_on_body, NULL), 0);
}
END_TEST

static void *wait_with_limit(void *arg)
{
    int *done = malloc(sizeof(*done));

    if (done && hvd_wait_for(arg, LONG_MS, done) != 0)
        *done = -1;
    atomic_store(&world_board->flag[2], 1);
    return done;
}

/* hvd_shutdown, and a peer that leaves, end the wait long before its limit. */
static int shutdown_body(int rank, void *arg)
{
    hvd_request *req = NULL;
    uint64_t began_ns = hb_now_ns();
    pthread_t thread;
    void *done;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 1)
        return hvd_shutdown();
    want(hvd_barrier_async("b", NULL, &req) == 0);
    want(pthread_create(&thread, NULL, wait_with_limit, req) == 0);
    want(hvd_shutdown() == 0);
    want(pthread_join(thread, &done) == 0 && done && *(int *)done == 1);
    free(done);
    want(hvd_wait(req) == -HVD_ESHUTDOWN);
    want(hb_now_ns() - began_ns < LONG_MS / 2 * ms_ns);
    return 0;
}

START_TEST(test_shutdown)
{
    ck_assert_int_eq(world_run(2, shutdown_body, NULL), 0);
}
END_TEST

START_TEST(test_arguments)
{
    hvd_request *req = NULL;
    int done = 7;

    ck_assert_int_eq(hvd_wait_for(NULL, 1, &done), -HVD_EINVAL);
    ck_assert_int_eq(done, 7);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "hvd_wait_for"));
    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_barrier_async("b", NULL, &req), 0);
    ck_assert_int_eq(hvd_wait_for(req, 1, NULL), -HVD_EINVAL);
    ck_assert_int_eq(hvd_wait_for(req, INT32_MAX, &done), 0);
    ck_assert_int_eq(done, 1);
    ck_assert_int_eq(hvd_wait(req), 0);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wait");
    TCase *t = tcase_create("wait");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, test_limit, 0, 3);
    tcase_add_loop_test(t, test_two_threads, 0, 2);
    tcase_add_test(t, test_goes_on);
    tcase_add_test(t, test_shutdown);
    tcase_add_test(t, test_arguments);
    suite_add_tcase(s, t);
    return unit_run(s);
}
