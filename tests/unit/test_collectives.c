/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast, ragged allgather and barrier between processes; mismatches of
 * every field; refused arguments.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMS_MAX = 400000 };

static int32_t mark(int rank, size_t i)
{
    return (int32_t)((size_t)rank * 1000003 + i * 7);
}

/* ---- Broadcast ----------------------------------------------------- */

static const size_t counts[] = {0,     1,     25,     26,     27,       1000,
                                32768, 32769, 131072, 131073, ELEMS_MAX};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

static int broadcast_one(int32_t *send, int32_t *recv, size_t count, int root)
{
    int rank = hvd_rank(), in_place = count % 2;
    int32_t *from = in_place ? recv : send;

    for (size_t i = 0; i < count; i++) {
        recv[i] = -1;
        if (rank == root)
            from[i] = mark(root, i);
    }
    /* Ranks other than the root need no sendbuf. */
    want(hvd_broadcast(rank == root ? from : NULL, recv, count, HVD_INT32, root,
                       NULL) == 0);
    for (size_t i = 0; i < count; i++)
        want(recv[i] == mark(root, i));
    return 0;
}

static int broadcast_body(int rank, void *arg)
{
    int32_t *send = malloc(ELEMS_MAX * sizeof(*send));
    int32_t *recv = malloc(ELEMS_MAX * sizeof(*recv));

    (void)rank;
    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int c = 0; c < COUNTS; c++)
        for (int root = 0; root < hvd_size(); root++)
            want(broadcast_one(send, recv, counts[c], root) == 0);
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_broadcast)
{
    ck_assert_int_eq(world_run(_i, broadcast_body, NULL), 0);
}
END_TEST

/* ---- Allgather ----------------------------------------------------- */

/* Returns how many rows rank r sends in a trial: none, as many as the others,
 * or far more than they. */
static size_t rows(int trial, int rank)
{
    static const size_t kinds[][4] = {
        {0, 0, 0, 0},          {1, 1, 1, 1},      {26, 0, 27, 3},
        {0, 0, 40000, 0},      {500, 501, 0, 9},  {100000, 1, 40000, 70001},
        {32768, 32768, 1, 32}, {200000, 0, 0, 1},
    };

    return kinds[trial][rank % 4];
}
enum { TRIALS = 8 };

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

/* sendbuf is apart, at the beginning of recvbuf, or overlaps that by half. */
static int gather_one(int trial, int32_t *send, int32_t *recv, size_t cap,
                      int where)
{
    size_t got[64], mine = rows(trial, hvd_rank());
    int32_t *from = where == 0 ? send : where == 1 ? recv : recv - mine / 2;

    memset(recv, 0xff, cap * sizeof(*recv));
    for (size_t i = 0; i < mine; i++)
        from[i] = mark(hvd_rank(), i);
    want(hvd_allgather(from, mine, recv, cap, got, HVD_INT32, NULL) == 0);
    return check_gathered(trial, recv, got);
}

static int gather_body(int rank, void *arg)
{
    size_t cap = 2 * ELEMS_MAX;
    int32_t *send = malloc(ELEMS_MAX * sizeof(*send));
    int32_t *recv = malloc((ELEMS_MAX + cap) * sizeof(*recv));

    (void)rank;
    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int trial = 0; trial < TRIALS; trial++)
        for (int where = 0; where < 3; where++)
            want(gather_one(trial, send, recv + ELEMS_MAX, cap, where) == 0);
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_allgather)
{
    ck_assert_int_eq(world_run(_i, gather_body, NULL), 0);
}
END_TEST

/* A rank with too little room fails alone and the others get everything; a rank
 * may ask for counts only. */
static int room_body(int rank, void *arg)
{
    int32_t *send = calloc(ELEMS_MAX, sizeof(*send));
    int32_t *recv = calloc(ELEMS_MAX, sizeof(*recv));
    size_t got[64], total = 0;

    (void)arg;
    want(send && recv && hvd_init() == 0);
    for (int trial = 1; trial < TRIALS; trial++) {
        size_t mine = rows(trial, rank);
        int rc;

        total = 0;
        for (int r = 0; r < hvd_size(); r++)
            total += rows(trial, r);
        for (size_t i = 0; i < mine; i++)
            send[i] = mark(rank, i);
        recv[0] = -5;
        if (rank == 1) {
            rc = hvd_allgather(send, mine, recv, total - 1, got, HVD_INT32,
                               NULL);
            want(rc == -HVD_EINVAL && recv[0] == -5);
            want(strstr(hvd_error_message(), "has room for"));
        } else if (rank == 2) {
            want(hvd_allgather(send, mine, NULL, 0, got, HVD_INT32, NULL) == 0);
        } else {
            want(hvd_allgather(send, mine, recv, total, NULL, HVD_INT32,
                               NULL) == 0);
            for (int r = 0; r < hvd_size(); r++)
                got[r] = rows(trial, r);
            want(check_gathered(trial, recv, got) == 0);
        }
        for (int r = 0; r < hvd_size(); r++)
            want(got[r] == rows(trial, r));
        want(hvd_barrier(NULL) == 0);
    }
    want(hvd_shutdown() == 0);
    free(send);
    free(recv);
    return 0;
}

