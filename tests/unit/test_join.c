/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Join: ranks without more data take part in the others' operations without
 * changing results, and learn which rank joined last.
 */
#include "runtime/core/sched/join.h"
#include "runtime/plane/kernels/reduce.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int last_of(int n)
{
    return n - 1;
}

/* Rank r has r + 1 batches. */
static int uneven_body(int rank, void *arg)
{
    int n, last = -1;

    (void)arg;
    want(hvd_init() == 0);
    n = hvd_size();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i <= rank; i++) {
            int live = n - i;
            int32_t x[3] = {rank + 1, -rank - 1, 2};
            hvd_request *req = NULL;
            char name[16];

            snprintf(name, sizeof(name), "g%d", i % 2);
            want(hvd_allreduce_async(name, x, x, 1, HVD_INT32, HVD_SUM, NULL,
                                     &req) == 0);
            want(hvd_wait(req) == 0);
            want(x[0] == live * (i + 1 + n) / 2);
            want(hvd_allreduce(x + 1, x + 1, 1, HVD_INT32, HVD_MAX, NULL) == 0);
            want(x[1] == -i - 1);
            want(hvd_allreduce(x + 2, x + 2, 1, HVD_INT32, HVD_PRODUCT, NULL) ==
                 0);
            want(x[2] == 1 << live);
        }
        want(hvd_join(&last, NULL) == 0);
        want(last == last_of(n));
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_uneven)
{
    ck_assert_int_eq(world_run(_i, uneven_body, NULL), 0);
}
END_TEST

/* Every dtype and op: joined rank 2's contribution does not change the
 * result. */
static int neutral_one(int rank, enum hvd_dtype dtype, enum hvd_op op)
{
    const struct hvd__reduce_args args = {1.0, 1.0, 1, 0};
    hvd__reduce_fn *reduce = hvd__reduce_get(dtype, op);
    uint64_t in[2][4], out[4], expected[4];
    const void *srcs[2] = {in[0], in[1]};
    size_t count = sizeof(out) / hvd_dtype_size(dtype);

    if (!reduce)
        return 0;
    for (int r = 0; r < 2; r++)
        memset(in[r], dtype == HVD_BOOL ? r : 0x3c + 0x80 * r, sizeof(in[r]));
    want(hvd_allreduce(in[rank], out, count, dtype, op, NULL) == 0);
    reduce(expected, srcs, 2, count, &args);
    want(memcmp(out, expected, sizeof(out)) == 0);
    return 0;
}

static int neutral_body(int rank, void *arg)
{
    static const enum hvd_op ops[] = {HVD_SUM,     HVD_MIN,  HVD_MAX,
                                      HVD_PRODUCT, HVD_BAND, HVD_BOR};

    (void)arg;
    want(hvd_init() == 0);
    for (int dtype = 0; rank < 2 && dtype <= HVD_BFLOAT16; dtype++)
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
            want(neutral_one(rank, (enum hvd_dtype)dtype, ops[o]) == 0);
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_neutral)
{
    ck_assert_int_eq(world_run(3, neutral_body, NULL), 0);
}
END_TEST

/* Other collectives of ranks 1 and 2 after rank 0 has joined. */
static int others_body(int rank, void *arg)
{
    int32_t one = 10 + rank, got[8], rows[4] = {1, 2, 3, 4}, mine[4] = {0};
    size_t counts[3], splits[3] = {1, 2, 1};
    int last = -1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank) {
        want(hvd_allgather(&one, 1, got, 8, counts, HVD_INT32, NULL) == 0);
        want(counts[0] == 0 && counts[1] == 1 && counts[2] == 1);
        want(got[0] == 11 && got[1] == 12);
        want(hvd_alltoall(rows, splits, 4, got, 8, counts, HVD_INT32, NULL) ==
             0);
        want(counts[0] == 0 && counts[1] == splits[rank]);
        want(counts[2] == splits[rank]);
        want(got[0] == (rank == 1 ? 2 : 4));
        want(hvd_reducescatter(rows, mine, 4, 1, HVD_INT32, HVD_SUM, NULL) ==
             0);
        want(mine[0] == (rank == 1 ? 6 : 8)); /* rank 0 gets two rows */
        want(hvd_broadcast(&one, &one, 1, HVD_INT32, 1, NULL) == 0);
        want(one == 11);
        want(hvd_broadcast(&one, &one, 1, HVD_INT32, 0, NULL) == -HVD_EINVAL);
        want(strcmp(hvd_error_message(), "broadcast: root 0 has joined") == 0);
        want(hvd_barrier(NULL) == 0);
    }
    want(hvd_join(&last, NULL) == 0);
    want(last == 2);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_others)
{
    ck_assert_int_eq(world_run(3, others_body, NULL), 0);
}
END_TEST

