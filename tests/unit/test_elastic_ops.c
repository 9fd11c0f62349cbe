/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that are in flight when a rank of an elastic job dies: they fail
 * alike on all ranks that are left, whatever they are.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 1, ROUNDS = 3 };

static const char *const places[] = {NULL, "aabb", "abcd"};

enum { PLACES = sizeof(places) / sizeof(places[0]) };

static int play(const char *place, world_fn *body, void *arg)
{
    struct world w = {
        .size = RANKS, .body = body, .arg = arg, .place = place, .elastic = 1};

    return world_run_with(&w);
}

/* Dies when the others are in their operations, or a little before or after. */
static int die_soon(int us)
{
    usleep((useconds_t)us);
    return kill(getpid(), SIGKILL);
}

/* Enters the next generation, in which all operations work again. */
static int go_on(void)
{
    static int64_t own[5000], sum[5000];

    want(hvd_sync(NULL) == 0 && hvd_size() == RANKS - 1);
    for (int i = 0; i < 5000; i++)
        own[i] = hvd_rank() + 1;
    want(hvd_allreduce(own, sum, 5000, HVD_INT64, HVD_SUM, NULL) == 0);
    want(sum[0] == 6 && sum[4999] == 6);
    return 0;
}

/* ---- Joins ---------------------------------------------------------------
 */

/* Some ranks have joined, others wait for the one that dies. */
static int join_body(int rank, void *arg)
{
    int last = -1;
    float x = 1;

    want(hvd_init() == 0);
    hvd_barrier(NULL);
    if (rank == VICTIM)
        return die_soon(*(int *)arg);
    if (rank == 0)
        want(hvd_allreduce(&x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) ==
             -HVD_ERESIZED);
    else
        want(hvd_join(&last, NULL) == -HVD_ERESIZED);
    want(go_on() == 0);
    want(hvd_join(&last, NULL) == 0 && last >= 0 && last < RANKS - 1);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_join)
{
    int us = 20000;

    ck_assert_int_eq(play(places[_i], join_body, &us), 1);
}
END_TEST

/* ---- Large operations ---------------------------------------------------- */

enum { LARGE = 1 << 20 };

/* Allreduces of 4 MiB, from one buffer into another, whose input stays whole;
 * broadcasts and allgathers.  The rank dies in the middle of one. */
static int large_body(int rank, void *arg)
{
    float *own = malloc(LARGE * sizeof(*own)), *out;
    int rc = 0;

    out = malloc(RANKS * (size_t)LARGE * sizeof(*out));
    want(own && out && hvd_init() == 0);
    for (int i = 0; i < LARGE; i++)
        own[i] = (float)(rank + 1);
    hvd_barrier(NULL);
    if (rank == VICTIM) {
        const struct itimerval soon = {.it_value.tv_usec = *(int *)arg};

        signal(SIGALRM, SIG_DFL); /* not Check's, which kills all */
        setitimer(ITIMER_REAL, &soon, NULL);
    }
    for (int i = 0; rc == 0; i++) {
        if (i % 3 == 0)
            rc = hvd_allreduce(own, out, LARGE, HVD_FLOAT32, HVD_SUM, NULL);
        else if (i % 3 == 1)
            rc = hvd_broadcast(own, out, LARGE, HVD_FLOAT32, 0, NULL);
        else
            rc = hvd_allgather(own, LARGE, out, RANKS * (size_t)LARGE, NULL,
                               HVD_FLOAT32, NULL);
    }
    want(rc == -HVD_ERESIZED);
    for (int i = 0; i < LARGE; i++)
        want(own[i] == (float)(rank + 1));
    want(go_on() == 0);
    free(own);
    free(out);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_large)
{
    for (int us = 5000; us <= 5000 + ROUNDS * 17000; us += 17000)
        ck_assert_int_eq(play(places[_i], large_body, &us), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("elastic_ops");
    TCase *tc = tcase_create("elastic_ops");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_join, 0, PLACES);
    tcase_add_loop_test(tc, test_large, 0, PLACES);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
