/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds on several hosts: every kind of collective, type and size over every
 * shape of world, mismatches, repeated hvd_init.  test_hosts_failure.c tests
 * how worlds end.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>

/* The host of each rank: 1 + 1, 2 + 2, 1 + 3, 3 + 2 + 1, 4 x 1, ranks that
 * alternate between hosts, and one host's ranks between another's. */
static const char *const places[] = {"ab",   "aabb",    "abbb",  "aaabbc",
                                     "abcd", "abcabca", "abbab", "aaaaab"};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static const size_t counts[] = {0, 1, 7, 4096, UNIT_LARGE(1000000)};
enum {
    COUNTS = sizeof(counts) / sizeof(counts[0]),
    COUNT_MAX = UNIT_LARGE(1000000)
};

static int run_on(const char *place, world_fn *body, void *arg)
{
    struct world w = {
        .size = (int)strlen(place), .body = body, .arg = arg, .place = place};

    return world_run_with(&w);
}

static int32_t mark(int rank, size_t i)
{
    return (int32_t)((size_t)rank * 1000003 + i * 7);
}

/* ---- Topology -------------------------------------------------------- */

/* Returns whether each host of a place has the same number of ranks. */
static int is_even(const char *place)
{
    size_t on_host['z' + 1] = {0};

    for (const char *p = place; *p; p++)
        on_host[(unsigned char)*p]++;
    for (const char *p = place; *p; p++)
        if (on_host[(unsigned char)*p] != on_host[(unsigned char)*place])
            return 0;
    return 1;
}

static int topology_body(int rank, void *arg)
{
    const char *place = arg;
    int local = 0, size = 0;

    want(hvd_feature("is_homogeneous") == -HVD_ENOTINIT);
    want(hvd_init() == 0);
    want(hvd_feature("is_homogeneous") == is_even(place));
    want(hvd_feature("gloo_enabled") == 1 && hvd_feature("mpi_enabled") == 0);
    for (int r = 0; place[r]; r++) {
        size += place[r] == place[rank];
        local += place[r] == place[rank] && r < rank;
    }
    want(hvd_rank() == rank && hvd_size() == (int)strlen(place));
    want(hvd_local_rank() == local && hvd_local_size() == size);
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_topology)
{
    ck_assert_int_eq(
        run_on(places[_i], topology_body, (void *)(uintptr_t)places[_i]), 0);
}
END_TEST

/* ---- Allreduce ------------------------------------------------------- */

static int defined(enum hvd_dtype dtype, enum hvd_op op)
{
    int is_float = dtype == HVD_FLOAT16 || dtype == HVD_FLOAT32 ||
                   dtype == HVD_FLOAT64 || dtype == HVD_BFLOAT16;

    if (op == HVD_BAND || op == HVD_BOR)
        return !is_float;
    return op != HVD_AVERAGE || dtype != HVD_BOOL;
}

static int reduce_one(enum hvd_dtype dtype, enum hvd_op op, size_t count,
                      int trial, void *send, void *recv)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int n = hvd_size(), in_place = trial % 2;
    size_t bad;

    if (op == HVD_SUM && dtype != HVD_BOOL && trial % 3 == 0) {
        opts.prescale = 2;
        opts.postscale = 0.5;
    }
    values_fill(dtype, op, n, hvd_rank(), in_place ? recv : send, count);
    want(hvd_allreduce(in_place ? recv : send, recv, count, dtype, op, &opts) ==
         0);
    bad = values_check(dtype, op, n, 1, recv, count);
    if (bad == count)
        return 0;
    fprintf(stderr, "rank %d of %d: %s of %zu %s is wrong at %zu\n", hvd_rank(),
            n, hvd_op_name(op), count, hvd_dtype_name(dtype), bad);
    return 1;
}

