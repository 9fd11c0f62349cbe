/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange of two ranks in shared memory: sizes around its blocks, every
 * way in which the data lies, disagreement and death between.
 */
#include "tests/unit/shm_member.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"

#include <stdlib.h>
#include <string.h>

/* How the elements of an allreduce lie. */
enum shape { APART, IN_PLACE, PARTS, PARTS_IN_PLACE, SHAPES };

/* What rank r sends as element i; differs in each operation, so that data of
 * an earlier one is not taken for it. */
static int32_t value(const struct shm_member *k, int r, size_t i)
{
    return (int32_t)(i * 7 + (size_t)r * 1000003 + (size_t)k->step * 4099);
}

static int is_sum(const struct shm_member *k, const int32_t *v, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;

        for (int r = 0; r < k->n; r++)
            sum += value(k, r, i);
        if (v[i] != sum)
            return 0;
    }
    return 1;
}

/* Cuts `count` elements in three parts. */
static void cut(struct hvd__part *parts, const int32_t *send, int32_t *recv,
                size_t count)
{
    size_t first = 0;

    for (size_t i = 0; i < 3; i++) {
        size_t n = i < 2 ? count / (3 + i) : count - first;

        parts[i] =
            (struct hvd__part){send + first, recv + first, first, n, NULL};
        first += n;
    }
}

/* Returns whether the last operation took this way; NULL: any. */
static int went(const struct shm_member *k, const char *algorithm)
{
    return !algorithm || strcmp(k->op.trace.algorithm, algorithm) == 0;
}

static int sum_once(struct shm_member *k, size_t count, enum shape shape,
                    const char *algorithm)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLREDUCE, HVD_INT32);
    int in_place = shape == IN_PLACE || shape == PARTS_IN_PLACE;
    unsigned char *recv = shm_member_get(k, count * 4, 0);
    unsigned char *send = in_place ? recv : shm_member_get(k, count * 4, 1);
    int32_t *from = (int32_t *)(void *)send, *to = (int32_t *)(void *)recv;
    struct hvd__part parts[3];

    for (size_t i = 0; i < count; i++)
        from[i] = value(k, k->me, i);
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_INT32, HVD_SUM);
    op->count = count;
    if (shape >= PARTS) {
        cut(parts, from, to, count);
        op->parts = parts;
        op->nparts = 3;
    } else {
        op->sendbuf = from;
        op->recvbuf = to;
    }
    must(shm_member_do(k) == 0);
    must(is_sum(k, to, count));
    must(shm_guarded(recv, count * 4));
    must(went(k, algorithm));
    if (!in_place) {
        must(from[count - 1] == value(k, k->me, count - 1));
        shm_member_give(k, send, 1);
    }
    shm_member_give(k, recv, 0);
    return 0;
}

/* ---- The other collectives ----------------------------------------------- */

static void fill(const struct shm_member *k, int32_t *v, size_t first,
                 size_t count)
{
    for (size_t i = 0; i < count; i++)
        v[i] = value(k, k->me, first + i);
}

static int is_from(const struct shm_member *k, int rank, const int32_t *v,
                   size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (v[i] != value(k, rank, first + i))
            return 0;
    return 1;
}

/* Rank r contributes counts[r] elements. */
static int gather_once(struct shm_member *k, const size_t *counts, int in_place)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLGATHER, HVD_INT32);
    size_t sum = counts[0] + counts[1], own = counts[k->me], got[2];
    size_t at[2] = {0, counts[0]};
    unsigned char *recv = shm_member_get(k, sum * 4, 0);
    unsigned char *send = shm_member_get(k, own * 4, 1);
    int32_t *to = (int32_t *)(void *)recv, *from = (int32_t *)(void *)send;

    if (in_place)
        from = to + at[k->me];
    fill(k, from, 0, own);
    op->sendbuf = from;
    op->count = own;
    op->recvbuf = to;
    op->recvcap = sum;
    op->recvcounts = got;
    must(shm_member_do(k) == 0);
    for (int r = 0; r < 2; r++)
        must(got[r] == counts[r] && is_from(k, r, to + at[r], 0, counts[r]));
    must(shm_guarded(recv, sum * 4));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* counts[r][to]: what rank r sends, its first elements to rank 0. */
static int alltoall_once(struct shm_member *k, size_t counts[2][2])
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLTOALL, HVD_INT32);
    size_t out = counts[k->me][0] + counts[k->me][1], got[2];
    size_t in = counts[0][k->me] + counts[1][k->me];
    unsigned char *recv = shm_member_get(k, in * 4, 0);
    unsigned char *send = shm_member_get(k, out * 4, 1);
    const int32_t *to = (int32_t *)(void *)recv;

    fill(k, (int32_t *)(void *)send, 0, out);
    op->sendbuf = send;
    op->sendcounts = counts[k->me];
    op->count = out;
    op->recvbuf = recv;
    op->recvcap = in;
    op->recvcounts = got;
    must(shm_member_do(k) == 0);
    for (int r = 0; r < 2; r++) {
        size_t n = counts[r][k->me], skip = k->me ? counts[r][0] : 0;

        must(got[r] == n && is_from(k, r, to, skip, n));
        to += n;
    }
    must(shm_guarded(recv, in * 4));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* A scatter of rows or lanes; in_place: recvbuf begins where sendbuf does. */
