/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce between processes: every type, operator, scale and form of call, at
 * sizes on both sides of every switch of algorithm, compared with the formula;
 * and the same bits on every rank.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const enum hvd_op all_ops[] = {HVD_AVERAGE, HVD_SUM,  HVD_MIN, HVD_MAX,
                                      HVD_PRODUCT, HVD_BAND, HVD_BOR};
enum { OPS = sizeof(all_ops) / sizeof(all_ops[0]) };

/* Bytes around the limits of line, one-shot, block, slot and ring. */
static const size_t edge_bytes[] = {112, 16384, 65536, 131072, 524288};
enum { EDGES = sizeof(edge_bytes) / sizeof(edge_bytes[0]) };

enum { COUNT_MAX = UNIT_LARGE(5 << 20), BATCH = 20 };

static int defined(enum hvd_dtype dtype, enum hvd_op op)
{
    int is_float = dtype == HVD_FLOAT16 || dtype == HVD_FLOAT32 ||
                   dtype == HVD_FLOAT64 || dtype == HVD_BFLOAT16;

    if (op == HVD_BAND || op == HVD_BOR)
        return !is_float;
    return op != HVD_AVERAGE || dtype != HVD_BOOL;
}

/* A form of call. */
struct form {
    int in_place, async;
    double prescale, postscale; /* for sums only */
};

static const struct form forms[] = {
    {0, 0, 1, 1}, {1, 0, 1, 1}, {0, 1, 2, 0.5}, {1, 1, 1, 2}, {0, 0, 2, 1}};
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

static int call(const void *send, void *recv, size_t count,
                enum hvd_dtype dtype, enum hvd_op op, const struct form *f,
                const struct hvd_options *opts)
{
    hvd_request *req = NULL;

    if (!f->async)
        return hvd_allreduce(send, recv, count, dtype, op, opts);
    want(hvd_allreduce_async("grad", send, recv, count, dtype, op, opts,
                             &req) == 0);
    return hvd_wait(req);
}

static int try_one(enum hvd_dtype dtype, enum hvd_op op, size_t count,
                   const struct form *f, void *send, void *recv)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int n = hvd_size();
    size_t bad;

    if (op == HVD_SUM && dtype != HVD_BOOL) {
        opts.prescale = f->prescale;
        opts.postscale = f->postscale;
    }
    values_fill(dtype, op, n, hvd_rank(), f->in_place ? recv : send, count);
    want(call(f->in_place ? recv : send, recv, count, dtype, op, f, &opts) ==
         0);
    bad =
        values_check(dtype, op, n, opts.prescale * opts.postscale, recv, count);
    if (bad == count)
        return 0;
    fprintf(stderr, "rank %d of %d: %s of %zu %s is wrong at %zu\n", hvd_rank(),
            n, hvd_op_name(op), count, hvd_dtype_name(dtype), bad);
    return 1;
}