static int reduce_body(int rank, void *arg)
{
    static const enum hvd_op ops[] = {HVD_AVERAGE, HVD_SUM,  HVD_MIN, HVD_MAX,
                                      HVD_PRODUCT, HVD_BAND, HVD_BOR};
    static const size_t some[] = {0, 1, 7, 4096, 20011};
    unsigned char *send = malloc(8 * COUNT_MAX), *recv = malloc(8 * COUNT_MAX);
    int trial = 0;

    (void)rank;
    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int d = 0; d < VALUES_DTYPES; d++)
        for (int o = 0; o < 7; o++)
            for (int c = 0; c < 5; c++)
                if (defined((enum hvd_dtype)d, ops[o]))
                    want(reduce_one((enum hvd_dtype)d, ops[o], some[c], trial++,
                                    send, recv) == 0);
    want(reduce_one(HVD_FLOAT32, HVD_SUM, COUNT_MAX, 0, send, recv) == 0);
    want(reduce_one(HVD_FLOAT16, HVD_AVERAGE, COUNT_MAX, 1, send, recv) == 0);
    want(reduce_one(HVD_INT64, HVD_SUM, COUNT_MAX - 1, 2, send, recv) == 0);
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_allreduce)
{
    ck_assert_int_eq(run_on(places[_i], reduce_body, NULL), 0);
}
END_TEST

/* A float sum that depends on the order of additions has the same bits on all
 * ranks. */
static int same_bits_body(int rank, void *arg)
{
    enum { MOST = UNIT_LARGE(200003) };
    static const size_t some[] = {7, 1003, MOST};
    float *send = malloc(MOST * 4), *recv = malloc(MOST * 4);
    float *all = malloc(MOST * 4 * 8);
    uint64_t x = 88172645463325252u + (uint64_t)rank * 977;

    (void)arg;
    want(send && recv && all && hvd_init() == 0);
    for (size_t i = 0; i < MOST; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        send[i] = (float)((double)x * 0x1p-54 - 300.0) / 3.0f;
    }
    for (int c = 0; c < 3; c++) {
        size_t n = some[c];

        want(hvd_allreduce(send, recv, n, HVD_FLOAT32, HVD_SUM, NULL) == 0);
        want(hvd_allgather(recv, n, all, n * (size_t)hvd_size(), NULL,
                           HVD_FLOAT32, NULL) == 0);
        for (int r = 0; r < hvd_size(); r++)
            want(memcmp(all + n * (size_t)r, recv, n * 4) == 0);
    }
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    free(all);
    return 0;
}

START_TEST(test_same_bits)
{
    ck_assert_int_eq(run_on(places[_i], same_bits_body, NULL), 0);
}
END_TEST

/* ---- Broadcast, allgather, barrier ----------------------------------- */

static int broadcast_body(int rank, void *arg)
{
    int32_t *send = malloc(COUNT_MAX * 4), *recv = malloc(COUNT_MAX * 4);

    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int c = 0; c < COUNTS; c++)
        for (int root = 0; root < hvd_size(); root++) {
            int32_t *from = (c + root) % 2 ? recv : send;

            for (size_t i = 0; i < counts[c]; i++) {
                recv[i] = -1;
                if (rank == root)
                    from[i] = mark(root, i);
            }
            want(hvd_broadcast(rank == root ? from : NULL, recv, counts[c],
                               HVD_INT32, root, NULL) == 0);
            for (size_t i = 0; i < counts[c]; i++)
                want(recv[i] == mark(root, i));
        }
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_broadcast)
{
    ck_assert_int_eq(run_on(places[_i], broadcast_body, NULL), 0);
}
END_TEST

static size_t rows(int trial, int rank)
{
    static const size_t kinds[][4] = {
        {0, 0, 0, 0},
        {1, 1, 1, 1},
        {26, 0, 27, 3},
        {0, 0, 40000, 0},
        {500, 501, 0, 9},
        {UNIT_LARGE(100000), 1, 40000, 70001},
        {UNIT_LARGE(300000), 0, 0, 1},
    };

    return kinds[trial][rank % 4];
}
enum { TRIALS = 7, GATHER_MAX = 700000 };

static int check_gathered(int trial, const int32_t *recv, const size_t *got)
{
    size_t at = 0;

    for (int r = 0; r < hvd_size(); r++) {
        want(got[r] == rows(trial, r));
        for (size_t i = 0; i < got[r]; i++)
            want(recv[at++] == mark(r, i));
    }
    return 0;
}

/* sendbuf is apart from recvbuf, or anywhere in it. */
static int gather_body(int rank, void *arg)
{
    int32_t *send = malloc(GATHER_MAX * 4), *recv = malloc(GATHER_MAX * 4);
    size_t got[16];

    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int trial = 0; trial < TRIALS; trial++)
        for (int where = 0; where < 3; where++) {
            size_t mine = rows(trial, rank);
            int32_t *from = where == 0   ? send
                            : where == 1 ? recv
                                         : recv + GATHER_MAX - mine;

            memset(recv, 0xff, GATHER_MAX * 4);
            for (size_t i = 0; i < mine; i++)
                from[i] = mark(rank, i);
            want(hvd_allgather(from, mine, recv, GATHER_MAX, got, HVD_INT32,
                               NULL) == 0);
            want(check_gathered(trial, recv, got) == 0);
        }
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_allgather)
{
    ck_assert_int_eq(run_on(places[_i], gather_body, NULL), 0);
}
END_TEST

