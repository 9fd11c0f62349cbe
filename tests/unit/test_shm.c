/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory plane driven directly: every collective, dtype and size on
 * 1 to 8 ranks, with every sort of buffer.
 */
#include "tests/unit/shm_member.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"

#include <stdlib.h>
#include <string.h>

/* ---- Kinds --------------------------------------------------------------- */

/* Reduces the same elements in uneven parts, one of them empty. */
static int do_parts(struct shm_member *k, enum hvd_dtype dtype, size_t count)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLREDUCE, dtype);
    size_t bytes = count * op->elem_bytes, first = 0;
    unsigned char *recv = shm_member_get(k, bytes, 0),
                  *send = shm_member_get(k, bytes, 1);
    struct hvd__part parts[8];
    size_t at = 0;

    values_fill(dtype, HVD_SUM, k->n, k->me, send, count);
    for (at = 0; at < 8; at++) {
        size_t c = at == 2   ? 0
                   : at == 7 ? count - first
                             : count / 11 * (at + 1) / 4;

        if (c > count - first)
            c = count - first;
        parts[at] =
            (struct hvd__part){send + first * op->elem_bytes,
                               recv + first * op->elem_bytes, first, c, NULL};
        first += c;
    }
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(dtype, HVD_SUM);
    op->parts = parts;
    op->nparts = 8;
    op->count = count;
    must(shm_member_do(k) == 0);
    must(shm_reduced(dtype, HVD_SUM, k->n, recv, 0, count));
    must(shm_guarded(recv, bytes));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

static int do_scatter(struct shm_member *k, enum hvd_dtype dtype, size_t rows,
                      size_t row_elems)
{
    struct hvd__op *op = shm_member_op(k, HVD__REDUCESCATTER, dtype);
    size_t count = rows * row_elems, bytes = count * op->elem_bytes;
    unsigned char *send = shm_member_get(k, bytes, 1), *recv;
    struct hvd__share share;

    op->count = count;
    op->row_elems = row_elems;
    share = hvd__op_share(op, k->me, k->n);
    recv = shm_member_get(k, share.count * op->elem_bytes, 0);
    values_fill(dtype, HVD_SUM, k->n, k->me, send, count);
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(dtype, HVD_SUM);
    op->sendbuf = send;
    op->recvbuf = recv;
    must(shm_member_do(k) == 0);
    must(shm_reduced(dtype, HVD_SUM, k->n, recv, share.first, share.count));
    must(shm_guarded(recv, share.count * op->elem_bytes));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* Each rank writes only its own lane of recvbuf, which may be sendbuf. */
static int do_lanes(struct shm_member *k, size_t count, int lanes, int in_place)
{
    struct hvd__op *op = shm_member_op(k, HVD__LANE_SCATTER, HVD_FLOAT32);
    struct hvd__span s = hvd__lane_span(count, 4, lanes, k->me);
    unsigned char *recv = shm_member_get(k, count * 4, 0);
    unsigned char *send = in_place ? recv : shm_member_get(k, count * 4, 1);

    values_fill(HVD_FLOAT32, HVD_SUM, k->n, k->me, send, count);
    op->op = HVD_SUM;
    op->lanes = lanes;
    op->reduce = hvd__reduce_get(HVD_FLOAT32, HVD_SUM);
    op->sendbuf = send;
    op->recvbuf = recv;
    op->count = count;
    must(shm_member_do(k) == 0);
    must(shm_reduced(HVD_FLOAT32, HVD_SUM, k->n, recv + s.first * 4, s.first,
                     s.count));
    for (size_t i = 0; !in_place && i < count * 4; i++)
        must(recv[i] == SHM_GUARD ||
             (i >= s.first * 4 && i < (s.first + s.count) * 4));
    if (!in_place)
        shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* Returns how many elements rank r contributes; some contribute none. */
static size_t ragged(size_t count, int r)
{
    return r % 3 == 1 ? 0 : count / (size_t)(r + 1);
}

static size_t ragged_sum(size_t count, int n)
{
    size_t sum = 0;

    for (int r = 0; r < n; r++)
        sum += ragged(count, r);
    return sum;
}

/* Where sendbuf lies: apart, in its place in recvbuf, or elsewhere in
 * recvbuf. */
enum send_at { APART, IN_PLACE, WITHIN };

static int do_allgather(struct shm_member *k, size_t count, enum send_at where)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLGATHER, HVD_INT32);
    size_t own = ragged(count, k->me), sum = ragged_sum(count, k->n), at = 0;
    unsigned char *recv = shm_member_get(k, sum * 4, 0),
                  *send = shm_member_get(k, own * 4, 1);
    unsigned char *from = send;
    size_t counts[SHM_GROUP_MAX];

    if (where == IN_PLACE)
        from = recv + ragged_sum(count, k->me) * 4;
    else if (where == WITHIN)
        from = recv + (sum - own) / 2 * 4;
    shm_bytes_fill(from, own * 4, k->me, 0);
    op->sendbuf = from;
    op->count = own;
    op->recvbuf = recv;
    op->recvcap = sum;
    op->recvcounts = counts;
    must(shm_member_do(k) == 0);
    memset(send, 0, own * 4);
    for (int r = 0; r < k->n; r++) {
        must(counts[r] == ragged(count, r));
        must(shm_bytes_are(recv + at, counts[r] * 4, r, 0));
        at += counts[r] * 4;
    }
    must(shm_guarded(recv, sum * 4));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* ---- All of them --------------------------------------------------------- */

/* Sizes around the limits of headers, one-shot, blocks and slots, and
 * beyond. */
enum { LARGEST = UNIT_LARGE(400003) };
static const size_t sizes[] = {0,     1,     3,     24,     25,
                               40,    777,   8191,  8192,   8193,
                               16385, 40000, 70001, 150000, LARGEST};
enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]) };