static int scatter_once(struct shm_member *k, size_t count, int lanes,
                        int in_place)
{
    struct hvd__op *op = shm_member_op(
        k, lanes ? HVD__LANE_SCATTER : HVD__REDUCESCATTER, HVD_INT32);
    unsigned char *recv = shm_member_get(k, count * 4, 0);
    unsigned char *send = in_place ? recv : shm_member_get(k, count * 4, 1);
    int32_t *from = (int32_t *)(void *)send, *to = (int32_t *)(void *)recv;
    struct hvd__span span;

    fill(k, from, 0, count);
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_INT32, HVD_SUM);
    op->lanes = lanes;
    op->sendbuf = from;
    op->recvbuf = to;
    op->count = count;
    span.first = hvd__op_share(op, k->me, 2).first;
    span.count = hvd__op_share(op, k->me, 2).count;
    if (lanes) {
        span = hvd__lane_span(count, 4, lanes, k->me);
        to += span.first;
    }
    must(shm_member_do(k) == 0);
    for (size_t i = 0; i < span.count; i++)
        must(to[i] ==
             value(k, 0, span.first + i) + value(k, 1, span.first + i));
    must(shm_guarded(recv, count * 4));
    if (!in_place)
        shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* Equal and unequal counts, also so small or so large on one rank only that its
 * data travels in another way. */
static int try_moves(struct shm_member *k, size_t n, const char *algorithm)
{
    size_t counts[][2] = {{n, n}, {n, n / 3}, {1, n}, {n, 0}, {n, 3 * n + 1}};
    int each = (int)(sizeof(counts) / sizeof(counts[0]));

    for (int i = 0; i < each; i++) {
        size_t *c = counts[i];
        size_t table[2][2] = {{c[1], c[0]}, {c[1], c[0] / 2}};

        must(gather_once(k, c, 0) == 0 && went(k, algorithm));
        must(gather_once(k, c, 1) == 0 && went(k, algorithm));
        must(alltoall_once(k, table) == 0 && went(k, algorithm));
    }
    for (int lanes = 0; lanes <= 2; lanes++)
        must(scatter_once(k, n * 2 + 1, lanes, 0) == 0 && went(k, algorithm));
    must(scatter_once(k, n * 2 + 1, 1, 1) == 0 && went(k, algorithm));
    must(scatter_once(k, n * 2 + 1, 2, 1) == 0 && went(k, algorithm));
    return 0;
}

/* ---- Sizes --------------------------------------------------------------- */

/* The block's size that each rank offers, and the one that counts. */
static const struct {
    uint32_t offered[2], bytes;
} blocks[] = {
    {{64, 64}, 64},
    {{4096, 4096}, 4096},
    {{HVD__SHM_EXCHANGE_MAX, HVD__SHM_EXCHANGE_MAX}, HVD__SHM_EXCHANGE_MAX},
    {{16384, 4096}, 4096},
    {{4096, 1 << 20}, 4096}, /* an offer that is too large */
    {{200, 300}, 192},
    {{0, 65536}, 0},
    {{0, 0}, 0},
};
enum { NBLOCKS = sizeof(blocks) / sizeof(blocks[0]) };

static int try_size(struct shm_member *k, size_t count, const char *algorithm)
{
    for (int shape = 0; shape < SHAPES; shape++)
        must(sum_once(k, count, (enum shape)shape, algorithm) == 0);
    return 0;
}

