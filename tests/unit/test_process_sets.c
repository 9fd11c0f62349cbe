/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets: adding and removing them, operations in them, also at the same
 * time, and what is refused.
 */
#include "lib/base/alloc.h"
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MANY_RANKS = 9 };

static struct hvd_options in_set(int set)
{
    struct hvd_options o = HVD_OPTIONS_INIT;

    o.process_set = set;
    return o;
}

/* Sums the ranks of a set and compares the result. */
static int sum_in(int set, int expected)
{
    struct hvd_options o = in_set(set);
    int32_t x = hvd_rank();

    want(hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, &o) == 0);
    want(x == expected);
    return 0;
}

/* ---- Life -------------------------------------------------------------- */

static int even_odd_body(int rank, void *arg)
{
    const int even[] = {2, 0}, odd[] = {1, 3};
    int sets[8], ranks[8], e = -1, o = -1, mine;

    (void)arg;
    want(hvd_init() == 0);
    for (int again = 0; again < 3; again++) {
        want(hvd_process_set_add(even, 2, &e) == 0 && e == 1);
        want(hvd_process_set_add(odd, 2, &o) == 0 && o == 2);
        mine = rank % 2 ? o : e;
        want(hvd_process_sets(sets, 8) == 3);
        want(sets[0] == 0 && sets[1] == 1 && sets[2] == 2);
        want(hvd_process_set_size(e) == 2);
        want(hvd_process_set_ranks(e, ranks, 8) == 2);
        want(ranks[0] == 0 && ranks[1] == 2);
        want(hvd_process_set_rank(mine) == rank / 2);
        want(hvd_process_set_rank(mine == e ? o : e) == -HVD_ENOTMEMBER);
        for (int i = 0; i < 20; i++) {
            want(sum_in(mine, rank % 2 ? 4 : 2) == 0);
            want(sum_in(HVD_WORLD, 6) == 0);
        }
        want(hvd_process_set_remove(e) == 0);
        want(hvd_process_set_size(e) == -HVD_ENOSET);
        want(hvd_process_set_remove(o) == 0);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_even_odd)
{
    ck_assert_int_eq(world_run(4, even_odd_body, NULL), 0);
}
END_TEST

/* Members do not wait for other ranks: rank 0 stays away until the set of ranks
 * 1 and 2 has done all its work. */
static int independent_body(int rank, void *arg)
{
    const int members[] = {1, 2};
    int set = -1;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(members, 2, &set) == 0);
    if (rank) {
        for (int i = 0; i < 50; i++)
            want(sum_in(set, 3) == 0);
        atomic_fetch_add(&world_board->flag[0], 1);
    }
    while (rank == 0 && atomic_load(&world_board->flag[0]) < 2)
        ;
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_independent)
{
    ck_assert_int_eq(world_run(3, independent_body, NULL), 0);
}
END_TEST