static int run_sizes(struct shm_member *k)
{
    for (int i = 0; i < NSIZES; i++) {
        size_t c = sizes[i];

        must(shm_do_allreduce(k, HVD_FLOAT32, HVD_SUM, c, 0) == 0);
        must(shm_do_allreduce(k, HVD_FLOAT32, HVD_MAX, c, 1) == 0);
        must(do_parts(k, HVD_FLOAT32, c) == 0);
        must(do_scatter(k, HVD_FLOAT32, c, 1) == 0);
        must(do_scatter(k, HVD_FLOAT64, c / 7, 7) == 0);
        for (int lanes = 1; lanes <= k->n; lanes += 2)
            must(do_lanes(k, c, lanes, i % 2) == 0);
        must(shm_do_broadcast(k, c * 4, i % k->n) == 0);
        must(do_allgather(k, c, APART) == 0);
        must(do_allgather(k, c, IN_PLACE) == 0);
        must(do_allgather(k, c, WITHIN) == 0);
        must(shm_do_alltoall(k, c) == 0);
        must(shm_do_barrier(k) == 0);
    }
    return 0;
}

static int body_sizes(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (k.sort = 0; k.sort < SHM_SORTS; k.sort++)
        must(run_sizes(&k) == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_sizes)
{
    struct shm_group g = {.n = _i,
                          .body = body_sizes,
                          .exchange_bytes = SHM_TEST_EXCHANGE_BYTES,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* The same with domains: even and uneven ones, domains of one rank, and domains
 * whose ranks are not adjacent. */
static const struct {
    int n;
    uint32_t of[16];
} domains[] = {
    {9, {0, 0, 0, 0, 0, 0, 0, 0, 1}},
    {10, {7, 0, 0, 2, 2, 2, 2, 0, 2, 2}},
    {12, {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}},
    {16, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}},
};
enum { NDOMAINS = sizeof(domains) / sizeof(domains[0]) };

static int body_domains(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    k.sort = (enum shm_sort)((g->n + 2) % SHM_SORTS);
    must(run_sizes(&k) == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_domains)
{
    struct shm_group g = {.n = domains[_i].n,
                          .body = body_domains,
                          .domains = domains[_i].of,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

static int body_dtypes(struct shm_group *g, int me)
{
    static const size_t counts[] = {1, 11, 5003, 90001};
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (k.sort = 0; k.sort < SHM_SEND_IN_ARENA; k.sort++)
        for (int d = 0; d < VALUES_DTYPES; d++)
            for (int i = 0; i < 4; i++) {
                must(do_parts(&k, (enum hvd_dtype)d, counts[i]) == 0);
                must(do_scatter(&k, (enum hvd_dtype)d, counts[i], 1) == 0);
                for (int op = 0; op <= HVD_BOR; op++)
                    if (hvd__reduce_get((enum hvd_dtype)d, (enum hvd_op)op))
                        must(shm_do_allreduce(&k, (enum hvd_dtype)d,
                                              (enum hvd_op)op, counts[i],
                                              i % 2) == 0);
            }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_dtypes)
{
    struct shm_group g = {.n = _i,
                          .body = body_dtypes,
                          .exchange_bytes = SHM_TEST_EXCHANGE_BYTES,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* More ranks than fit into a header's table or one kernel pass, or than there
 * are cores. */
static int body_many(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    must(shm_do_allreduce(&k, HVD_FLOAT32, HVD_SUM, 5, 0) == 0);
    must(shm_do_allreduce(&k, HVD_FLOAT32, HVD_SUM, 60000, 0) == 0);
    must(do_scatter(&k, HVD_FLOAT32, 50001, 1) == 0);
    must(shm_do_alltoall(&k, 3000) == 0);
    must(do_allgather(&k, 5000, APART) == 0);
    must(shm_do_broadcast(&k, 300000, g->n - 1) == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_many)
{
    struct shm_group g = {
        .n = 64, .body = body_many, .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Data inside headers, and beside ------------------------------------- */

/* Draws a number for the present operation, the same on all ranks. */
static size_t draw(const struct shm_member *k, uint64_t i)
{
    return (size_t)(hvd__mix(hvd__mix(0, k->step), i + 1) >> 32);
}

/* Draws a count of elements near the limit of a header, or far from it. */
static size_t some(const struct shm_member *k, int i)
{
    static const size_t counts[] = {0,  0,  1,  2,  14, 15,   21,
                                    22, 43, 44, 45, 64, 70000};

    return counts[draw(k, (uint64_t)i) % (sizeof(counts) / sizeof(counts[0]))];
}

/* Every rank sends a drawn count to every rank, itself included. */
static int mixed_alltoall(struct shm_member *k)
{
    size_t table[16][16], in[16], out = 0, sum = 0, at = 0;
    struct hvd__op *op = shm_member_op(k, HVD__ALLTOALL, HVD_INT16);
    unsigned char *send, *recv;

    for (int i = 0; i < k->n * k->n; i++)
        table[i / k->n][i % k->n] = some(k, i);
    for (int r = 0; r < k->n; r++) {
        out += table[k->me][r];
        sum += table[r][k->me];
    }
    send = shm_member_get(k, out * 2, 1);
    recv = shm_member_get(k, sum * 2, 0);
    for (int r = 0; r < k->n; r++) {
        shm_bytes_fill(send + at, table[k->me][r] * 2, k->me, r);
        at += table[k->me][r] * 2;
    }
    op->sendbuf = send;
    op->sendcounts = table[k->me];
    op->count = out;
    op->recvbuf = recv;
    op->recvcap = sum;
    op->recvcounts = in;
    must(shm_member_do(k) == 0);
    memset(send, 0, out * 2);
    at = 0;
    for (int r = 0; r < k->n; r++) {
        must(in[r] == table[r][k->me]);
        must(shm_bytes_are(recv + at, in[r] * 2, r, k->me));
        at += in[r] * 2;
    }
    must(shm_guarded(recv, sum * 2));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

/* sendbuf lies anywhere in recvbuf, or apart. */
static int mixed_allgather(struct shm_member *k)
{
    size_t counts[16], in[16], sum = 0, own, at = 0, within;
    struct hvd__op *op = shm_member_op(k, HVD__ALLGATHER, HVD_INT16);
    unsigned char *send, *recv, *from;

    for (int r = 0; r < k->n; r++)
        sum += counts[r] = some(k, r);
    own = counts[k->me];
    send = shm_member_get(k, own * 2, 1);
    recv = shm_member_get(k, sum * 2, 0);
    within = draw(k, 100) % (sum - own + 1) * 2;
    from = draw(k, 101) % 3 ? recv + within : send;
    shm_bytes_fill(from, own * 2, k->me, 0);
    op->sendbuf = from;
    op->count = own;
    op->recvbuf = recv;
    op->recvcap = sum;
    op->recvcounts = in;
    must(shm_member_do(k) == 0);
    memset(send, 0, own * 2);
    for (int r = 0; r < k->n; r++) {
        must(in[r] == counts[r]);
        must(shm_bytes_are(recv + at, in[r] * 2, r, 0));
        at += in[r] * 2;
    }
    must(shm_guarded(recv, sum * 2));
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

static int nothing_at_all(struct shm_member *k, enum hvd__kind kind)
{
    static const size_t none[16];
    struct hvd__op *op = shm_member_op(k, kind, HVD_INT16);
    size_t in[16] = {7};

    op->sendcounts = none;
    op->recvcounts = in;
    must(shm_member_do(k) == 0);
    must(in[0] == 0);
    return 0;
}

static int body_mixed(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (int i = 0; i < 20; i++) {
        k.sort = (enum shm_sort)(i % SHM_SORTS);
        must(mixed_alltoall(&k) == 0);
        must(mixed_allgather(&k) == 0);
        must(shm_do_broadcast(&k, some(&k, 0) * 2, i % k.n) == 0);
        must(shm_do_allreduce(&k, HVD_INT16, HVD_MAX, some(&k, 0), i % 2) == 0);
        must(do_scatter(&k, HVD_INT16, some(&k, 0), 1) == 0);
        must(nothing_at_all(&k, HVD__ALLTOALL) == 0);
        must(nothing_at_all(&k, HVD__ALLGATHER) == 0);
    }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_mixed)
{
    struct shm_group g = {.n = _i,
                          .body = body_mixed,
                          .exchange_bytes = SHM_TEST_EXCHANGE_BYTES,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

START_TEST(test_mixed_domains)
{
    struct shm_group g = {.n = domains[_i].n,
                          .body = body_mixed,
                          .domains = domains[_i].of,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* In one process, where ThreadSanitizer sees all accesses. */
START_TEST(test_mixed_threads)
{
    struct shm_group g = {.n = _i,
                          .body = body_mixed,
                          .exchange_bytes = SHM_TEST_EXCHANGE_BYTES,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run_threads(&g), 0);
}
END_TEST

/* ---- Too little room ----------------------------------------------------- */

/* The last rank has no room for what arrives, and rank 0 asks for counts
 * only. */
static int gather_no_room(struct shm_member *k, enum hvd__kind kind,
                          size_t count)
{
    struct hvd__op *op = shm_member_op(k, kind, HVD_UINT8);
    size_t n = (size_t)k->n, in = n * count;
    unsigned char *send = shm_member_get(k, in, 1),
                  *recv = shm_member_get(k, in, 0);
    size_t sendcounts[SHM_GROUP_MAX], recvcounts[SHM_GROUP_MAX];
    int lacks = k->me == k->n - 1, rc;

    memset(send, k->me, in);
    for (int r = 0; r < k->n; r++)
        sendcounts[r] = count;
    op->sendbuf = send;
    op->sendcounts = sendcounts;
    op->count = kind == HVD__ALLTOALL ? in : count;
    op->recvbuf = k->me ? recv : NULL;
    op->recvcap = k->me ? in - (size_t)lacks : 0;
    op->recvcounts = recvcounts;
    rc = plane_do(k->plane, op);
    must(rc == (lacks ? -HVD_EINVAL : 1));
    must(!lacks || strstr(k->err.text, "has room for"));
    for (int r = 0; r < k->n; r++) {
        must(recvcounts[r] == count);
        must(lacks || k->me == 0 || recv[(size_t)r * count] == r);
    }
    must(!lacks || recv[0] == SHM_GUARD);
    shm_member_give(k, send, 1);
    shm_member_give(k, recv, 0);
    return 0;
}

static int body_room(struct shm_group *g, int me)
{
    static const size_t counts[] = {1, 3000, 600000};
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (k.sort = 0; k.sort < SHM_SORTS; k.sort++)
        for (int i = 0; i < 3; i++) {
            must(gather_no_room(&k, HVD__ALLGATHER, counts[i]) == 0);
            must(gather_no_room(&k, HVD__ALLTOALL, counts[i]) == 0);
        }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_room)
{
    struct shm_group g = {
        .n = 3, .body = body_room, .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* A kind that has no row is refused. */
static int body_kinds(struct shm_group *g, int me)
{
    struct shm_member k;
    struct hvd__op op;

    shm_member_open(&k, g, me);
    hvd__op_init(&op);
    for (op.kind = HVD__ALLREDUCE; op.kind <= HVD__LANE_SCATTER; op.kind++)
        must(k.plane->ops->supports(k.plane, &op));
    for (; op.kind < HVD__LANE_SCATTER + 3; op.kind++)
        must(!k.plane->ops->supports(k.plane, &op));
    shm_member_close(&k);
    return 0;
}

START_TEST(test_kinds)
{
    struct shm_group g = {
        .n = 2, .body = body_kinds, .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shm");
    TCase *data = tcase_create("data"), *mixed = tcase_create("mixed");
    TCase *threads = tcase_create("threads");

    tcase_set_tags(data, UNIT_ONE_THREAD);
    tcase_set_tags(mixed, UNIT_ONE_THREAD);
    tcase_set_timeout(data, 600);
    tcase_set_timeout(mixed, 600);
    tcase_set_timeout(threads, 600);
    tcase_add_loop_test(data, test_sizes, 1, 9);
    tcase_add_loop_test(data, test_domains, 0, NDOMAINS);
    tcase_add_loop_test(data, test_dtypes, 1, 5);
    tcase_add_test(data, test_many);
    tcase_add_loop_test(mixed, test_mixed, 1, 6);
    tcase_add_loop_test(threads, test_mixed_threads, 2, 6);
    tcase_add_loop_test(mixed, test_mixed_domains, 0, NDOMAINS);
    tcase_add_test(data, test_room);
    tcase_add_test(data, test_kinds);
    suite_add_tcase(s, data);
    suite_add_tcase(s, mixed);
    suite_add_tcase(s, threads);
    return unit_run(s);
}
