/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets in worlds on several hosts, and on one host with HVD_FORCE_TCP:
 * every kind of collective in them, sets at the same time, sets that come and
 * go, and their failures.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const places[] = {"ab",     "aabb",    "abbb",
                                     "aaabbc", "abcabca", "aaaa"};
enum { PLACES = sizeof(places) / sizeof(places[0]), BIG = UNIT_LARGE(300007) };

static int run_on(const char *place, world_fn *body, void *arg)
{
    struct world w = {
        .size = (int)strlen(place), .body = body, .arg = arg, .place = place};

    return world_run_with(&w);
}

/* ---- One set ------------------------------------------------------------- */

static int64_t number(int rank, size_t i)
{
    return (int64_t)((size_t)rank * 1000 + i);
}

static int reduces(int set, const int *ranks, int n, size_t count)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int64_t *buf = calloc(count + 1, 8), sum = 0;

    want(buf);
    opts.process_set = set;
    for (int i = 0; i < n; i++)
        sum += ranks[i];
    for (size_t i = 0; i < count; i++)
        buf[i] = number(hvd_rank(), i);
    want(hvd_allreduce(buf, buf, count, HVD_INT64, HVD_SUM, &opts) == 0);
    for (size_t i = 0; i < count; i++)
        want(buf[i] == sum * 1000 + (int64_t)i * n);
    free(buf);
    return 0;
}

static int scatters(int set, const int *ranks, int n, size_t rows)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    size_t mine = hvd_reducescatter_rows(rows, set), first = 0;
    int64_t *send = malloc((rows + 1) * 24), *recv = malloc((mine + 1) * 24);
    int64_t sum = 0;
    size_t me = (size_t)hvd_process_set_rank(set), each = rows / (size_t)n;

    want(send && recv);
    opts.process_set = set;
    first = me * each + (me < rows % (size_t)n ? me : rows % (size_t)n);
    for (int i = 0; i < n; i++)
        sum += ranks[i];
    for (size_t i = 0; i < rows * 3; i++)
        send[i] = number(hvd_rank(), i);
    want(hvd_reducescatter(send, recv, rows, 3, HVD_INT64, HVD_SUM, &opts) ==
         0);
    for (size_t i = 0; i < mine * 3; i++)
        want(recv[i] == sum * 1000 + (int64_t)(first * 3 + i) * n);
    free(send);
    free(recv);
    return 0;
}

/* Alltoall of numbers made of both ranks; the counts differ by pair, some are
 * 0. */
static int trades(int set, const int *ranks, int n, size_t scale)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    size_t counts[WORLD_RANKS_MAX], got[WORLD_RANKS_MAX], sum = 0, in = 0;
    int me = hvd_process_set_rank(set);
    int32_t *send, *recv, *at;

    opts.process_set = set;
    for (int i = 0; i < n; i++) {
        counts[i] = (size_t)((me + 2 * i) % 3) * scale;
        sum += counts[i];
        in += (size_t)((i + 2 * me) % 3) * scale;
    }
    at = send = malloc((sum + 1) * 4);
    recv = malloc((in + 1) * 4);
    want(send && recv);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < counts[i]; k++)
            *at++ = hvd_rank() * 100 + ranks[i];
    want(hvd_alltoall(send, counts, sum, recv, in, got, HVD_INT32, &opts) == 0);
    at = recv;
    for (int i = 0; i < n; i++) {
        want(got[i] == (size_t)((i + 2 * me) % 3) * scale);
        for (size_t k = 0; k < got[i]; k++)
            want(*at++ == ranks[i] * 100 + hvd_rank());
    }
    free(send);
    free(recv);
    return 0;
}

static int gathers(int set, const int *ranks, int n, size_t count)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int32_t *send = malloc((count + 1) * 4);
    int32_t *recv = malloc((count * (size_t)n + 1) * 4), *at = recv;

    want(send && recv);
    opts.process_set = set;
    for (size_t i = 0; i < count; i++)
        send[i] = hvd_rank() + (int32_t)i;
    want(hvd_allgather(send, count, recv, count * (size_t)n, NULL, HVD_INT32,
                       &opts) == 0);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < count; i++)
            want(*at++ == ranks[r] + (int32_t)i);
    want(hvd_broadcast(send, send, count, HVD_INT32, ranks[n - 1], &opts) == 0);
    for (size_t i = 0; i < count; i++)
        want(send[i] == ranks[n - 1] + (int32_t)i);
    free(send);
    free(recv);
    return 0;
}