/* Asynchronous operations of two sets, issued in opposite orders. */
static int crossing_body(int rank, void *arg)
{
    const int a[] = {0, 1}, b[] = {0, 1, 2};
    int first = -1, second = -1;
    int32_t x[2], y[2];

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(a, 2, &first) == 0);
    want(hvd_process_set_add(b, 3, &second) == -HVD_EEXIST || hvd_size() > 3);
    for (int i = 0; i < 30 && rank < 2; i++) {
        struct hvd_options o[2] = {in_set(HVD_WORLD), in_set(first)};
        hvd_request *reqs[2];

        for (int k = 0; k < 2; k++) {
            int which = (k + rank) % 2;

            x[which] = which;
            want(hvd_allreduce_async("same name", &x[which], &y[which], 1,
                                     HVD_INT32, HVD_SUM, &o[which],
                                     &reqs[which]) == 0);
        }
        want(hvd_wait(reqs[rank % 2]) == 0);
        want(hvd_wait(reqs[(rank + 1) % 2]) == 0);
        want(y[1] == 2 && y[0] == 0);
    }
    for (int i = 0; i < 30 && rank == 2; i++) {
        hvd_request *req;

        x[0] = 0;
        want(hvd_allreduce_async("same name", x, y, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == 0);
        want(hvd_wait(req) == 0);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_crossing)
{
    ck_assert_int_eq(world_run(3, crossing_body, NULL), 0);
}
END_TEST

/* Runs every collective on a set.  Roots are given as ranks of the world. */
static int kinds_body(int rank, void *arg)
{
    const int members[] = {3, 1};
    struct hvd_options o;
    int32_t x = rank, got[4] = {0}, rows[3] = {rank, rank, rank};
    size_t counts[2];
    int set = -1;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(members, 2, &set) == 0);
    o = in_set(set);
    if (rank == 1 || rank == 3) {
        want(hvd_broadcast(&x, &x, 1, HVD_INT32, 3, &o) == 0 && x == 3);
        want(hvd_broadcast(&x, &x, 1, HVD_INT32, 0, &o) == -HVD_EINVAL);
        x = rank;
        want(hvd_broadcast(&x, &x, 1, HVD_INT32, rank, &o) == -HVD_EMISMATCH);
        want(strstr(hvd_error_message(),
                    "rank 1 has root 1, rank 3 has root 3"));
        want(hvd_allgather(&x, 1, got, 4, counts, HVD_INT32, &o) == 0);
        want(got[0] == 1 && got[1] == 3 && counts[1] == 1);
        want(hvd_alltoall(rows, NULL, 2, got, 4, counts, HVD_INT32, &o) == 0);
        want(got[0] == 1 && got[1] == 3);
        want(hvd_reducescatter_rows(3, set) == (rank == 1 ? 2 : 1));
        want(hvd_reducescatter(rows, got, 3, 1, HVD_INT32, HVD_SUM, &o) == 0);
        want(got[0] == 4);
        want(hvd_join(NULL, &o) == 0);
        want(hvd_barrier(&o) == 0);
    } else {
        want(hvd_barrier(&o) == -HVD_ENOTMEMBER);
        want(strstr(hvd_error_message(), "is not a member of process set 1"));
        want(hvd_reducescatter_rows(3, set) == 0);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_kinds)
{
    ck_assert_int_eq(world_run(4, kinds_body, NULL), 0);
}
END_TEST

/* ---- Refused ------------------------------------------------------------ */

static int refused_body(int rank, void *arg)
{
    const int all[] = {0, 1, 2}, twice[] = {1, 1}, none[] = {0, 7};
    const int mine[] = {0, rank ? 1 : 2};
    struct hvd_options o = in_set(5);
    int set = -1;

    (void)arg;
    want(hvd_process_set_add(all, 2, &set) == -HVD_ENOTINIT);
    want(hvd_init() == 0);
    want(hvd_process_set_add(all, 0, &set) == -HVD_EINVAL);
    want(hvd_process_set_add(all, 4, &set) == -HVD_EINVAL);
    want(hvd_process_set_add(NULL, 1, &set) == -HVD_EINVAL);
    /* One rank's invalid argument is an error on every rank. */
    want(hvd_process_set_add(hvd_rank() ? all : NULL, 1, &set) == -HVD_EINVAL);
    want(strstr(hvd_error_message(),
                hvd_rank() ? "rank 0: ranks or set is NULL"
                           : "hvd_process_set_add: ranks or set is NULL"));
    set = 1;
    want(hvd_process_set_add(all, 3, &set) == -HVD_EEXIST && set == HVD_WORLD);
    want(strstr(hvd_error_message(), "process set 0 has the same ranks"));
    set = -1;
    want(hvd_process_set_add(twice, 2, &set) == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "rank 1 is named twice"));
    want(hvd_process_set_add(none, 2, &set) == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "rank 7 is not in 0..2"));
    want(hvd_process_set_add(mine, 2, &set) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "member 1 is rank 2 on rank 0 and rank "));
    want(hvd_process_set_add(all, rank ? 2 : 1, &set) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "rank 1 names more ranks than rank 0"));
    want(set == -1);
    want(hvd_process_set_remove(0) == -HVD_EINVAL);
    want(hvd_process_set_remove(4) == -HVD_ENOSET);
    want(hvd_process_set_remove(rank ? 4 : 5) == -HVD_EMISMATCH);
    want(hvd_barrier(&o) == -HVD_ENOSET);
    want(hvd_process_set_size(-1) == -HVD_ENOSET);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_refused)
{
    ck_assert_int_eq(world_run(3, refused_body, NULL), 0);
}
END_TEST