/* A rank with too little room fails alone; a rank may ask for counts only;
 * either may be a leader. */
static int room_body(int rank, void *arg)
{
    int poor = *(int *)arg % hvd_size(), curious = (poor + 1) % hvd_size();
    int32_t *send = malloc(GATHER_MAX * 4), *recv = malloc(GATHER_MAX * 4);
    size_t got[16];

    want(send && recv);
    for (int trial = 1; trial < TRIALS; trial++) {
        size_t mine = rows(trial, rank), total = 0;

        for (int r = 0; r < hvd_size(); r++)
            total += rows(trial, r);
        for (size_t i = 0; i < mine; i++)
            send[i] = mark(rank, i);
        if (total == 0)
            continue;
        recv[0] = -5;
        if (rank == poor) {
            want(hvd_allgather(send, mine, recv, total - 1, got, HVD_INT32,
                               NULL) == -HVD_EINVAL);
            want(recv[0] == -5 && strstr(hvd_error_message(), "has room for"));
        } else if (rank == curious) {
            want(hvd_allgather(send, mine, NULL, 0, got, HVD_INT32, NULL) == 0);
        } else {
            want(hvd_allgather(send, mine, recv, total, got, HVD_INT32, NULL) ==
                 0);
            want(check_gathered(trial, recv, got) == 0);
        }
        for (int r = 0; r < hvd_size(); r++)
            want(got[r] == rows(trial, r));
    }
    free(send);
    free(recv);
    return 0;
}

static int all_rooms_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int poor = 0; poor < hvd_size(); poor++)
        want(room_body(rank, &poor) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_allgather_room)
{
    ck_assert_int_eq(run_on(places[_i], all_rooms_body, NULL), 0);
}
END_TEST

static int barrier_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int i = 1; i < 100; i++) {
        if (rank == i % hvd_size())
            atomic_store(&world_board->flag[0], i);
        want(hvd_barrier(NULL) == 0);
        want(atomic_load(&world_board->flag[0]) >= i);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_barrier)
{
    ck_assert_int_eq(run_on(places[_i], barrier_body, NULL), 0);
}
END_TEST

/* Many operations in flight, driven by the engine thread and by those who
 * wait. */
static int async_body(int rank, void *arg)
{
    enum { FLIGHT = 20 };
    static int32_t buf[FLIGHT][30000];
    hvd_request *reqs[FLIGHT];

    (void)arg;
    want(hvd_init() == 0);
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < FLIGHT; i++) {
            size_t n = i % 2 ? 30000 : 10;

            for (size_t k = 0; k < n; k++)
                buf[i][k] = rank + i;
            want(hvd_allreduce_async(NULL, buf[i], buf[i], n, HVD_INT32,
                                     HVD_SUM, NULL, &reqs[i]) == 0);
        }
        for (int i = FLIGHT - 1; i >= 0; i--)
            want(hvd_wait(reqs[i]) == 0);
        for (int i = 0; i < FLIGHT; i++)
            want(buf[i][9] ==
                 hvd_size() * i + hvd_size() * (hvd_size() - 1) / 2);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_async)
{
    ck_assert_int_eq(run_on(places[_i], async_body, NULL), 0);
}
END_TEST

/* ---- Mismatches ------------------------------------------------------ */

enum { MISMATCHES = 6 };

static int call_wrong(int trial, int odd, int32_t *buf)
{
    hvd_request *req = NULL;
    size_t count = trial == 0 && odd ? 12 : trial == 5 && odd ? 100000 : 10;
    enum hvd_dtype dtype = trial == 1 && odd ? HVD_FLOAT32 : HVD_INT32;
    enum hvd_op op = trial == 2 && odd ? HVD_MAX : HVD_SUM;

    if (trial == 3)
        want(hvd_broadcast_async("g", buf, buf, count, HVD_INT32, odd, NULL,
                                 &req) == 0);
    else if (trial == 4 && odd)
        want(hvd_barrier_async("g", NULL, &req) == 0);
    else
        want(hvd_allreduce_async("g", buf, buf, count, dtype, op, NULL, &req) ==
             0);
    return hvd_wait(req);
}