/* Groups; averages over all ranks, and over those that have not joined. */
static int averages_body(int rank, void *arg)
{
    struct hvd_options live = HVD_OPTIONS_INIT;
    float a = 6, b = 12, x = 6;
    const void *sends[2] = {&a, &b};
    void *recvs[2] = {&a, &b};
    size_t counts[2] = {1, 1}, rows[2] = {3, 6};
    float c[3] = {6, 6, 6}, d[6] = {12, 12, 12, 12, 12, 12}, out[3];
    const void *row_sends[2] = {c, d};
    void *row_recvs[2] = {out, out + 1};

    (void)arg;
    live.live_average = 1;
    want(hvd_init() == 0);
    if (rank) {
        want(hvd_grouped_allreduce(2, sends, recvs, counts, HVD_FLOAT32,
                                   HVD_AVERAGE, NULL) == 0);
        want(a == 4 && b == 8);
        want(hvd_allreduce(&x, &x, 1, HVD_FLOAT32, HVD_AVERAGE, &live) == 0);
        want(x == 6);
        want(hvd_grouped_reducescatter(2, row_sends, row_recvs, rows, counts,
                                       HVD_FLOAT32, HVD_AVERAGE, &live) == 0);
        want(out[0] == 6 && out[1] == 12 && out[2] == 12);
        want(hvd_reducescatter(c, out, 3, 1, HVD_FLOAT32, HVD_AVERAGE, &live) ==
             0);
        want(out[0] == 6);
    }
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_averages)
{
    ck_assert_int_eq(world_run(3, averages_body, NULL), 0);
}
END_TEST

/* Calls that a joined rank may not make. */
static int misuse_body(int rank, void *arg)
{
    hvd_request *join = NULL, *req = NULL;
    int32_t x = 1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 0) {
        want(hvd_join_async(NULL, NULL, &join) == 0);
        want(hvd_allreduce_async("late", &x, &x, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == -HVD_EINVAL);
        want(hvd_join_async(NULL, NULL, &req) == -HVD_EINVAL);
    } else {
        want(hvd_allreduce_async("alone", &x, &x, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == 0);
        want(hvd_wait(req) == 0 && x == 1);
        want(hvd_join_async(NULL, NULL, &join) == 0);
    }
    want(hvd_wait(join) == 0);
    x = 1;
    want(hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, NULL) == 0 && x == 2);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_misuse)
{
    ck_assert_int_eq(world_run(2, misuse_body, NULL), 0);
}
END_TEST

static void *reduce(void *arg)
{
    int32_t x = 1;

    *(int *)arg = hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, NULL);
    return NULL;
}