/* Makes the set of the ranks whose bits are set, and stores its number. */
static int add_bits(unsigned bits, int *set)
{
    int ranks[MANY_RANKS];
    size_t n = 0;

    for (int r = 0; r < MANY_RANKS; r++)
        if (bits & 1u << r)
            ranks[n++] = r;
    return hvd_process_set_add(ranks, n, set);
}

/* Returns the sum of the ranks whose bits are set. */
static int sum_of_bits(unsigned bits)
{
    int sum = 0;

    for (int r = 0; r < MANY_RANKS; r++)
        sum += bits & 1u << r ? r : 0;
    return sum;
}

/* Adds as many sets as are allowed, uses them all while they exist, and adds
 * another when one is removed. */
static int many_body(int rank, void *arg)
{
    int set = -1, made = 0, sets[HVD_PROCESS_SETS_MAX], rc = 0;

    (void)arg;
    want(hvd_init() == 0);
    for (unsigned bits = 1; bits < (1u << MANY_RANKS) - 1 && rc == 0; bits++) {
        rc = add_bits(bits, &set);
        want(rc < 0 || set == (int)bits);
        made += rc == 0;
    }
    want(rc == -HVD_EINVAL && made == HVD_PROCESS_SETS_MAX - 1 && made > 200);
    want(strstr(hvd_error_message(), "256 process sets already"));
    want(hvd_process_sets(sets, HVD_PROCESS_SETS_MAX) == HVD_PROCESS_SETS_MAX);
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        want(sets[i] == i);
    for (int i = 1; i < HVD_PROCESS_SETS_MAX; i++)
        if (i & 1 << rank)
            want(sum_in(i, sum_of_bits((unsigned)i)) == 0);
    want(hvd_process_set_remove(7) == 0);
    want(add_bits(0x102, &set) == 0 && set == 7);
    if (rank == 1 || rank == 8)
        want(sum_in(7, 9) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

static const char *const many_places[] = {NULL, "aaabbbccc", "abcdefghi"};

START_TEST(test_many)
{
    struct world w = {
        .size = MANY_RANKS, .body = many_body, .place = many_places[_i]};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

/* A set is removed while an operation in it is in flight. */
static int pending_body(int rank, void *arg)
{
    const int members[] = {0, 1};
    struct hvd_options o;
    hvd_request *req = NULL;
    int32_t x = 1;
    int set = -1;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(members, 2, &set) == 0);
    o = in_set(set);
    if (rank == 0)
        want(hvd_allreduce_async("never", &x, &x, 1, HVD_INT32, HVD_SUM, &o,
                                 &req) == 0);
    want(hvd_process_set_remove(set) == 0);
    if (rank == 0)
        want(hvd_wait(req) == -HVD_ENOSET);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_pending)
{
    ck_assert_int_eq(world_run(3, pending_body, NULL), 0);
}
END_TEST

/* Refused while a rank has joined, which would not learn of the change. */
static int joined_body(int rank, void *arg)
{
    const int first[] = {0, 1}, second[] = {1, 2};
    int set = -1;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(first, 2, &set) == 0 && set == 1);
    if (rank < 2) {
        want(hvd_process_set_remove(set) == -HVD_EINVAL);
        want(strstr(hvd_error_message(), "a rank has joined"));
        want(sum_in(set, 1) == 0);
        want(hvd_process_set_add(second, 2, &set) == -HVD_EINVAL);
        want(strstr(hvd_error_message(), "a rank has joined"));
    }
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_process_set_remove(set) == 0);
    want(hvd_process_set_add(second, 2, &set) == 0 && set == 1);
    want(rank == 0 || sum_in(set, 3) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_joined)
{
    ck_assert_int_eq(world_run(3, joined_body, NULL), 0);
}
END_TEST

/* ---- Removed while memory is lent ---------------------------------------- */

enum { LENT = 1 << 18, NAP_NS = 1000 * 1000, NAPS = 400 };

static void nap(void)
{
    const struct timespec ms = {0, NAP_NS};

    nanosleep(&ms, NULL);
}

/* Memory that a rank's thread lends to its peers. */
struct lender {
    struct hvd_options o;
    int32_t *x, *y;
    _Atomic int begun;
    int rc;
};

/* Signal handler: holds rank 1 until rank 0 has its memory back, for NAPS at
 * most. */
static void hold_up(int number)
{
    (void)number;
    atomic_store(&world_board->flag[1], 1);
    for (int i = 0; i < NAPS && !atomic_load(&world_board->flag[0]); i++)
        nap();
}

static void *lend(void *arg)
{
    struct lender *l = arg;

    atomic_store(&l->begun, 1);
    l->rc = hvd_allreduce(l->x, l->y, LENT, HVD_INT32, HVD_SUM, &l->o);
    if (hvd_rank() == 1)
        return NULL;
    for (int i = 0; i < LENT; i++)
        l->x[i] = l->y[i] = 7;
    atomic_store(&world_board->flag[0], 1);
    return NULL;
}

/* Interrupts rank 1's thread once it has told where its memory is. */
static int interrupt(pthread_t thread, struct lender *l)
{
    while (!atomic_load(&l->begun))
        nap();
    for (int i = 0; i < 50; i++)
        nap();
    want(pthread_kill(thread, SIGUSR1) == 0);
    return 0;
}

/* A rank's operation does not end before its peers have stopped using the
 * memory that it lent them. */
static int lent_body(int rank, void *arg)
{
    const int members[] = {0, 1};
    struct lender l = {.rc = 1};
    pthread_t thread;
    int set = -1;

    (void)arg;
    signal(SIGUSR1, hold_up);
    want(hvd_init() == 0);
    want(hvd_process_set_add(members, 2, &set) == 0);
    if (rank == 2) {
        want(hvd_process_set_remove(set) == 0);
        want(hvd_barrier(NULL) == 0);
        want(hvd_shutdown() == 0);
        return 0;
    }
    l.o = in_set(set);
    want(hvd_alloc(LENT * sizeof(*l.x), (void **)&l.x) == 0);
    want(hvd_alloc(LENT * sizeof(*l.y), (void **)&l.y) == 0);
    for (int i = 0; i < LENT; i++)
        l.x[i] = i;
    while (rank == 0 && !atomic_load(&world_board->flag[1]))
        nap();
    want(pthread_create(&thread, NULL, lend, &l) == 0);
    if (rank == 1)
        want(interrupt(thread, &l) == 0);
    for (int i = 0; i < 50; i++)
        nap();
    want(hvd_process_set_remove(set) == 0);
    want(pthread_join(thread, NULL) == 0);
    want(hvd_barrier(NULL) == 0);
    want(l.rc == 0 || l.rc == -HVD_ENOSET);
    for (int i = 0; i < LENT; i++)
        want(l.y[i] == (rank == 0 ? 7 : l.rc == 0 ? 2 * i : l.y[i]));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_lent)
{
    ck_assert_int_eq(world_run(3, lent_body, NULL), 0);
}
END_TEST

static int static_body(int rank, void *arg)
{
    const int a[] = {0}, b[] = {1, 2}, bad[] = {9};
    const int *good_sets[] = {a, b}, *bad_sets[] = {a, bad};
    const size_t counts[] = {1, 2}, ones[] = {1, 1};

    (void)arg;
    want(hvd_init_sets(bad_sets, ones, 2) == -HVD_EINVAL);
    want(!hvd_is_initialized());
    want(hvd_init_sets(good_sets, counts, rank ? 1 : 2) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "sets: 1 and another 2"));
    want(!hvd_is_initialized());
    want(hvd_init_sets(good_sets, counts, 2) == 0);
    want(hvd_init_sets(good_sets, counts, 2) == -HVD_EINVAL);
    want(sum_in(rank ? 2 : 1, rank ? 3 : 0) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_static)
{
    ck_assert_int_eq(world_run(3, static_body, NULL), 0);
}
END_TEST

static void *come_and_go(void *arg)
{
    const int pair[] = {0, 1};
    int *rc = arg;

    while (!*rc) {
        int set = -1;

        *rc = hvd_process_set_add(pair, 2, &set);
        if (!*rc)
            *rc = hvd_process_set_remove(set);
    }
    return NULL;
}

/* A set is added or removed while another thread shuts down. */
static int going_body(int rank, void *arg)
{
    struct timespec nap = {0, 0};

    (void)arg;
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        int rc = 0;

        want(hvd_init() == 0);
        want(pthread_create(&thread, NULL, come_and_go, &rc) == 0);
        nap.tv_nsec = i * (rank + 1) * 7000;
        nanosleep(&nap, NULL);
        want(hvd_shutdown() == 0);
        pthread_join(thread, NULL);
        want(rc == -HVD_ESHUTDOWN || rc == -HVD_ENOTINIT);
        want(hvd_process_sets(NULL, 0) == -HVD_ENOTINIT);
    }
    return 0;
}