START_TEST(test_allgather_room)
{
    ck_assert_int_eq(world_run(4, room_body, NULL), 0);
}
END_TEST

/* Rank 0 raises a flag before it enters the barrier; no rank leaves before
 * that. */
static int barrier_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int i = 1; i < 200; i++) {
        int late = i % hvd_size();

        if (rank == late)
            atomic_store(&world_board->flag[0], i);
        want(hvd_barrier(NULL) == 0);
        want(atomic_load(&world_board->flag[0]) >= i);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_barrier)
{
    ck_assert_int_eq(world_run(_i, barrier_body, NULL), 0);
}
END_TEST

/* ---- Mismatches ---------------------------------------------------- */

enum { MISMATCHES = 7 };

struct wrong {
    const char *name;
    size_t count;
    enum hvd_dtype dtype;
    enum hvd_op op;
    double prescale, postscale;
};

static int send_wrong(int trial, int odd, int32_t *buf)
{
    struct wrong w = {"grad.w1", 10, HVD_INT32, HVD_SUM, 1, 1};
    struct hvd_options opts = HVD_OPTIONS_INIT;
    hvd_request *req = NULL;

    if (odd) {
        w.count = trial == 0 ? 12 : 10;
        w.dtype = trial == 1 ? HVD_FLOAT32 : HVD_INT32;
        w.op = trial == 2 ? HVD_MAX : HVD_SUM;
        w.prescale = trial == 3 ? 0.5 : 1;
        w.postscale = trial == 4 ? 0.25 : 1;
    }
    opts.prescale = w.prescale;
    opts.postscale = w.postscale;
    if (trial == 5)
        want(hvd_broadcast_async("grad.w1", buf, buf, 10, HVD_INT32, odd, NULL,
                                 &req) == 0);
    else if (trial == 6 && odd)
        want(hvd_barrier_async("grad.w1", NULL, &req) == 0);
    else
        want(hvd_allreduce_async(w.name, buf, buf, w.count, w.dtype, w.op,
                                 &opts, &req) == 0);
    return hvd_wait(req);
}

static int mismatch_body(int rank, void *arg)
{
    static const char *const texts[MISMATCHES] = {
        "allreduce \"grad.w1\": rank 0 has count 10, rank 2 has count 12",
        "allreduce \"grad.w1\": rank 0 has dtype int32, rank 2 has dtype "
        "float32",
        "allreduce \"grad.w1\": rank 0 has op sum, rank 2 has op max",
        "allreduce \"grad.w1\": rank 0 has prescale 1, rank 2 has prescale "
        "0.5",
        "allreduce \"grad.w1\": rank 0 has postscale 1, rank 2 has "
        "postscale 0.25",
        "broadcast \"grad.w1\": rank 0 has root 0, rank 2 has root 1",
        "allreduce \"grad.w1\": rank 0 has kind allreduce, rank 2 has kind "
        "barrier",
    };
    int32_t buf[16], one = 1;

    (void)arg;
    want(hvd_init() == 0);
    for (int again = 0; again < 3; again++)
        for (int t = 0; t < MISMATCHES; t++) {
            for (int i = 0; i < 16; i++)
                buf[i] = 100 * t + i;
            want(send_wrong(t, rank == 2, buf) == -HVD_EMISMATCH);
            want(strcmp(hvd_error_message(), texts[t]) == 0);
            for (int i = 0; i < 16; i++)
                want(buf[i] == 100 * t + i);
            one = 1;
            want(hvd_allreduce(&one, &one, 1, HVD_INT32, HVD_SUM, NULL) == 0);
            want(one == hvd_size());
        }
    want(hvd_shutdown() == 0);
    return 0;
}

/* A name of the maximum length is shown by its beginning. */
static int long_name_body(int rank, void *arg)
{
    hvd_request *req = NULL;
    char name[256];
    int32_t x[2];

    (void)arg;
    memset(name, 'n', sizeof(name));
    name[255] = '\0';
    want(hvd_init() == 0);
    want(hvd_allreduce_async(name, x, x, rank ? 1 : 2, HVD_INT32, HVD_SUM, NULL,
                             &req) == 0);
    want(hvd_wait(req) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "allreduce \"nnnnn"));
    want(strstr(hvd_error_message(), "nnn...\": rank 0 has count 2, rank 1 "));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_long_names)
{
    ck_assert_int_eq(world_run(2, long_name_body, NULL), 0);
}
END_TEST

