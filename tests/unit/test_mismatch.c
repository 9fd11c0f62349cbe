/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused bursts in which one rank's operation differs from the others', on each
 * plane; and ranks that announce impossible tables or numbers.
 */
#include "tests/unit/burst.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>

enum { BURST_MAX = 9, ELEMS = 16 };

static const char *const places[] = {"aa", "ab", "aaa", "aabb", "abc"};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static int run_on(const char *place, world_fn *body, void *arg)
{
    struct world w = {
        .size = (int)strlen(place), .body = body, .arg = arg, .place = place};

    return world_run_with(&w);
}

/* ---- One that differs ---------------------------------------------------- */

struct burst {
    int count;
    int odd_rank, odd; /* odd_rank's operation `odd` differs; -1: none */
    int step, is_named;
};

static int32_t bufs[BURST_MAX][ELEMS + 1];
static hvd_request *reqs[BURST_MAX];

static int issue(const struct burst *b, int i, int rank)
{
    int is_odd = i == b->odd && rank == b->odd_rank;
    char name[16];

    snprintf(name, sizeof(name), "w%d", i);
    for (int k = 0; k <= ELEMS; k++)
        bufs[i][k] = b->step + i + k + rank;
    return hvd_allreduce_async(b->is_named ? name : NULL, bufs[i], bufs[i],
                               is_odd ? ELEMS + 1 : ELEMS, HVD_INT32, HVD_SUM,
                               NULL, &reqs[i]);
}

static int names_both(const struct burst *b)
{
    int second = b->odd_rank ? b->odd_rank : 1;
    char first[40], other[40];

    snprintf(first, sizeof(first), "count %d, rank %d ",
             b->odd_rank ? ELEMS : ELEMS + 1, second);
    snprintf(other, sizeof(other), "count %d", b->odd_rank ? ELEMS + 1 : ELEMS);
    return strstr(hvd_error_message(), "rank 0 ") &&
           (strstr(hvd_error_message(), first) != NULL) &&
           (strstr(hvd_error_message(), other) != NULL);
}

static int do_burst(const struct burst *b, int rank)
{
    int n = hvd_size();

    for (int i = 0; i < b->count; i++)
        want(issue(b, i, rank) == 0);
    for (int i = 0; i < b->count; i++) {
        if (b->odd_rank >= 0 && i == b->odd) {
            want(hvd_wait(reqs[i]) == -HVD_EMISMATCH);
            want(names_both(b));
            continue;
        }
        want(hvd_wait(reqs[i]) == 0);
        for (int k = 0; k < ELEMS; k++)
            want(bufs[i][k] == n * (b->step + i + k) + n * (n - 1) / 2);
    }
    return 0;
}

/* Every position in bursts of every length, on every rank, before and after the
 * ranks have learned the order. */
static int bursts_body(int rank, void *arg)
{
    struct burst b = {.is_named = *(const int *)arg};

    want(hvd_init() == 0);
    for (b.count = 2; b.count <= BURST_MAX; b.count += b.count < 4 ? 1 : 5)
        for (b.odd = 0; b.odd < b.count; b.odd++)
            for (b.odd_rank = -1; b.odd_rank < hvd_size(); b.odd_rank++) {
                b.step++;
                want(do_burst(&b, rank) == 0);
            }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_bursts)
{
    int is_named = _i % 2;

    ck_assert_int_eq(run_on(places[_i / 2], bursts_body, &is_named), 0);
}
END_TEST

/* Several operations of a burst differ, each on another rank. */
static int several_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int step = 0; step < 20; step++) {
        struct burst b = {
            .count = BURST_MAX, .step = step, .is_named = step % 2};

        for (int i = 0; i < b.count; i++) {
            b.odd = i % 2 ? i : -1;
            b.odd_rank = i % hvd_size();
            want(issue(&b, i, rank) == 0);
        }
        for (int i = 0; i < b.count; i++)
            want(hvd_wait(reqs[i]) == (i % 2 ? -HVD_EMISMATCH : 0));
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_several)
{
    ck_assert_int_eq(run_on(places[_i], several_body, NULL), 0);
}
END_TEST

/* The differing operation is found in a number of attempts that is logarithmic
 * in the number fused. */
