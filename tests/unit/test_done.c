/* SPDX-License-Identifier: Apache-2.0 */
/* options.done: called once for each request that was queued, with its status,
 * before the request is reported done, in whatever way it ends. */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, PER_THREAD = 200, KINDS = 10 };

/* What the callback has seen; its own status, as hvd_wait must return it. */
struct note {
    _Atomic int calls;
    int status;
};

static void note_done(void *arg, int status)
{
    struct note *n = arg;

    n->status = status;
    atomic_fetch_add(&n->calls, 1);
}

static struct hvd_options with(struct note *n, int set)
{
    struct hvd_options o = HVD_OPTIONS_INIT;

    *n = (struct note){0, 1};
    o.done = note_done;
    o.done_arg = n;
    o.process_set = set;
    return o;
}

/* Waits for req and checks that its callback was called once, before. */
static int check(hvd_request *req, struct note *n, int status)
{
    want(hvd_wait(req) == status);
    want(atomic_load(&n->calls) == 1);
    want(n->status == status);
    return 0;
}

/* ---- Every kind ---------------------------------------------------------- */

static int submit(int kind, const struct hvd_options *o, hvd_request **req)
{
    static int32_t a[64], b[64], c[64];
    static size_t counts[16];
    static int last;
    const void *const sends[2] = {a, b};
    void *const recvs[2] = {a, b};
    const size_t ones[2] = {1, 1}, caps[2] = {16, 16};

    switch (kind) {
    case 0:
        return hvd_allreduce_async("k", a, a, 4, HVD_INT32, HVD_SUM, o, req);
    case 1:
        return hvd_broadcast_async("k", a, b, 4, HVD_INT32, 0, o, req);
    case 2:
        return hvd_allgather_async("k", a, 2, c, 64, counts, HVD_INT32, o, req);
    case 3:
        return hvd_alltoall_async("k", a, NULL, (size_t)hvd_size(), c, 64,
                                  counts, HVD_INT32, o, req);
    case 4:
        return hvd_reducescatter_async("k", a, c, 8, 1, HVD_INT32, HVD_SUM, o,
                                       req);
    case 5:
        return hvd_barrier_async("k", o, req);
    case 6:
        return hvd_grouped_allreduce_async("k", 2, sends, recvs, ones,
                                           HVD_INT32, HVD_SUM, o, req);
    case 7: {
        void *const into[2] = {c, c + 16};

        return hvd_grouped_allgather_async("k", 2, sends, ones, into, caps,
                                           NULL, HVD_INT32, o, req);
    }
    case 8: {
        void *const into[2] = {c, c + 16};
        const size_t rows[2] = {8, 8};

        return hvd_grouped_reducescatter_async("k", 2, sends, into, rows, ones,
                                               HVD_INT32, HVD_SUM, o, req);
    }
    default:
        return hvd_join_async(&last, o, req);
    }
}

static int kinds_body(int rank, void *arg)
{
    struct note n;

    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    for (int kind = 0; kind < KINDS; kind++) {
        const struct hvd_options o = with(&n, 0);
        hvd_request *req = NULL;
        int done = 0;

        want(submit(kind, &o, &req) == 0);
        while (kind % 2 && !done) {
            want(hvd_test(req, &done) == 0);
            want(!done || atomic_load(&n.calls) == 1);
        }
        want(check(req, &n, 0) == 0);
    }
    return hvd_shutdown();
}

START_TEST(test_kinds)
{
    ck_assert_int_eq(world_run(_i, kinds_body, NULL), 0);
}
END_TEST

/* ---- The moment ---------------------------------------------------------- */

static _Atomic int entered, leave;

static void linger(void *arg, int status)
{
    note_done(arg, status);
    atomic_store(&entered, 1);
    while (!atomic_load(&leave))
        sched_yield();
}

static void *count_wait(void *arg)
{
    int done = 0;

    while (hvd_wait_for(arg, 1000, &done) == 0 && !done)
        ;
    return NULL;
}

/* While the library's thread is in the callback, nobody sees the request done;
 * and no lock is held that issuing or waiting needs. */
static int moment_body(int rank, void *arg)
{
    hvd_request *req = NULL, *next = NULL;
    struct note n;
    struct hvd_options o = with(&n, 0);
    pthread_t waiter;
    int done = -1;

    (void)rank;
    (void)arg;
    o.done = linger;
    want(hvd_init() == 0);
    want(hvd_barrier_async("b", &o, &req) == 0);
    while (!atomic_load(&entered))
        sched_yield();
    want(hvd_test(req, &done) == 0 && done == 0);
    want(hvd_wait_for(req, 5, &done) == 0 && done == 0);
    want(hvd_barrier_async("next", NULL, &next) == 0);
    want(pthread_create(&waiter, NULL, count_wait, req) == 0);
    atomic_store(&leave, 1);
    want(pthread_join(waiter, NULL) == 0);
    want(check(req, &n, 0) == 0);
    want(hvd_wait(next) == 0);
    return hvd_shutdown();
}

START_TEST(test_moment)
{
    ck_assert_int_eq(world_run(2, moment_body, NULL), 0);
}
END_TEST

/* ---- Failures ------------------------------------------------------------ */