static int body_sizes(struct shm_group *g, int me)
{
    int which = *(const int *)g->arg;
    uint32_t bytes = blocks[which].bytes;
    size_t step = bytes ? bytes / 4 : 8192;
    const char *algorithm = bytes ? "shm.exchange" : NULL;
    struct shm_member k;

    g->exchange_bytes = blocks[which].offered[me];
    shm_member_open(&k, g, me);
    must(shm_do_barrier(&k) == 0);
    for (size_t n = 1; n <= 6; n++)
        for (size_t i = 0; i < 3; i++)
            if (n * step + i > 24) /* more than a header takes */
                must(try_size(&k, n * step + i - 1, algorithm) == 0);
    for (size_t n = 1; n <= 5; n++)
        for (size_t i = 0; i < 3; i++)
            must(try_moves(&k, n * step + i - 1, NULL) == 0);
    must(try_moves(&k, 29, algorithm) == 0);
    must(try_moves(&k, 70000, algorithm) == 0);
    must(try_size(&k, 23 * step + 5, algorithm) == 0);
    must(try_size(&k, 23, algorithm) == 0);
    must(try_size(&k, 1, "shm.header") == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_sizes)
{
    int which = _i;
    struct shm_group g = {.n = 2, .body = body_sizes, .arg = &which};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* Tests a size for which only two ranks use the exchange. */
static int body_more(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    must(shm_do_barrier(&k) == 0);
    for (size_t count = 30; count < 200000; count *= 3)
        must(try_size(&k, count, NULL) == 0);
    must(try_size(&k, 50000, "shm.rounds") == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_more)
{
    struct shm_group g = {.n = _i, .body = body_more, .exchange_bytes = 16384};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Beside other operations --------------------------------------------- */

/* The ranks disagree, after one of them has written its first block. */
static int disagree(struct shm_member *k, size_t count)
{
    struct hvd__op *op =
        shm_member_op(k, k->me ? HVD__BROADCAST : HVD__ALLREDUCE, HVD_INT32);
    int32_t *v = calloc(count, 4);

    must(v);
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_INT32, HVD_SUM);
    op->sendbuf = op->recvbuf = v;
    op->count = count;
    op->signature = op->first_signature += (uint64_t)k->me << 32;
    must(plane_do(k->plane, op) == -HVD_EMISMATCH);
    for (size_t i = 0; i < count; i++)
        must(v[i] == 0);
    free(v);
    return 0;
}

static int body_beside(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (size_t i = 0; i < 60; i++) {
        size_t count = 24 + i * i * 23;

        k.sort = (enum shm_sort)(i % SHM_SORTS);
        must(try_size(&k, count, NULL) == 0);
        must(disagree(&k, count) == 0);
        must(i % 4 || try_moves(&k, count, NULL) == 0);
        must(sum_once(&k, count, APART, NULL) == 0);
        must(shm_do_broadcast(&k, count * 8, (int)i % 2) == 0);
        must(sum_once(&k, count * 2, IN_PLACE, NULL) == 0);
        must(shm_do_alltoall(&k, count) == 0);
    }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_beside)
{
    struct shm_group g = {.n = 2,
                          .body = body_beside,
                          .exchange_bytes = 16384,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(_i ? shm_group_run_threads(&g) : shm_group_run(&g), 0);
}
END_TEST

/* Rank 1 dies after its first blocks, when it comes to memory that it cannot
 * access. */
static int body_death(struct shm_group *g, int me)
{
    enum { COUNT = 1 << 20 };
    struct shm_member k;
    struct hvd__op *op;
    static int32_t v[COUNT];

    shm_member_open(&k, g, me);
    must(try_size(&k, 50000, NULL) == 0);
    op = shm_member_op(&k, HVD__ALLREDUCE, HVD_INT32);
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_INT32, HVD_SUM);
    op->sendbuf = op->recvbuf = v;
    op->count = COUNT;
    if (me == 1) {
        shm_member_die_at(&v[COUNT / 2]);
        plane_do(k.plane, op);
        return 0; /* not reached */
    }
    must(plane_do(k.plane, op) == -HVD_EPEER);
    must(k.err.rank == 101 && strcmp(k.err.text, "it was killed") == 0);
    must(k.plane->ops->start(k.plane, op) == -HVD_EPEER);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_death)
{
    struct shm_group g = {.n = 2, .body = body_death, .exchange_bytes = 4096};

    ck_assert_int_eq(shm_group_run(&g), 1);
    ck_assert(WIFSIGNALED(g.wait_status[1]));
}
END_TEST

/* ---- The knob ------------------------------------------------------------ */

START_TEST(test_knob)
{
    static const struct {
        const char *text;
        uint32_t bytes;
    } good[] = {{"0", 0},
                {"64K", 65536},
                {"1", 4096},
                {"5000", 4992},
                {"1T", HVD__SHM_EXCHANGE_MAX}};
    struct hb_error err = {0};
    uint32_t bytes = 1;

    unsetenv("HVD_EXCHANGE_BYTES");
    unsetenv("HOROVOD_EXCHANGE_BYTES");
    ck_assert_int_eq(hvd__shm_exchange_size(&bytes, &err), 0);
    ck_assert(bytes >= 4096 && bytes <= HVD__SHM_EXCHANGE_MAX);
    ck_assert(bytes % 64 == 0);
    for (int i = 0; i < 5; i++) {
        setenv("HVD_EXCHANGE_BYTES", good[i].text, 1);
        ck_assert_int_eq(hvd__shm_exchange_size(&bytes, &err), 0);
        ck_assert_uint_eq(bytes, good[i].bytes);
    }
    setenv("HVD_EXCHANGE_BYTES", "much", 1);
    ck_assert_int_eq(hvd__shm_exchange_size(&bytes, &err), -HVD_EINVAL);
    ck_assert(strstr(err.text, "HVD_EXCHANGE_BYTES"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shm_exchange");
    TCase *t = tcase_create("exchange"), *beside = tcase_create("beside");

    tcase_set_tags(t, UNIT_ONE_THREAD);
    tcase_set_timeout(t, 300);
    tcase_set_timeout(beside, 300);
    tcase_add_loop_test(t, test_sizes, 0, NBLOCKS);
    tcase_add_loop_test(t, test_more, 3, 5);
    tcase_add_loop_test(beside, test_beside, 0, 2);
    tcase_add_test(t, test_death);
    tcase_add_test(t, test_knob);
    suite_add_tcase(s, t);
    suite_add_tcase(s, beside);
    return unit_run(s);
}