/* Every type with every operator, at small sizes. */
static int pairs_body(int rank, void *arg)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 16, 17, 127, 1000};
    static _Alignas(8) unsigned char send[8000], recv[8000];

    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    for (int d = 0; d < VALUES_DTYPES; d++)
        for (int o = 0; o < OPS; o++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (int f = 0; f < FORMS; f++)
                    if (defined((enum hvd_dtype)d, all_ops[o]))
                        want(try_one((enum hvd_dtype)d, all_ops[o], counts[c],
                                     &forms[f], send, recv) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

/* Sums of a few types at sizes around every switch. */
static int edges_body(int rank, void *arg)
{
    static const enum hvd_dtype dtypes[] = {HVD_UINT8, HVD_BFLOAT16,
                                            HVD_FLOAT32, HVD_FLOAT64};
    unsigned char *send = malloc(1 << 20), *recv = malloc(1 << 20);

    (void)rank;
    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int d = 0; d < 4; d++)
        for (int e = 0; e < EDGES; e++)
            for (size_t by = 0; by < 3; by++) {
                size_t count = edge_bytes[e] / hvd_dtype_size(dtypes[d]);

                want(try_one(dtypes[d], HVD_SUM, count + by - 1,
                             &forms[(d + e) % FORMS], send, recv) == 0);
            }
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

static int large_body(int rank, void *arg)
{
    static const size_t counts[] = {65537, UNIT_LARGE(1234567), COUNT_MAX};
    float *send = malloc(COUNT_MAX * sizeof(*send));
    float *recv = malloc(COUNT_MAX * sizeof(*recv));

    (void)rank;
    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int c = 0; c < 3; c++)
        for (int f = 0; f < 3; f++)
            want(try_one(HVD_FLOAT32, HVD_SUM, counts[c], &forms[f], send,
                         recv) == 0);
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_pairs)
{
    ck_assert_int_eq(world_run(_i, pairs_body, NULL), 0);
}
END_TEST

START_TEST(test_edges)
{
    ck_assert_int_eq(world_run(_i, edges_body, NULL), 0);
}
END_TEST

START_TEST(test_large)
{
    ck_assert_int_eq(world_run(_i, large_body, NULL), 0);
}
END_TEST

static int most_ranks_body(int rank, void *arg)
{
    static _Alignas(8) unsigned char send[70000], recv[70000];
    static const size_t counts[] = {0, 1, 17, 300, 17000};

    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    for (int c = 0; c < 5; c++) {
        want(try_one(HVD_FLOAT32, HVD_SUM, counts[c], &forms[0], send, recv) ==
             0);
        want(try_one(HVD_INT8, HVD_AVERAGE, counts[c], &forms[1], send, recv) ==
             0);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_most_ranks)
{
    ck_assert_int_eq(world_run(64, most_ranks_body, NULL), 0);
}
END_TEST

/* ---- The same bits ------------------------------------------------- */

/* Fills with numbers whose sum depends on the order of additions. */
static void fill_rough(enum hvd_dtype dtype, void *buf, size_t count, int rank)
{
    uint64_t x = 88172645463325252u + (uint64_t)rank * 977;
    unsigned char *p = buf;

    for (size_t i = 0; i < count; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (dtype == HVD_FLOAT32) {
            float f = (float)((double)x * 0x1p-54 - 300.0) / 3.0f;
            memcpy(p + i * 4, &f, 4);
        } else { /* fp16 between 1 and 32 */
            uint16_t h = (uint16_t)(0x3c00 | (x & 0x13ff));
            memcpy(p + i * 2, &h, 2);
        }
    }
}

static int same_bits_body(int rank, void *arg)
{
    static const size_t counts[] = {7, 1003, 30011, 200003};
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT16};
    size_t bytes = 200003 * 4;
    unsigned char *send = malloc(bytes), *recv = malloc(bytes);
    unsigned char *all = malloc(bytes * 5);
    int n;

    (void)arg;
    want(send && recv && all && hvd_init() == 0);
    n = hvd_size();
    for (int d = 0; d < 2; d++)
        for (int c = 0; c < 4; c++) {
            size_t used = counts[c] * hvd_dtype_size(dtypes[d]);

            fill_rough(dtypes[d], send, counts[c], rank);
            want(hvd_allreduce(send, recv, counts[c], dtypes[d], HVD_AVERAGE,
                               NULL) == 0);
            want(hvd_allgather(recv, used, all, used * (size_t)n, NULL,
                               HVD_UINT8, NULL) == 0);
            for (int r = 0; r < n; r++)
                want(memcmp(all + used * (size_t)r, recv, used) == 0);
        }
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    free(all);
    return 0;
}

START_TEST(test_same_bits)
{
    ck_assert_int_eq(world_run(_i, same_bits_body, NULL), 0);
}
END_TEST

/* ---- More than 2^31 bytes ------------------------------------------ */

/* ThreadSanitizer would check for races in code that test_large runs, too, and
 * take 80 s. */
#ifndef __SANITIZE_THREAD__
/* Maps one small piece of memory again and again.  Idempotent operators allow
 * that, and no machine needs gigabytes for the test. */
static unsigned char *wide_map(size_t bytes, size_t piece)
{
    int fd = memfd_create("wide", MFD_CLOEXEC);
    unsigned char *p = mmap(NULL, bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (fd < 0 || p == MAP_FAILED || ftruncate(fd, (off_t)piece) < 0)
        return NULL;
    for (size_t at = 0; at < bytes; at += piece)
        if (mmap(p + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 fd, 0) == MAP_FAILED)
            return NULL;
    close(fd);
    return p;
}

static int huge_body(int rank, void *arg)
{
    size_t piece = 1 << 20, bytes = ((size_t)1 << 31) + piece;
    unsigned char *p = wide_map(bytes, piece);

    (void)arg;
    want(p && hvd_init() == 0);
    for (size_t i = 0; i < piece; i++)
        p[i] = (unsigned char)(i * 7 % (97 + (size_t)rank));
    want(hvd_allreduce(p, p, bytes - 3, HVD_UINT8, HVD_MAX, NULL) == 0);
    for (size_t i = 0; i < piece; i++) {
        size_t a = i * 7 % 97, b = i * 7 % 98;
        want(p[i] == (a > b ? a : b));
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_huge)
{
    ck_assert_int_eq(world_run(2, huge_body, NULL), 0);
}
END_TEST
#endif

static Suite *allreduce_suite(void)
{
    Suite *s = suite_create("allreduce");
    TCase *t = tcase_create("world");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_pairs, 1, 9);
    tcase_add_loop_test(t, test_edges, 1, 6);
    tcase_add_loop_test(t, test_large, 1, 4);
    tcase_add_test(t, test_most_ranks);
    tcase_add_loop_test(t, test_same_bits, 2, 6);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(t, test_huge);
#endif
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(allreduce_suite());
}
