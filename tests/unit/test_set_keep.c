/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets in elastic jobs: over deaths, with ranks that come late, and
 * when a rank dies while sets are made, removed or made again.
 */
#include "lib/base/alloc.h"
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUNDS = 8 };

/* A world of five ranks, on one host, on several, or each a host of its own. */
struct scene {
    const char *place;
    int forces_tcp;
};

static const struct scene scenes[] = {
    {NULL, 0}, {"aabbc", 0}, {"abbbb", 0}, {"abcde", 0}, {NULL, 1},
};

enum { SCENES = sizeof(scenes) / sizeof(scenes[0]) };

/* Runs five ranks in an elastic job; returns how many failed. */
static int play(const struct scene *scene, world_fn *body, void *arg, int late)
{
    struct world w = {.size = 5,
                      .body = body,
                      .arg = arg,
                      .place = scene->place,
                      .elastic = 1,
                      .late = late};
    int failed;

    if (scene->forces_tcp)
        setenv("HVD_FORCE_TCP", "1", 1);
    failed = world_run_with(&w);
    unsetenv("HVD_FORCE_TCP");
    return failed;
}

/* Kills this process when all ranks have come to next_generation. */
static void die_next(void)
{
    hvd_barrier(NULL);
    kill(getpid(), SIGKILL);
}

/* Takes part in the world's operations until the next generation has begun. */
static int next_generation(void)
{
    int now = hvd_generation(), rc = 0;

    while (rc == 0 && hvd_generation() == now)
        rc = hvd_barrier(NULL);
    return rc == -HVD_ERESIZED ? hvd_sync(NULL) : rc;
}

/* Checks who is in a set, and that it works: ranks has n. */
static int is_set(int set, const int *ranks, int n)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    static int64_t own[5000], sum[5000];
    int64_t total = 0;
    int has[5], place = -HVD_ENOTMEMBER;

    want(hvd_process_set_size(set) == n);
    want(hvd_process_set_ranks(set, has, 5) == n);
    want(n == 0 || memcmp(has, ranks, (size_t)n * sizeof(*has)) == 0);
    for (int i = 0; i < n; i++) {
        total += ranks[i] + 1;
        place = ranks[i] == hvd_rank() ? i : place;
    }
    want(hvd_process_set_rank(set) == place);
    opts.process_set = set;
    for (int i = 0; i < 5000; i++)
        own[i] = hvd_rank() + 1;
    for (size_t count = 1; count <= 5000; count *= 70) {
        int rc = hvd_allreduce(own, sum, count, HVD_INT64, HVD_SUM, &opts);

        want(rc == (place >= 0 ? 0 : -HVD_ENOTMEMBER));
        want(n || strstr(hvd_error_message(), "all members of which are gone"));
        want(place < 0 || (sum[0] == total && sum[count - 1] == total));
    }
    return 0;
}

static int is_there(int set)
{
    return hvd_process_set_size(set) >= 0;
}

/* ---- Deaths ---------------------------------------------------------------
 */

static const int low[] = {0, 1, 2}, high[] = {3, 4}, second[] = {1},
                 ends[] = {0, 4};

/* Makes four sets and removes one of them, so that their numbers have a gap. */
static int make_four(int sets[4])
{
    want(hvd_process_set_add(low, 3, &sets[0]) == 0);
    want(hvd_process_set_add(high, 2, &sets[1]) == 0);
    want(hvd_process_set_add(second, 1, &sets[2]) == 0);
    want(hvd_process_set_add(ends, 2, &sets[3]) == 0);
    want(hvd_process_set_remove(sets[1]) == 0);
    return 0;
}

/* After the death of rank 1, sets have the same number and the members that are
 * left; after that of rank 0, too, which empties one. */
