/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting some ranks of a world (runtime/core/world/hosts.h) by itself: two
 * processes that exchange over shared memory.
 */
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "runtime/core/world/hosts.h"
#include "tests/unit/unit.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, PLACE_BYTES = 1024, LIMIT_S = 60 };

/* Faults of the exchange. */
enum { NOTHING, NO_EXCHANGE, WILD_STATUS };

/* Memory shared by the processes. */
struct board {
    unsigned char places[RANKS][PLACE_BYTES];
    _Atomic int arrived, taken;
    _Atomic int rc[RANKS]; /* 1: not yet known */
    char text[RANKS][HB_ERROR_TEXT_MAX];
};

static struct board *board;
static int me, exchanged; /* of this process */

static int exchange(void *arg, const void *mine, size_t len, void *all,
                    struct hb_error *err)
{
    int broken = *(int *)arg == NO_EXCHANGE;
    const int32_t wild = INT32_MIN;

    ck_assert_uint_le(len, PLACE_BYTES);
    exchanged = 1;
    memcpy(board->places[me], mine, len);
    if (*(int *)arg == WILD_STATUS && me == 1)
        memcpy(board->places[me], &wild, sizeof(wild)); /* the status is the
                                                         * first field */
    atomic_fetch_add(&board->arrived, 1);
    while (atomic_load(&board->arrived) < RANKS)
        sched_yield();
    for (int r = 0; all && r < RANKS; r++)
        memcpy((unsigned char *)all + (size_t)r * len, board->places[r], len);
    return broken ? hb_error_set(err, HVD_EPEER, "no exchange") : 0;
}

/* Makes what a rank has in a world of three, each on a host of its own. */
static void make_world(struct hvd__hosts *world, struct hvd__agent *agent)
{
    static const uint32_t host_of[] = {0, 1, 2};

    memset(world, 0, sizeof(*world));
    world->agent = agent;
    world->rank = (uint32_t)me;
    world->auth.epoch = 1;
    ck_assert_int_eq(hvd__map_init(&world->map, RANKS, 3, host_of, 4, NULL), 0);
    world->addresses = hb_calloc(RANKS, sizeof(*world->addresses));
    ck_assert_ptr_nonnull(world->addresses);
    for (int i = 0; i < RANKS; i++) {
        char name[] = {'h', (char)('0' + i), '\0'};

        snprintf(world->addresses[i], sizeof(world->addresses[i]), "127.0.0.1");
        hvd__map_name(&world->map, i, name);
    }
}

/* Runs one rank from begin to end; its fail_after-th allocation fails. */
static void rank_main(int rank, long fail_after, int broken)
{
    static const int members[] = {0, 2};
    struct hvd__agent agent = HVD__AGENT_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__hosts world, h;
    struct hvd__subset s = {.world = &world,
                            .ranks = members,
                            .n = 2,
                            .deadline_ns = hb_now_ns() + 50000000000u,
                            .exchange = exchange,
                            .arg = &broken};
    int rc, fired = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIMIT_S);
    me = rank;
    make_world(&world, &agent);
    ck_assert_int_eq(hvd__subset_hosts(&s), 2);
    if (rank == 2 && fail_after >= 0)
        hb_alloc_fail_after(fail_after);
    rc = hvd__hosts_subset(&h, &s, &err);
    if (rank == 2 && fail_after >= 0)
        fired = hb_alloc_fail_after(-1);
    ck_assert(exchanged);
    ck_assert(rc == err.status);
    if (rc == 0 && rank != 1)
        ck_assert(h.map.size == 2 && h.map.world[1] == 2 && h.tcp);
    if (rc == 0)
        hvd__tcp_free(h.tcp);
    else
        ck_assert_ptr_null(h.map.ranks);
    hvd__hosts_fini(&h);
    hvd__hosts_fini(&world);
    memcpy(board->text[rank], err.text, sizeof(err.text));
    atomic_store(&board->rc[rank], rc);
    exit(fired ? 2 : 0);
}

/* Runs both ranks; returns 1 if the allocation failed. */
static int run(long fail_after, int broken)
{
    pid_t pids[RANKS];
    int fired = 0;

    memset(board, 0, sizeof(*board));
    for (int r = 0; r < RANKS; r++)
        atomic_store(&board->rc[r], 1);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        ck_assert_int_ge(pids[r], 0);
        if (pids[r] == 0)
            rank_main(r, fail_after, broken);
    }
    for (int r = 0; r < RANKS; r++) {
        int status;

        ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) % 2 == 0);
        fired |= WEXITSTATUS(status);
    }
    return fired != 0;
}

START_TEST(test_connects)
{
    ck_assert_int_eq(run(-1, NOTHING), 0);
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(atomic_load(&board->rc[r]), 0);
}
END_TEST

START_TEST(test_no_exchange)
{
    run(-1, NO_EXCHANGE);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(atomic_load(&board->rc[r]), -HVD_EPEER);
        ck_assert_str_eq(board->text[r], "no exchange");
    }
}
END_TEST

/* One rank announces a status that does not exist. */
START_TEST(test_wild_status)
{
    run(-1, WILD_STATUS);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(atomic_load(&board->rc[r]), -HVD_EPROTO);
        ck_assert_str_eq(board->text[r], "rank 1 on host h1: ");
    }
}
END_TEST

/* A rank without memory to prepare still takes part in the exchange, and all
 * ranks fail alike. */
START_TEST(test_no_memory)
{
    for (long n = 0; n < 9; n++) {
        ck_assert_int_eq(run(n, NOTHING), 1);
        for (int r = 0; r < RANKS; r++)
            ck_assert_int_eq(atomic_load(&board->rc[r]), -HVD_ENOMEM);
        ck_assert_str_eq(board->text[0], board->text[1]);
        ck_assert_ptr_nonnull(strstr(board->text[0], "rank 2 on host h2: "));
    }
}
END_TEST

static Suite *subset_suite(void)
{
    Suite *s = suite_create("subset");
    TCase *t = tcase_create("subset");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_connects);
    tcase_add_test(t, test_no_exchange);
    tcase_add_test(t, test_wild_status);
    tcase_add_test(t, test_no_memory);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return EXIT_FAILURE;
    return unit_run(subset_suite());
}