START_TEST(test_mismatch)
{
    ck_assert_int_eq(world_run(4, mismatch_body, NULL), 0);
}
END_TEST

/* Large operations are found to disagree before any data is used. */
static int large_mismatch_body(int rank, void *arg)
{
    int32_t *buf = calloc(ELEMS_MAX, sizeof(*buf));

    (void)arg;
    want(buf && hvd_init() == 0);
    for (int i = 0; i < 10; i++) {
        size_t count = (size_t)(ELEMS_MAX - (rank == 1 ? 0 : i));

        want(hvd_allreduce(buf, buf, count, HVD_INT32, HVD_SUM, NULL) ==
             (i ? -HVD_EMISMATCH : 0));
        buf[5] = 1;
        want(hvd_allreduce(buf, buf, ELEMS_MAX, HVD_INT32, HVD_SUM, NULL) == 0);
        want(buf[5] == hvd_size());
    }
    want(hvd_shutdown() == 0);
    free(buf);
    return 0;
}

START_TEST(test_large_mismatch)
{
    ck_assert_int_eq(world_run(3, large_mismatch_body, NULL), 0);
}
END_TEST

/* ---- Arguments ----------------------------------------------------- */

#define refuses(call, text)                                                  \
    do {                                                                     \
        ck_assert_int_eq(call, -HVD_EINVAL);                                 \
        ck_assert_msg(strstr(hvd_error_message(), text),                     \
                      "\"%s\" is not in \"%s\"", text, hvd_error_message()); \
    } while (0)

static int reduce4(const void *send, void *recv, int dtype, int op,
                   const struct hvd_options *opts)
{
    return hvd_allreduce(send, recv, 4, (enum hvd_dtype)dtype, (enum hvd_op)op,
                         opts);
}

/* On a host without device memory an operation may not have a stream. */
START_TEST(test_stream_without_device)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    unsigned char a[4] = {1, 2, 3, 4}, b[4] = {0};
    hvd_request *req = NULL;

    setenv("HVD_NCCL", "0", 1);
    ck_assert_int_eq(hvd_init(), 0);
    opts.stream = a;
    ck_assert_int_eq(hvd_allreduce(a, b, 4, HVD_UINT8, HVD_SUM, &opts),
                     -HVD_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "stream is set"));
    ck_assert_int_eq(hvd_barrier(&opts), -HVD_EUNSUPPORTED);
    /* float8 can be moved; without a device only the host is waited for. */
    ck_assert_int_eq(
        hvd_broadcast_async("w", a, b, 4, HVD_FLOAT8_E4M3, 0, NULL, &req), 0);
    ck_assert_int_eq(hvd_wait_on_stream(req, NULL), 0);
    ck_assert_mem_eq(a, b, 4);
    refuses(hvd_wait_on_stream(NULL, NULL), "the request is NULL");
    hvd_shutdown();
    unsetenv("HVD_NCCL");
}
END_TEST