START_TEST(test_going)
{
    ck_assert_int_eq(world_run(3, going_body, NULL), 0);
}
END_TEST

/* If rank 1 has no memory for a set, no rank has the set, and all go on. */
static int no_memory_body(int rank, void *arg)
{
    const int pair[] = {1, 2};
    int fired = 1;

    (void)arg;
    want(hvd_init() == 0);
    for (long n = 0; fired; n++) {
        int set = -1, rc;

        want(n < 100);
        if (rank == 1)
            hb_alloc_fail_after(n);
        rc = hvd_process_set_add(pair, 2, &set);
        fired = hb_alloc_fail_after(-1);
        want(hvd_broadcast(&fired, &fired, 1, HVD_INT32, 1, NULL) == 0);
        want(rc == (fired ? -HVD_ENOMEM : 0));
        want(hvd_process_sets(NULL, 0) == (fired ? 1 : 2));
        want(sum_in(HVD_WORLD, 3) == 0);
        want(fired || set == 1);
    }
    want(rank == 0 || sum_in(1, 3) == 0);
    want(hvd_process_set_remove(1) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_no_memory)
{
    ck_assert_int_eq(world_run(3, no_memory_body, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("process_sets");
    TCase *tc = tcase_create("process_sets");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_even_odd);
    tcase_add_test(tc, test_independent);
    tcase_add_test(tc, test_crossing);
    tcase_add_test(tc, test_kinds);
    tcase_add_test(tc, test_refused);
    tcase_add_loop_test(tc, test_many, 0,
                        sizeof(many_places) / sizeof(many_places[0]));
    tcase_add_test(tc, test_pending);
    tcase_add_test(tc, test_joined);
    tcase_add_test(tc, test_lent);
    tcase_add_test(tc, test_static);
    tcase_add_test(tc, test_going);
    tcase_add_test(tc, test_no_memory);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