/* Refused while another thread's blocking call is in flight. */
static int busy_body(int rank, void *arg)
{
    struct timespec nap = {0, 50 * 1000 * 1000};
    pthread_t thread;
    int rc = -1;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 0) {
        want(pthread_create(&thread, NULL, reduce, &rc) == 0);
        nanosleep(&nap, NULL);
        want(hvd_join(NULL, NULL) == -HVD_EINVAL);
        want(strstr(hvd_error_message(), "in flight"));
        atomic_store(&world_board->flag[0], 1);
        want(pthread_join(thread, NULL) == 0);
    } else {
        while (!atomic_load(&world_board->flag[0]))
            sched_yield();
        reduce(&rc);
    }
    want(rc == 0);
    want(hvd_join(NULL, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_busy)
{
    ck_assert_int_eq(world_run(2, busy_body, NULL), 0);
}
END_TEST

/* A stand-in packs narrowed data like the other ranks: else hosts of different
 * sizes would count different rounds. */
enum { NARROWED = 5000000 };

static int narrowed_body(int rank, void *arg)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    int last = -1;

    (void)arg;
    o.wire = HVD_WIRE_FLOAT16;
    want(hvd_init() == 0);
    if (rank != 0) {
        float *x = malloc(NARROWED * sizeof(*x));

        want(x != NULL);
        for (size_t i = 0; i < NARROWED; i++)
            x[i] = (float)(i % 100) + 1;
        want(hvd_allreduce(x, x, NARROWED, HVD_FLOAT32, HVD_SUM, &o) == 0);
        for (size_t i = 0; i < NARROWED; i++)
            want(x[i] == 2 * ((float)(i % 100) + 1));
        free(x);
    }
    want(hvd_join(&last, NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_narrowed)
{
    static const char *const places[] = {NULL, "aab", "abb", "abc"};
    struct world w = {.size = 3, .body = narrowed_body, .place = places[_i]};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

/* ---- Memory for another rank's operation --------------------------------- */

static long pages; /* pages of memory to report; 0: the real number */

long sysconf(int name)
{
    long (*real)(int);

    if (pages && name == _SC_PHYS_PAGES)
        return pages;
    *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real ? real(name) : -1;
}

static void put_u64(unsigned char *at, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(v >> (56 - 8 * i));
}

/* A group's members use the same memory: the largest must fit, not their
 * sum. */
START_TEST(test_large_group)
{
    enum { MEMBERS = 3 };
    unsigned char counts[16 * MEMBERS];
    struct hvd__record rec = {.d = {.kind = HVD__REDUCESCATTER,
                                    .dtype = HVD_UINT8,
                                    .wire = HVD_UINT8,
                                    .op = HVD_SUM,
                                    .prescale = 1,
                                    .postscale = 1,
                                    .parts = MEMBERS},
                              .counts = counts};
    struct hvd__stand_in *s = NULL;
    struct hb_error err = HB_ERROR_INIT;
    uint64_t most;

    pages = 16;
    most = 16 * (uint64_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < MEMBERS; i++) {
        put_u64(counts + 16 * i, most / 4);
        put_u64(counts + 16 * i + 8, 1);
    }
    ck_assert_int_eq(hvd__stand_in_make(&s, &rec, 3, &err), 0);
    ck_assert_uint_eq(s->member_count, MEMBERS);
    put_u64(counts, most);
    ck_assert_int_eq(hvd__stand_in_make(&s, &rec, 3, &err), -HVD_ENOMEM);
    hvd__stand_in_free(s);
    pages = 0;
}
END_TEST

/* An operation larger than the host's memory is refused. */
START_TEST(test_too_much)
{
    uint64_t all =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct hvd__record rec = {.d = {.kind = HVD__ALLREDUCE,
                                    .dtype = HVD_UINT8,
                                    .wire = HVD_UINT8,
                                    .op = HVD_SUM,
                                    .prescale = 1,
                                    .postscale = 1}};
    struct hvd__stand_in *s = NULL;
    struct hb_error err = HB_ERROR_INIT;

    rec.d.count = all + 1;
    ck_assert_int_eq(hvd__stand_in_make(&s, &rec, 3, &err), -HVD_ENOMEM);
    rec.d.count = 100;
    hb_error_clear(&err);
    ck_assert_int_eq(hvd__stand_in_make(&s, &rec, 3, &err), 0);
    rec.d.op = HVD_ADASUM;
    rec.d.kind = HVD__REDUCESCATTER;
    rec.d.row_elems = 1;
    ck_assert_int_eq(hvd__stand_in_make(&s, &rec, 3, &err), -HVD_EPROTO);
    hvd__stand_in_free(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("join");
    TCase *tc = tcase_create("join");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_uneven, 1, 5);
    tcase_add_test(tc, test_neutral);
    tcase_add_test(tc, test_others);
    tcase_add_test(tc, test_averages);
    tcase_add_test(tc, test_misuse);
    tcase_add_test(tc, test_busy);
    tcase_add_loop_test(tc, test_narrowed, 0, 4);
    tcase_add_test(tc, test_large_group);
    tcase_add_test(tc, test_too_much);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