static int use(int set, const int *ranks, int n)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    static const size_t counts[] = {0, 1, 1000, BIG};

    opts.process_set = set;
    want(hvd_process_set_size(set) == n);
    want(hvd_process_set_rank(set) >= 0);
    for (int i = 0; i < 4; i++) {
        want(reduces(set, ranks, n, counts[i]) == 0);
        want(scatters(set, ranks, n, counts[i]) == 0);
        want(trades(set, ranks, n, counts[i]) == 0);
        want(gathers(set, ranks, n, counts[i]) == 0);
    }
    want(hvd_barrier(&opts) == 0);
    return 0;
}

/* ---- Several ------------------------------------------------------------- */

/* Adds a set of the ranks that `chosen` selects, uses it, and keeps it. */
static int with_set(int rank, int (*chosen)(int rank, int n), int *set)
{
    int ranks[WORLD_RANKS_MAX], n = 0;

    for (int r = 0; r < hvd_size(); r++)
        if (chosen(r, hvd_size()))
            ranks[n++] = r;
    want(n > 0);
    want(hvd_process_set_add(ranks, (size_t)n, set) == 0);
    if (!chosen(rank, hvd_size())) {
        want(hvd_process_set_rank(*set) == -HVD_ENOTMEMBER);
        return 0;
    }
    return use(*set, ranks, n);
}

static int ends(int rank, int n)
{
    return rank == 0 || rank == n - 1;
}

static int but_first(int rank, int n)
{
    return rank > 0 || n == 1;
}

static int evens(int rank, int n)
{
    return rank % 2 == 0 || n == 1;
}

static int one(int rank, int n)
{
    return rank == n - 1;
}

static int sets_body(int rank, void *arg)
{
    int (*const chosen[])(int, int) = {ends, but_first, evens, one};
    int sets[4], n = hvd_init() == 0 ? hvd_size() : 0;

    (void)arg;
    want(n > 0);
    for (int i = 0; i < 4; i++) {
        /* With few ranks some of these sets would be equal. */
        if ((n == 2 && i > 1) || (n == 2 && i == 0) || (n == 3 && i == 2))
            sets[i] = -1;
        else
            want(with_set(rank, chosen[i], &sets[i]) == 0);
    }
    for (int i = 3; i >= 0; i -= 2)
        if (sets[i] > 0)
            want(hvd_process_set_remove(sets[i]) == 0);
    for (int i = 3; i >= 0; i -= 2)
        if (sets[i] > 0)
            want(with_set(rank, chosen[i], &sets[i]) == 0);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    /* The same in the next world. */
    want(hvd_init() == 0);
    want(with_set(rank, but_first, &sets[0]) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_sets)
{
    ck_assert_int_eq(run_on(places[_i], sets_body, NULL), 0);
}
END_TEST

/* Two halves and the world, all in flight at the same time, many times. */
static int at_once_body(int rank, void *arg)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int low[WORLD_RANKS_MAX], high[WORLD_RANKS_MAX], sets[2], n, half;
    float mine[2000], all[2000];

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    half = n / 2;
    for (int r = 0; r < n; r++)
        *(r < half ? &low[r] : &high[r - half]) = r;
    want(hvd_process_set_add(low, (size_t)half, &sets[0]) == 0);
    want(hvd_process_set_add(high, (size_t)(n - half), &sets[1]) == 0);
    for (int i = 0; i < 200; i++) {
        hvd_request *a = NULL, *b = NULL;
        int members = rank < half ? half : n - half;

        for (int k = 0; k < 2000; k++)
            mine[k] = all[k] = 1;
        opts.process_set = sets[rank >= half];
        want(hvd_allreduce_async("half", mine, mine, 2000, HVD_FLOAT32, HVD_SUM,
                                 &opts, &a) == 0);
        want(hvd_allreduce_async("all", all, all, 2000, HVD_FLOAT32, HVD_SUM,
                                 NULL, &b) == 0);
        want(hvd_wait(i % 2 ? a : b) == 0);
        want(hvd_wait(i % 2 ? b : a) == 0);
        for (int k = 0; k < 2000; k++)
            want(mine[k] == (float)members && all[k] == (float)n);
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_at_once)
{
    ck_assert_int_eq(run_on(places[_i], at_once_body, NULL), 0);
}
END_TEST

/* ---- Failing ------------------------------------------------------------- */

static int mismatch_body(int rank, void *arg)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int32_t buf[20] = {0};
    int ranks[] = {1, 3, 4}, set = 0;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_process_set_add(ranks, 3, &set) == 0);
    opts.process_set = set;
    if (rank == 1 || rank == 3 || rank == 4) {
        want(hvd_allreduce(buf, buf, rank == 4 ? 20 : 10, HVD_INT32, HVD_SUM,
                           &opts) == -HVD_EMISMATCH);
        want(strstr(hvd_error_message(),
                    "rank 1 on host host-b has count 10, rank 4 on host "
                    "host-c has count 20"));
        want(reduces(set, ranks, 3, 100) == 0);
    } else {
        want(hvd_barrier(&opts) == -HVD_ENOTMEMBER);
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_mismatch)
{
    ck_assert_int_eq(run_on("abbbcc", mismatch_body, NULL), 0);
}
END_TEST