static int attempts_body(int rank, void *arg)
{
    static int32_t x[1000][2];
    static hvd_request *many[1000];
    struct hvd_stats s = {.size = sizeof(s)};

    (void)arg;
    want(hvd_init() == 0);
    burst_begin();
    for (int i = 0; i < 1000; i++)
        want(hvd_allreduce_async(NULL, x[i], x[i], rank && i == 777 ? 1 : 2,
                                 HVD_INT32, HVD_SUM, NULL, &many[i]) == 0);
    burst_end();
    for (int i = 0; i < 1000; i++)
        want(hvd_wait(many[i]) == (i == 777 ? -HVD_EMISMATCH : 0));
    want(hvd_stats(&s) == 0);
    want(s.cuts < 200 && s.negotiations < 20);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_attempts)
{
    ck_assert_int_eq(world_run(2, attempts_body, NULL), 0);
}
END_TEST

/* ---- Impossible announcements -------------------------------------------- */

/* This rank's plane, and its double that announces wrong numbers. */
static const struct hvd__plane_ops *honest;
static struct hvd__plane_ops lying;
static uint64_t told_bytes; /* announced length of a table */
static uint32_t told_entries;

static int is_length(const struct hvd__op *op)
{
    return op->kind == HVD__ALLGATHER && op->count == sizeof(told_bytes) &&
           op->dtype == HVD_UINT8;
}

static int lying_start(struct hvd__plane *p, struct hvd__op *op)
{
    if (told_bytes && is_length(op))
        op->sendbuf = &told_bytes;
    return honest->start(p, op);
}

static int lying_progress(struct hvd__plane *p, struct hvd__op *op)
{
    int rc = honest->progress(p, op);

    if (rc == HVD__CUT && told_entries)
        op->agreed_entries = told_entries - 1;
    return rc;
}

static void begin_to_lie(void)
{
    struct hvd__plane *p = hvd__context.sets[HVD_WORLD].plane;

    honest = p->ops;
    lying = *honest;
    lying.start = lying_start;
    lying.progress = lying_progress;
    p->ops = &lying;
}

/* Rank 1 announces the length of a table that is impossible, or sends
 * another. */
static int length_body(int rank, void *arg)
{
    hvd_request *req = NULL;
    int32_t x = 1;
    int rc;

    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    told_bytes = *(const uint64_t *)arg;
    if (rank == 1)
        begin_to_lie();
    want(hvd_allreduce_async(rank ? "a" : "b", &x, &x, 1, HVD_INT32, HVD_SUM,
                             NULL, &req) == 0);
    rc = hvd_wait(req);
    want(rc == -HVD_EPROTO || rc == -HVD_ESHUTDOWN || rc == -HVD_EPEER);
    want(rc != -HVD_EPROTO || strstr(hvd_error_message(), "rank 1 announce"));
    want(hvd_barrier(NULL) < 0);
    want(hvd_shutdown() == 0);
    return 0;
}

static const uint64_t lengths[] = {((uint64_t)1 << 63) - 100, UINT64_MAX, 1,
                                   (uint64_t)1 << 40, 5000};

START_TEST(test_lengths)
{
    uint64_t told = lengths[_i / 2];

    ck_assert_int_eq(run_on(_i % 2 ? "ab" : "aa", length_body, &told), 0);
}
END_TEST

/* All ranks learn that one has fused no operations, or more than they have. */
static int entries_body(int rank, void *arg)
{
    struct burst b = {.count = 4, .odd = 2, .odd_rank = 1};

    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    told_entries = 1 + *(const uint32_t *)arg;
    begin_to_lie();
    for (int i = 0; i < b.count; i++)
        want(issue(&b, i, rank) == 0);
    for (int i = 0; i < b.count; i++) {
        int rc = hvd_wait(reqs[i]);

        want(rc == -HVD_EPROTO || rc == -HVD_ESHUTDOWN);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_entries)
{
    uint32_t told = _i ? 5 : 0;

    ck_assert_int_eq(world_run(2, entries_body, &told), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mismatch");
    TCase *tc = tcase_create("mismatch");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_bursts, 0, 2 * PLACES);
    tcase_add_loop_test(tc, test_several, 0, PLACES);
    tcase_add_loop_test(tc, test_lengths, 0,
                        2 * sizeof(lengths) / sizeof(lengths[0]));
    tcase_add_loop_test(tc, test_entries, 0, 2);
    suite_add_tcase(s, tc);
    tc = tcase_create("counts");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_attempts);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