START_TEST(test_allreduce_arguments)
{
    float a[8] = {0}, b[8];
    unsigned char *odd = (unsigned char *)a + 1;

    ck_assert_int_eq(hvd_init(), 0);
    refuses(reduce4(a, b, 13, HVD_SUM, NULL), "not an enum hvd_dtype");
    refuses(reduce4(a, b, HVD_FLOAT8_E4M3, HVD_SUM, NULL),
            "sum of float8_e4m3 is not defined in host memory");
    refuses(reduce4(a, b, HVD_FLOAT8_E5M2, HVD_BAND, NULL), "not defined");
    refuses(reduce4(a, b, -1, HVD_SUM, NULL), "not an enum hvd_dtype");
    refuses(reduce4(a, b, HVD_FLOAT32, 8, NULL), "not defined");
    refuses(reduce4(a, b, HVD_FLOAT16, HVD_BAND, NULL),
            "allreduce: band of float16 is not defined");
    refuses(reduce4(a, b, HVD_BOOL, HVD_AVERAGE, NULL), "not defined");
    refuses(reduce4(NULL, b, HVD_FLOAT32, HVD_SUM, NULL), "sendbuf is NULL");
    refuses(reduce4(a, NULL, HVD_FLOAT32, HVD_SUM, NULL), "recvbuf is NULL");
    refuses(reduce4(a, a + 1, HVD_FLOAT32, HVD_SUM, NULL), "overlap");
    refuses(reduce4(a + 1, a, HVD_FLOAT32, HVD_SUM, NULL), "overlap");
    refuses(reduce4(odd, b, HVD_FLOAT32, HVD_SUM, NULL), "not aligned");
    refuses(hvd_allreduce(a, b, SIZE_MAX / 2, HVD_FLOAT32, HVD_SUM, NULL),
            "do not fit");
    ck_assert_int_eq(hvd_allreduce(NULL, NULL, 0, HVD_FLOAT32, HVD_SUM, NULL),
                     0);
    ck_assert_int_eq(reduce4(a, a + 4, HVD_FLOAT32, HVD_SUM, NULL), 0);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

START_TEST(test_options)
{
    struct {
        struct hvd_options now;
        uint64_t later;
    } future = {HVD_OPTIONS_INIT, 0};
    struct hvd_options o = HVD_OPTIONS_INIT;
    float a[4] = {1, 2, 3, 4};

    ck_assert_int_eq(hvd_init(), 0);
    o.size = 8;
    refuses(reduce4(a, a, HVD_FLOAT32, HVD_SUM, &o), "HVD_OPTIONS_INIT");
    o.size = 1 << 20;
    refuses(reduce4(a, a, HVD_FLOAT32, HVD_SUM, &o), "HVD_OPTIONS_INIT");
    o.size = sizeof(o);
    o.postscale = 1.0 / 0.0;
    refuses(reduce4(a, a, HVD_FLOAT32, HVD_SUM, &o), "not finite");
    o.postscale = 2;
    refuses(hvd_barrier(&o), "only reductions");
    future.now.size = sizeof(future);
    ck_assert_int_eq(reduce4(a, a, HVD_FLOAT32, HVD_SUM, &future.now), 0);
    future.later = 1;
    ck_assert_int_eq(reduce4(a, a, HVD_FLOAT32, HVD_SUM, &future.now),
                     -HVD_EUNSUPPORTED);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

START_TEST(test_other_arguments)
{
    hvd_request *req = NULL;
    char name[300];
    float a[4] = {0};
    int done;

    memset(name, 'n', sizeof(name));
    name[299] = '\0';
    ck_assert_int_eq(hvd_init(), 0);
    refuses(hvd_broadcast(a, a, 4, HVD_FLOAT32, 1, NULL), "root 1");
    refuses(hvd_broadcast(a, a, 4, HVD_FLOAT32, -1, NULL), "root -1");
    refuses(hvd_broadcast(NULL, a, 4, HVD_FLOAT32, 0, NULL), "sendbuf");
    refuses(hvd_allgather(a, 4, NULL, 4, NULL, HVD_FLOAT32, NULL),
            "recvbuf is NULL");
    refuses(hvd_allgather(a, 4, a, 3, NULL, HVD_FLOAT32, NULL), "room");
    refuses(hvd_barrier_async(name, NULL, &req), "longer than 255");
    refuses(hvd_barrier_async("b", NULL, NULL), "req is NULL");
    refuses(hvd_wait(NULL), "hvd_wait");
    refuses(hvd_test(NULL, &done), "hvd_test");
    ck_assert_ptr_null(req);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

START_TEST(test_names)
{
    ck_assert_uint_eq(hvd_dtype_size(HVD_BFLOAT16), 2);
    ck_assert_uint_eq(hvd_dtype_size((enum hvd_dtype)99), 0);
    ck_assert_str_eq(hvd_dtype_name(HVD_FLOAT64), "float64");
    ck_assert_str_eq(hvd_dtype_name((enum hvd_dtype) - 1), "?");
    ck_assert_str_eq(hvd_op_name(HVD_PRODUCT), "product");
    ck_assert_str_eq(hvd_op_name(HVD_ADASUM), "adasum");
    ck_assert_str_eq(hvd_op_name((enum hvd_op)8), "?");
    ck_assert_str_eq(hvd_status_text(-HVD_EPEER), hvd_status_text(HVD_EPEER));
}
END_TEST

static Suite *collectives_suite(void)
{
    Suite *s = suite_create("collectives");
    TCase *t = tcase_create("world");
    TCase *a = tcase_create("arguments");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_broadcast, 1, 6);
    tcase_add_loop_test(t, test_allgather, 1, 6);
    tcase_add_test(t, test_allgather_room);
    tcase_add_loop_test(t, test_barrier, 1, 5);
    tcase_add_test(t, test_mismatch);
    tcase_add_test(t, test_large_mismatch);
    tcase_add_test(t, test_long_names);
    suite_add_tcase(s, t);
    tcase_add_test(a, test_stream_without_device);
    tcase_add_test(a, test_allreduce_arguments);
    tcase_add_test(a, test_options);
    tcase_add_test(a, test_other_arguments);
    tcase_add_test(a, test_names);
    suite_add_tcase(s, a);
    return s;
}

int main(void)
{
    return unit_run(collectives_suite());
}