static int mismatch_body(int rank, void *arg)
{
    struct note n;
    struct hvd_options o = with(&n, 0);
    hvd_request *req = NULL;
    int32_t x[2] = {0};

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_allreduce_async("x", x, x, rank ? 2 : 1, HVD_INT32, HVD_SUM, &o,
                             &req) == 0);
    want(check(req, &n, -HVD_EMISMATCH) == 0);
    return hvd_shutdown();
}

static int shutdown_body(int rank, void *arg)
{
    hvd_request *reqs[3];
    struct note n[3];

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 1)
        return hvd_shutdown();
    for (int i = 0; i < 3; i++) {
        struct hvd_options o = with(&n[i], 0);

        want(hvd_barrier_async(NULL, &o, &reqs[i]) == 0);
    }
    want(hvd_shutdown() == 0);
    for (int i = 0; i < 3; i++)
        want(atomic_load(&n[i].calls) == 1);
    for (int i = 0; i < 3; i++)
        want(check(reqs[i], &n[i], -HVD_ESHUTDOWN) == 0);
    return 0;
}

static int removed_body(int rank, void *arg)
{
    static const int both[] = {0, 1};
    struct note n;
    struct hvd_options o;
    hvd_request *req = NULL;
    int set = 0;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_size() == 3);
    want(hvd_process_set_add(both, 2, &set) == 0);
    o = with(&n, set);
    if (rank == 0)
        want(hvd_barrier_async("b", &o, &req) == 0);
    want(hvd_process_set_remove(set) == 0);
    if (rank == 0)
        want(check(req, &n, -HVD_ENOSET) == 0);
    return hvd_shutdown();
}

static int refused_body(int rank, void *arg)
{
    struct note n, other;
    struct hvd_options o = with(&n, 0), twice = with(&other, 0);
    hvd_request *req = NULL, *none = NULL;
    int32_t x = 1;
    const void *const sends[1] = {&x};
    void *const recvs[1] = {&x};
    const size_t one = 1;

    (void)arg;
    want(hvd_barrier_async("b", &o, &req) == -HVD_ENOTINIT);
    want(hvd_init() == 0);
    want(hvd_barrier(&o) == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "done is for _async forms"));
    want(hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, &o) == -HVD_EINVAL);
    want(hvd_grouped_allreduce(1, sends, recvs, &one, HVD_INT32, HVD_SUM, &o) ==
         -HVD_EINVAL);
    want(hvd_join(NULL, &o) == -HVD_EINVAL);
    if (rank == 1)
        while (!atomic_load(&world_board->flag[0]))
            sched_yield();
    want(hvd_barrier_async("b", &o, &req) == 0);
    if (rank == 0) {
        want(hvd_barrier_async("b", &twice, &none) == -HVD_EDUPNAME);
        atomic_store(&world_board->flag[0], 1);
    }
    want(check(req, &n, 0) == 0);
    want(atomic_load(&other.calls) == 0);
    /* A program built with an older hvd.h has no such field. */
    twice.size = offsetof(struct hvd_options, done);
    want(hvd_barrier(&twice) == 0);
    want(hvd_barrier_async("b", &twice, &req) == 0 && hvd_wait(req) == 0);
    want(atomic_load(&other.calls) == 0);
    return hvd_shutdown();
}

static const struct {
    int size;
    world_fn *body;
} ends[] = {{2, mismatch_body},
            {2, shutdown_body},
            {3, removed_body},
            {2, refused_body}};

START_TEST(test_ends)
{
    ck_assert_int_eq(world_run(ends[_i].size, ends[_i].body, NULL), 0);
}
END_TEST

static int death_body(int rank, void *arg)
{
    struct note n;
    struct hvd_options o = with(&n, 0);
    hvd_request *req = NULL;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 1)
        raise(SIGKILL);
    want(hvd_barrier_async("b", &o, &req) == 0);
    want(check(req, &n, -HVD_EPEER) == 0);
    return hvd_shutdown();
}

START_TEST(test_death)
{
    /* Rank 1 alone does not exit with 0. */
    ck_assert_int_eq(world_run(3, death_body, NULL), 1);
}
END_TEST

/* ---- Many ---------------------------------------------------------------- */

static int issue_many(int id)
{
    static struct note notes[THREADS][PER_THREAD];
    hvd_request *reqs[PER_THREAD];

    for (int i = 0; i < PER_THREAD; i++) {
        struct hvd_options o = with(&notes[id][i], 0);
        char name[32];

        snprintf(name, sizeof(name), "t%d.%d", id, i);
        want(hvd_barrier_async(name, &o, &reqs[i]) == 0);
        if (i % 3 == 2)
            for (int k = i - 2; k <= i; k++)
                want(check(reqs[k], &notes[id][k], 0) == 0);
    }
    for (int k = PER_THREAD - PER_THREAD % 3; k < PER_THREAD; k++)
        want(check(reqs[k], &notes[id][k], 0) == 0);
    for (int i = 0; i < PER_THREAD; i++)
        want(atomic_load(&notes[id][i].calls) == 1);
    return 0;
}

static int many_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    want(world_threads(THREADS, issue_many) == 0);
    return hvd_shutdown();
}

START_TEST(test_many)
{
    ck_assert_int_eq(world_run(2, many_body, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("done");
    TCase *t = tcase_create("done");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, test_kinds, 1, 4);
    tcase_add_test(t, test_moment);
    tcase_add_loop_test(t, test_ends, 0, 4);
    tcase_add_test(t, test_death);
    tcase_add_test(t, test_many);
    suite_add_tcase(s, t);
    return unit_run(s);
}