static int deaths_body(int rank, void *arg)
{
    static const int low_then[] = {0, 1}, ends_then[] = {0, 3};
    static const int low_last[] = {0}, ends_last[] = {2};
    int sets[4], numbers[5], again = -1;

    (void)arg;
    want(hvd_init() == 0 && make_four(sets) == 0);
    want(is_set(sets[0], low, 3) == 0 && is_set(sets[3], ends, 2) == 0);
    if (rank == 1)
        die_next();
    want(next_generation() == 0);
    want(is_set(sets[0], low_then, 2) == 0);
    want(is_set(sets[2], NULL, 0) == 0);
    want(is_set(sets[3], ends_then, 2) == 0);
    want(!is_there(sets[1]));
    want(hvd_process_sets(numbers, 5) == 4 && numbers[1] == sets[0] &&
         numbers[2] == sets[2] && numbers[3] == sets[3]);
    want(hvd_process_set_remove(sets[2]) == 0 && !is_there(sets[2]));
    /* The lowest number that is free. */
    want(hvd_process_set_add(low, 3, &again) == 0 && again == sets[1]);
    want(is_set(again, low, 3) == 0);
    if (rank == 0)
        die_next();
    want(next_generation() == 0 && hvd_size() == 3);
    want(is_set(sets[0], low_last, 1) == 0);
    want(is_set(sets[3], ends_last, 1) == 0);
    want(is_set(again, low_then, 2) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_deaths)
{
    ck_assert_int_eq(play(&scenes[_i], deaths_body, NULL, 0), 2);
}
END_TEST

/* ---- Ranks that come ------------------------------------------------------
 */

/* A rank that comes late finds the sets of the others, and is in none. */
static int late_body(int rank, void *arg)
{
    static const int pair[] = {0, 3}, four[] = {0, 1, 2, 4};
    const int *lists[] = {pair};
    const size_t counts[] = {2};
    hvd_state *s;
    int set = 1, made = -1, rc = 0;

    (void)arg;
    want(hvd_state_new(&s) == 0);
    while (rank == 4 && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    /* Makes set 1, or finds that it was made. */
    want(hvd_init_sets(lists, counts, 1) == 0 && hvd_sync(s) == 0);
    want(is_set(set, pair, 2) == 0);
    while (rank != 4 && hvd_size() < 5) {
        atomic_store(&world_board->flag[0], 1);
        rc = hvd_commit(s);
        want(rc == 0 || (rc == -HVD_ERESIZED && hvd_sync(s) == 0));
    }
    want(hvd_size() == 5 && is_set(set, pair, 2) == 0);
    want(hvd_process_set_add(four, 4, &made) == 0 && made == 2);
    want(is_set(made, four, 4) == 0);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

/* The sets that a rank names which comes late do not matter: the others may
 * have removed those that they began with, or have more. */
static int any_late_body(int rank, void *arg)
{
    static const int pair[] = {0, 3}, one[] = {2};
    const int *lists[] = {pair, one};
    const size_t counts[] = {2, 1};
    size_t n = rank == 4 ? (size_t) * (int *)arg : 2;
    hvd_state *s;

    want(hvd_state_new(&s) == 0);
    while (rank == 4 && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    want(hvd_init_sets(lists, counts, n) == 0);
    if (rank != 4)
        want(hvd_process_set_remove(1) == 0);
    want(hvd_sync(s) == 0);
    atomic_store(&world_board->flag[0], 1);
    while (rank != 4 && hvd_size() < 5) {
        int rc = hvd_commit(s);

        want(rc == 0 || (rc == -HVD_ERESIZED && hvd_sync(s) == 0));
    }
    want(!is_there(1) && is_set(2, one, 1) == 0);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_any_late)
{
    for (int n = 0; n <= 2; n++)
        ck_assert_int_eq(play(&scenes[_i], any_late_body, &n, 1), 0);
}
END_TEST

/* Rank 4 dies while the others make their first sets. */
static int init_death_body(int rank, void *arg)
{
    static const int pair[] = {0, 3}, one[] = {2};
    const int *lists[] = {pair, one};
    const size_t counts[] = {2, 1};

    (void)arg;
    if (rank == 4) {
        want(hvd_init() == 0);
        kill(getpid(), SIGKILL);
    }
    want(hvd_init_sets(lists, counts, 2) == 0);
    want(hvd_generation() == 2 && hvd_size() == 4);
    want(is_set(1, pair, 2) == 0 && is_set(2, one, 1) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

/* Rank 4 dies as soon as its own call has returned: the others have all sets.
 */
static int init_then_death_body(int rank, void *arg)
{
    static const int pair[] = {0, 3}, one[] = {2};
    const int *lists[] = {pair, one};
    const size_t counts[] = {2, 1};
    int rc;

    (void)arg;
    rc = hvd_init_sets(lists, counts, 2);
    if (rank == 4)
        kill(getpid(), SIGKILL);
    want(rc == 0);
    for (rc = hvd_generation() > 1 ? -HVD_ERESIZED : 0; rc == 0;)
        rc = hvd_barrier(NULL);
    want(rc == -HVD_ERESIZED && hvd_sync(NULL) == 0 && hvd_size() == 4);
    want(is_set(1, pair, 2) == 0 && is_set(2, one, 1) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_init_then_death)
{
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(play(&scenes[_i], init_then_death_body, NULL, 0), 1);
}
END_TEST

/* All ranks leave the library and come back: they make the sets again. */
static int init_again_body(int rank, void *arg)
{
    static const int pair[] = {0, 3};
    const int *lists[] = {pair};
    const size_t counts[] = {2};

    (void)rank;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        want(hvd_init_sets(lists, counts, 1) == 0);
        want(is_set(1, pair, 2) == 0);
        want(hvd_barrier(NULL) == 0);
        want(hvd_shutdown() == 0);
    }
    return 0;
}

START_TEST(test_init_again)
{
    ck_assert_int_eq(play(&scenes[_i], init_again_body, NULL, 0), 0);
}
END_TEST

START_TEST(test_init_death)
{
    ck_assert_int_eq(play(&scenes[_i], init_death_body, NULL, 0), 1);
}
END_TEST

START_TEST(test_late)
{
    ck_assert_int_eq(play(&scenes[_i], late_body, NULL, 1), 0);
}
END_TEST

/* ---- Spares -------------------------------------------------------------- */

/* Takes part in commits until the next generation has begun. */
static int commit_to_next(hvd_state *s)
{
    int rc = 0;

    while (rc == 0)
        rc = hvd_commit(s);
    return rc == -HVD_ERESIZED ? hvd_sync(s) : rc;
}

/* There is no room for rank 4 in generation 2; meanwhile set 1 is removed, and
 * others get its number. */
static int spare_body(int rank, void *arg)
{
    static const int pair[] = {0, 1}, rest[] = {2, 3};
    int set = -1, other = -1, x = rank, old = -1;
    hvd_state *s;

    (void)arg;
    want(hvd_state_new(&s) == 0 && hvd_init() == 0);
    want(hvd_state_add(s, "x", &x, sizeof(x), 0) == 0);
    want(hvd_process_set_add(high, 2, &set) == 0 && set == 1);
    want(hvd_process_set_add(ends, 2, &old) == 0 && old == 2);
    want(hvd_sync(s) == 0 && x == 0);
    if (rank == 0) {
        atomic_store(&world_board->spare, 5);
        atomic_store(&world_board->change, 1);
    }
    x = rank == 4 ? 99 : 1;
    want(commit_to_next(s) == 0);
    if (rank != 4) {
        want(hvd_generation() == 2 && hvd_size() == 4);
        want(hvd_process_set_remove(set) == 0);
        want(hvd_process_set_remove(old) == 0);
        want(hvd_process_set_add(pair, 2, &set) == 0 && set == 1);
        want(hvd_process_set_add(rest, 2, &other) == 0 && other == 2);
        want(commit_to_next(s) == 0);
    }
    want(hvd_generation() == 3 && hvd_size() == 5 && x == 1);
    want(is_set(1, pair, 2) == 0 && is_set(2, rest, 2) == 0);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_spare)
{
    ck_assert_int_eq(play(&scenes[_i], spare_body, NULL, 0), 0);
}
END_TEST

/* ---- Deaths at random instants --------------------------------------------
 */

/* Kills this process in `us` microseconds. */
static void die_in(long us)
{
    struct itimerval t = {.it_value = {.tv_usec = us + 1}};

    signal(SIGALRM, SIG_DFL); /* not that of Check */
    setitimer(ITIMER_REAL, &t, NULL);
}

static const int middle[] = {1, 2};

/* Makes the set if there is none; sets *set to -1 if it is not there. */
static int make_if_missing(int *set)
{
    int rc = 0;

    if (!is_there(*set))
        *set = -1;
    if (*set < 0)
        rc = hvd_process_set_add(middle, 2, set);
    return rc;
}

/* Rank 4 dies at some instant while sets are made and removed, and rank 3 while
 * they are made again.  Afterwards all ranks have the same sets, and those
 * work. */
static int random_body(int rank, void *arg)
{
    long us = *(int *)arg * 137L;
    int set = -1, pair = -1, here[2], same[2], rc = 0;

    want(hvd_init() == 0 && hvd_sync(NULL) == 0);
    want(hvd_process_set_add(ends, 2, &pair) == 0);
    rc = hvd_barrier(NULL);
    if (rank == 4)
        die_in(us);
    while (rc == 0 && hvd_generation() == 1) {
        rc = make_if_missing(&set);
        if (rc == 0)
            rc = hvd_process_set_remove(set);
    }
    want(rc == -HVD_ERESIZED);
    if (rank == 3)
        die_in(us / 2);
    want(hvd_sync(NULL) == 0);
    while (hvd_size() > 3) {
        rc = hvd_barrier(NULL);
        want(rc == 0 || (rc == -HVD_ERESIZED && hvd_sync(NULL) == 0));
    }
    here[0] = hvd_process_sets(NULL, 0);
    here[1] = -here[0];
    want(hvd_allreduce(here, same, 2, HVD_INT32, HVD_MAX, NULL) == 0);
    want(same[0] == -same[1] && same[0] >= 2);
    want(hvd_process_set_size(pair) == 1);
    want(make_if_missing(&set) == 0 && is_set(set, middle, 2) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_random)
{
    for (int i = 0; i < ROUNDS; i++)
        ck_assert_int_eq(play(&scenes[_i], random_body, &i, 0), 2);
}
END_TEST

/* ---- Lack of memory --------------------------------------------------------
 */

/* Shared with the ranks. */
struct shortage {
    long succeed; /* allocations of rank 2 before one fails */
    int has_failed;
    int left; /* the status with which rank 2 has left the job; 0: it has not */
};

/* Calls `enter`, in which rank 2 lacks memory for something, and then dies. */
static int enter_short(struct shortage *shortage, int rank, int (*enter)(void))
{
    int rc;

    hb_alloc_fail_after(rank == 2 ? shortage->succeed : -1);
    rc = enter();
    if (hb_alloc_fail_after(-1))
        shortage->has_failed = 1;
    if (rank == 2 && rc < 0) {
        shortage->left = rc;
        kill(getpid(), SIGKILL);
    }
    want(rc == 0);
    while ((rc = hvd_barrier(NULL)) < 0)
        want(rc == -HVD_ERESIZED && enter() == 0);
    return 0;
}

static hvd_state *state;

static int make_state(void)
{
    static int64_t weights[1000];

    want(hvd_state_new(&state) == 0);
    want(hvd_state_add(state, "weights", weights, sizeof(weights), 0) == 0);
    return 0;
}

static int sync_state(void)
{
    return hvd_sync(state);
}

static int init_and_sync(void)
{
    int rc = hvd_init();

    return rc == 0 ? sync_state() : rc;
}

/* Rank 2 lacks memory as it begins: the others go on without it. */
static int short_init_body(int rank, void *arg)
{
    int set = -1;

    want(make_state() == 0 && enter_short(arg, rank, init_and_sync) == 0);
    want(hvd_size() == 5 || hvd_size() == 4);
    want(hvd_process_set_add(low, 3, &set) == 0 && is_set(set, low, 3) == 0);
    return hvd_shutdown();
}

/* Rank 2 lacks memory in hvd_sync, after the death of rank 1. */
static int short_sync_body(int rank, void *arg)
{
    static const int low_then[] = {0, 1}, low_last[] = {0};
    int sets[4], rc = 0;

    want(make_state() == 0 && init_and_sync() == 0);
    want(make_four(sets) == 0);
    if (rank == 1)
        die_next();
    while (rc == 0)
        rc = hvd_barrier(NULL);
    want(rc == -HVD_ERESIZED);
    want(enter_short(arg, rank, sync_state) == 0);
    if (hvd_size() == 4)
        want(is_set(sets[0], low_then, 2) == 0);
    else
        want(hvd_size() == 3 && is_set(sets[0], low_last, 1) == 0);
    return hvd_shutdown();
}

/* Makes the first sets: {0, 3} and {2}, numbers 1 and 2. */
static int init_two_sets(void)
{
    static const int pair[] = {0, 3}, one[] = {2};
    const int *lists[] = {pair, one};
    const size_t counts[] = {2, 1};

    return hvd_init_sets(lists, counts, 2);
}

/* Rank 2 lacks memory in hvd_init_sets, of which it learns by its own error,
 * and leaves: the others make their sets in the next generation. */
static int short_first_body(int rank, void *arg)
{
    static const int pair[] = {0, 3}, one[] = {2};
    struct shortage *shortage = arg;
    int rc;

    hb_alloc_fail_after(rank == 2 ? shortage->succeed : -1);
    rc = init_two_sets();
    if (hb_alloc_fail_after(-1))
        shortage->has_failed = 1;
    if (rank == 2 && rc < 0) {
        shortage->left = rc;
        return 1;
    }
    want(rc == 0);
    want(hvd_size() == 5 || hvd_size() == 4);
    want(is_set(1, pair, 2) == 0 && is_set(2, one, 1) == 0);
    return hvd_shutdown();
}

/* Rank 2 lacks memory for a set that is added later: nobody gets it, all know
 * why, and the job goes on in the same generation. */
static int short_add_body(int rank, void *arg)
{
    struct shortage *shortage = arg;
    int set = -1, rc;

    want(hvd_init() == 0 && hvd_sync(NULL) == 0);
    hb_alloc_fail_after(rank == 2 ? shortage->succeed : -1);
    rc = hvd_process_set_add(low, 3, &set);
    if (hb_alloc_fail_after(-1))
        shortage->has_failed = 1;
    if (rc < 0) {
        want(rc == -HVD_ENOMEM && set == -1 && hvd_process_sets(NULL, 0) == 1);
        want(rank == 2 || strstr(hvd_error_message(), "rank 2"));
        want(hvd_process_set_add(low, 3, &set) == 0);
    }
    want(hvd_generation() == 1 && hvd_size() == 5);
    want(is_set(set, low, 3) == 0);
    return hvd_shutdown();
}

/* Plays a scene with each allocation of rank 2 failing, or with some where the
 * others wait for a connection first.  deaths: of other ranks. */
static void play_short(const struct scene *scene, world_fn *body, int deaths)
{
    struct shortage *shortage =
        mmap(NULL, sizeof(*shortage), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed;

    ck_assert_ptr_ne(shortage, MAP_FAILED);
    do {
        shortage->has_failed = 0;
        shortage->left = 0;
        failed = play(scene, body, shortage, 0);
        ck_assert_msg(failed == deaths + (shortage->left != 0),
                      "allocation %ld: %d ranks failed", shortage->succeed,
                      failed);
        ck_assert(!shortage->left || shortage->has_failed);
        ck_assert(!shortage->left || shortage->left == -HVD_ENOMEM);
        shortage->succeed += scene == scenes ? 1 : 6;
    } while (shortage->has_failed);
    ck_assert_int_gt(shortage->succeed, 10);
    munmap(shortage, sizeof(*shortage));
}

START_TEST(test_short_init)
{
    play_short(&scenes[_i], short_init_body, 0);
}
END_TEST

START_TEST(test_short_sync)
{
    play_short(&scenes[_i], short_sync_body, 1);
}
END_TEST

START_TEST(test_short_first)
{
    play_short(&scenes[_i], short_first_body, 0);
}
END_TEST

START_TEST(test_short_add)
{
    play_short(&scenes[_i], short_add_body, 0);
}
END_TEST

/* ---- Leaving the job -------------------------------------------------------
 */

/* What a rank has noted of its sets ends with hvd_shutdown. */
static int shutdown_body(int rank, void *arg)
{
    static const int low_only[] = {0, 1};
    int set = -1;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(low, 3, &set) == 0);
    if (rank == 2)
        return hvd_shutdown();
    want(next_generation() == 0 && is_set(set, low_only, 2) == 0);
    want(hvd_shutdown() == 0 && !is_there(set));
    return 0;
}

START_TEST(test_shutdown)
{
    ck_assert_int_eq(play(&scenes[_i], shutdown_body, NULL, 0), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("set_keep");
    TCase *tc = tcase_create("set_keep");
    TCase *shortages = tcase_create("shortages");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_deaths, 0, SCENES);
    tcase_add_loop_test(tc, test_late, 0, SCENES);
    tcase_add_loop_test(tc, test_any_late, 0, SCENES);
    tcase_add_loop_test(tc, test_init_death, 0, SCENES);
    tcase_add_loop_test(tc, test_init_then_death, 0, SCENES);
    tcase_add_loop_test(tc, test_init_again, 0, SCENES);
    tcase_add_loop_test(tc, test_spare, 0, SCENES);
    tcase_add_loop_test(tc, test_random, 0, SCENES);
    tcase_add_loop_test(tc, test_shutdown, 0, SCENES);
    suite_add_tcase(s, tc);
    tcase_set_timeout(shortages, 60);
    tcase_add_loop_test(shortages, test_short_init, 0, SCENES);
    tcase_add_loop_test(shortages, test_short_sync, 0, SCENES);
    tcase_add_loop_test(shortages, test_short_first, 0, SCENES);
    tcase_add_loop_test(shortages, test_short_add, 0, SCENES);
    suite_add_tcase(s, shortages);
    return unit_run(s);
}