/* The odd rank may be alone on its host, or not. */
static int mismatch_body(int rank, void *arg)
{
    static const char *const texts[MISMATCHES][3] = {
        {"allreduce \"g\"", "count 10", "count 12"},
        {"allreduce \"g\"", "dtype int32", "dtype float32"},
        {"allreduce \"g\"", "op sum", "op max"},
        {"broadcast \"g\"", "root 0", "root 1"},
        {"allreduce \"g\"", "kind allreduce", "kind barrier"},
        {"allreduce \"g\"", "count 10", "count 100000"},
    };
    const char *place = arg;
    static int32_t buf[100000];
    char text[160];

    want(hvd_init() == 0);
    for (int odd = 1; odd < hvd_size(); odd++)
        for (int t = 0; t < MISMATCHES; t++) {
            int32_t one = 1;

            for (int i = 0; i < 12; i++)
                buf[i] = 100 * t + i;
            want(call_wrong(t, rank == odd, buf) == -HVD_EMISMATCH);
            snprintf(text, sizeof(text),
                     "%s: rank 0 on host host-%c has %s, rank %d on host "
                     "host-%c has %s",
                     texts[t][0], place[0], texts[t][1], odd, place[odd],
                     texts[t][2]);
            want(strcmp(hvd_error_message(), text) == 0);
            for (int i = 0; i < 12; i++)
                want(buf[i] == 100 * t + i);
            want(hvd_allreduce(&one, &one, 1, HVD_INT32, HVD_SUM, NULL) == 0);
            want(one == hvd_size());
        }
    /* All ranks but rank 0 differ: the lowest of them is named. */
    want(call_wrong(0, rank != 0, buf) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "rank 1 on host host-"));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_mismatch)
{
    ck_assert_int_eq(
        run_on(places[_i], mismatch_body, (void *)(uintptr_t)places[_i]), 0);
}
END_TEST

/* ---- Life ------------------------------------------------------------ */

static int again_body(int rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        int32_t v = rank + i;

        want(hvd_init() == 0);
        want(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL) == 0);
        want(v == hvd_size() * i + hvd_size() * (hvd_size() - 1) / 2);
        want(hvd_shutdown() == 0);
    }
    return 0;
}

START_TEST(test_again_and_again)
{
    ck_assert_int_eq(run_on(places[_i], again_body, NULL), 0);
}
END_TEST

/* As many hosts as this machine can simulate. */
static int many_body(int rank, void *arg)
{
    static int32_t buf[20000], all[64];

    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < 20000; i++)
        buf[i] = 1;
    want(hvd_allreduce(buf, buf, 20000, HVD_INT32, HVD_SUM, NULL) == 0);
    for (int i = 0; i < 20000; i++)
        want(buf[i] == hvd_size());
    buf[0] = rank;
    want(hvd_allgather(buf, 1, all, 64, NULL, HVD_INT32, NULL) == 0);
    for (int r = 0; r < hvd_size(); r++)
        want(all[r] == r);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_many_hosts)
{
    static const char *const worlds[] = {
        "abcdefghijklmnopqrstuvwxyz",
        "aaaabbbbccccddddeeeeffffgggghhhhiiiijjjjkkkkllllmmmmnnnnoooopppp"};

    ck_assert_int_eq(run_on(worlds[_i], many_body, NULL), 0);
}
END_TEST

static Suite *hosts_suite(void)
{
    Suite *s = suite_create("hosts");
    TCase *t = tcase_create("hosts");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_topology, 0, PLACES);
    tcase_add_loop_test(t, test_allreduce, 0, PLACES);
    tcase_add_loop_test(t, test_same_bits, 0, PLACES);
    tcase_add_loop_test(t, test_broadcast, 0, PLACES);
    tcase_add_loop_test(t, test_allgather, 0, PLACES);
    tcase_add_loop_test(t, test_allgather_room, 0, PLACES);
    tcase_add_loop_test(t, test_barrier, 0, PLACES);
    tcase_add_loop_test(t, test_async, 0, PLACES);
    tcase_add_loop_test(t, test_mismatch, 0, PLACES);
    tcase_add_loop_test(t, test_again_and_again, 0, 4);
    tcase_add_loop_test(t, test_many_hosts, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(hosts_suite());
}