/* A member dies during an operation: all members are told which rank it was,
 * whether they share its host or not. */
static int death_body(int rank, void *arg)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int ranks[] = {0, 2, 3, 5}, set = 0, rc = 0;
    float *buf = calloc(BIG, 4);

    (void)arg;
    want(buf && hvd_init() == 0);
    want(hvd_process_set_add(ranks, 4, &set) == 0);
    opts.process_set = set;
    for (int i = 0; rc == 0 && (rank % 5 == 0 || rank == 2 || rank == 3); i++) {
        if (rank == 3 && i == 3)
            kill(getpid(), SIGKILL);
        rc = hvd_allreduce(buf, buf, BIG, HVD_FLOAT32, HVD_MAX, &opts);
    }
    if (rank != 1 && rank != 4) {
        want(rc == -HVD_EPEER);
        want(strstr(hvd_error_message(), "rank 3 on host host-b"));
    }
    want(hvd_shutdown() == 0);
    free(buf);
    return 0;
}

START_TEST(test_death)
{
    struct world w = {.size = 6, .body = death_body, .place = "aabbcc"};

    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert_int_eq(w.wait_status[3], SIGKILL);
}
END_TEST

/* ---- One host treated as many -------------------------------------------- */

static int forced_body(int rank, void *arg)
{
    int ranks[WORLD_RANKS_MAX];

    want(hvd_init() == 0);
    want(hvd_local_size() == hvd_size());
    for (int r = 0; r < hvd_size(); r++)
        ranks[r] = r;
    want(use(HVD_WORLD, ranks, hvd_size()) == 0);
    want(hvd_shutdown() == 0);
    return hvd_size() > 1 ? sets_body(rank, arg) : 0;
}

START_TEST(test_forced)
{
    static const int sizes[] = {1, 2, 3, 5, 8};

    setenv("HVD_FORCE_TCP", "1", 1);
    ck_assert_int_eq(world_run(sizes[_i], forced_body, NULL), 0);
}
END_TEST

static int forced_death_body(int rank, void *arg)
{
    float *buf = calloc(BIG, 4);
    int rc = 0;

    (void)arg;
    want(buf && hvd_init() == 0);
    for (int i = 0; rc == 0; i++) {
        if (rank == 1 && i == 3)
            kill(getpid(), SIGKILL);
        rc = hvd_allreduce(buf, buf, BIG, HVD_FLOAT32, HVD_SUM, NULL);
    }
    want(rc == -HVD_EPEER);
    want(strstr(hvd_error_message(), "rank 1 on host testhost"));
    want(hvd_shutdown() == 0);
    free(buf);
    return 0;
}

START_TEST(test_forced_death)
{
    struct world w = {.size = 3, .body = forced_death_body};

    setenv("HVD_FORCE_TCP", "1", 1);
    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert_int_eq(w.wait_status[1], SIGKILL);
}
END_TEST

static int refused_body(int rank, void *arg)
{
    const char *text = arg;

    (void)rank;
    want(hvd_init() < 0);
    want(strstr(hvd_error_message(), text));
    return 0;
}

START_TEST(test_forced_refused)
{
    static char several[] = "HVD_FORCE_TCP is for jobs on one host";
    static char wrong[] = "HVD_FORCE_TCP";

    setenv("HVD_FORCE_TCP", "1", 1);
    ck_assert_int_eq(run_on("ab", refused_body, several), 0);
    setenv("HVD_FORCE_TCP", "maybe", 1);
    ck_assert_int_eq(world_run(2, refused_body, wrong), 0);
}
END_TEST

static Suite *sets_suite(void)
{
    Suite *s = suite_create("hosts_sets");
    TCase *t = tcase_create("hosts_sets");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, test_sets, 0, PLACES);
    tcase_add_loop_test(t, test_at_once, 0, PLACES);
    tcase_add_test(t, test_mismatch);
    tcase_add_test(t, test_death);
    tcase_add_loop_test(t, test_forced, 0, 5);
    tcase_add_test(t, test_forced_death);
    tcase_add_test(t, test_forced_refused);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(sets_suite());
}
