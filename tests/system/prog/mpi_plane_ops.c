/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of every kind and the results that they must have; see
 * mpi_plane.h. */
#include "tests/system/prog/mpi_plane.h"

#include "lib/base/env.h"
#include "tests/unit/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 6000 };

/* ---- Reductions ---------------------------------------------------------- */

static _Alignas(64) unsigned char in[8 * MOST * 8], out[8 * MOST * 8];

static int defined(enum hvd_dtype dtype, enum hvd_op how)
{
    return how != HVD_ADASUM && hvd__reduce_get(dtype, how) != NULL;
}

static void check_values(const struct member *m, double scale, const void *buf,
                         size_t count)
{
    size_t bad = values_check(m->op.dtype, m->op.op, m->n, scale, buf, count);

    if (bad == count)
        return;
    fprintf(stderr, "rank %d: %s %s of %zu by %s: wrong at %zu\n", world.rank,
            hvd_dtype_name(m->op.dtype), hvd_op_name(m->op.op), count,
            m->op.trace.algorithm, bad);
    abort();
}

/* Checks an allreduce.  in_place: 0 on no rank, 1 on all, 2 on some. */
static void allreduce(struct member *m, enum hvd_dtype dtype, enum hvd_op how,
                      size_t count, int in_place)
{
    struct hvd__op *op = prepare(m, HVD__ALLREDUCE, dtype, count);
    int here = in_place == 1 || (in_place == 2 && m->me % 2);

    memset(out, 0x5a, sizeof(out));
    values_fill(dtype, how, m->n, m->me, here ? out : in, count);
    op->sendbuf = here ? out : in;
    op->recvbuf = out;
    reduces(m, how);
    DONE(m);
    check_values(m, 1, out, count);
    CHECK(out[count * op->elem_bytes] == 0x5a);
}

static void scaled_allreduce(struct member *m, enum hvd_dtype dtype,
                             enum hvd_op how, size_t count)
{
    struct hvd__op *op = prepare(m, HVD__ALLREDUCE, dtype, count);
    double scale = dtype == HVD_BOOL ? 1 : 6;

    if (how == HVD_PRODUCT && dtype != HVD_BOOL)
        return; /* the factor counts n times */
    values_fill(dtype, how, m->n, m->me, in, count);
    op->sendbuf = in;
    op->recvbuf = out;
    op->prescale = op->args.pre = 2;
    op->postscale = op->args.post = 3;
    reduces(m, how);
    DONE(m);
    check_values(m, scale, out, count);
}

static void reduce_all(struct member *m)
{
    static const size_t counts[] = {0, 1, 7, 250, MOST};

    for (int d = 0; d < VALUES_DTYPES; d++)
        for (int o = HVD_AVERAGE; o <= HVD_BOR; o++) {
            enum hvd_dtype dtype = (enum hvd_dtype)d;
            enum hvd_op how = (enum hvd_op)o;

            if (!defined(dtype, how))
                continue;
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                allreduce(m, dtype, how, counts[c], (int)(c + 2) % 3);
            scaled_allreduce(m, dtype, how, 123);
        }
}

/* Checks that a NaN remains a NaN and that all ranks have the same bits. */
static void test_nan(struct member *m)
{
    static const enum hvd_op hows[] = {HVD_MIN, HVD_MAX};

    for (int i = 0; i < 2; i++) {
        struct hvd__op *op = prepare(m, HVD__ALLREDUCE, HVD_FLOAT32, 3);
        float send[3] = {1, m->me == 0 ? NAN : 2, 3}, recv[3];

        op->sendbuf = send;
        op->recvbuf = recv;
        reduces(m, hows[i]);
        DONE(m);
        CHECK(recv[0] == 1 && isnan(recv[1]) && recv[2] == 3);
    }
}

/* Checks min and max of the ends of a dtype's range, signed or not. */
static void test_ends(struct member *m, enum hvd_dtype dtype, uint16_t low,
                      uint16_t high)
{
    for (int i = 0; i < 2; i++) {
        struct hvd__op *op = prepare(m, HVD__ALLREDUCE, dtype, 1);
        uint16_t send = m->me == 0 ? low : high, recv = 0, want;

        want = i == 0 || m->n == 1 ? low : high;
        op->sendbuf = &send;
        op->recvbuf = &recv;
        reduces(m, i == 0 ? HVD_MIN : HVD_MAX);
        DONE(m);
        CHECK(memcmp(&recv, &want, op->elem_bytes) == 0);
    }
}

/* Checks an allreduce of float32 in three parts, one of them empty, as a batch
 * is. */
static void test_parts(struct member *m, enum hvd_dtype wire, size_t count)
{
    size_t cut = count / 3;
    float *send = malloc(count * sizeof(float));
    float *recv = malloc(count * sizeof(float));
    struct hvd__part parts[3] = {
        {send, recv, 0, cut, NULL},
        {send + cut, recv + cut, cut, 0, NULL},
        {send + cut, recv + cut, cut, count - cut, NULL}};
    struct hvd__op *op = prepare(m, HVD__ALLREDUCE, wire, count);

    CHECK(send && recv);
    values_fill(HVD_FLOAT32, HVD_AVERAGE, m->n, m->me, send, count);
    op->part_dtype = HVD_FLOAT32;
    op->parts = parts;
    op->nparts = 3;
    op->prescale = 2;
    op->args.pre = wire == HVD_FLOAT32 ? 2 : 1;
    reduces(m, HVD_AVERAGE);
    DONE(m);
    CHECK(values_check(HVD_FLOAT32, HVD_AVERAGE, m->n, 2, recv, count) ==
          count);
    free(send);
    free(recv);
}

static void test_scatter(struct member *m, enum hvd_dtype dtype,
                         enum hvd_op how, size_t rows, size_t row_elems,
                         double pre)
{
    struct hvd__op *op =
        prepare(m, HVD__REDUCESCATTER, dtype, rows * row_elems);
    size_t bytes = op->elem_bytes;
    struct hvd__share s;

    op->row_elems = row_elems;
    op->prescale = op->args.pre = pre;
    s = hvd__op_share(op, m->me, m->n);
    values_fill(dtype, how, m->n, m->me, in, op->count);
    memset(out, 0x5a, sizeof(out));
    op->sendbuf = in;
    op->recvbuf = s.count ? out + s.first * bytes : NULL;
    reduces(m, how);
    DONE(m);
    CHECK(values_check_from(dtype, how, m->n, pre, out + s.first * bytes,
                            s.first, s.count) == s.count);
    CHECK(out[(s.first + s.count) * bytes] == 0x5a);
}

static void test_scatters(struct member *m)
{
    static const size_t rows[] = {0, 1, 3, 8, 101};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        test_scatter(m, HVD_FLOAT32, HVD_SUM, rows[i], 5, 1);
        test_scatter(m, HVD_FLOAT16, HVD_AVERAGE, rows[i], 3, 1);
        test_scatter(m, HVD_INT64, HVD_MAX, rows[i], 1, 2);
        test_scatter(m, HVD_BOOL, HVD_SUM, rows[i], 2, 1);
    }
}

/* ---- Moves -----------------------------------------------------------------
 */

/* Returns the i-th element that rank `from` has for rank `to`. */
static int32_t datum(int from, int to, size_t i)
{
    return (int32_t)(from * 1000003 + to * 5003 + (int)i);
}

static void test_broadcast(struct member *m, size_t count)
{
    int32_t *send = (int32_t *)(void *)in, *recv = (int32_t *)(void *)out;

    for (int root = 0; root < m->n; root++) {
        struct hvd__op *op = prepare(m, HVD__BROADCAST, HVD_INT32, count);
        int here = root % 2 && m->me == root;

        op->root = root;
        op->sendbuf = m->me == root ? (here ? recv : send) : NULL;
        op->recvbuf = recv;
        memset(recv, 0, count * 4 + 4);
        for (size_t i = 0; i < count; i++)
            (here ? recv : send)[i] = datum(root, 0, i);
        DONE(m);
        for (size_t i = 0; i < count; i++)
            CHECK(recv[i] == datum(root, 0, i));
        CHECK(recv[count] == 0);
    }
}

/* Checks an allgather.  room: 0: no rank wants the data, 1: all have room, 2:
 * the last has too little.  where: the element of recvbuf at which sendbuf is,
 * or -1: sendbuf is elsewhere. */
static void gather(struct member *m, size_t each, int room, int where)
{
    size_t counts[RANKS_MAX], total = 0, own = each + (size_t)m->me % 3;
    int32_t *recv = (int32_t *)(void *)out;
    int32_t *send = where < 0 ? (int32_t *)(void *)in : recv + where;
    struct hvd__op *op = prepare(m, HVD__ALLGATHER, HVD_INT32, own);
    int lacks = room == 2 && m->me == m->n - 1, rc;

    for (int r = 0; r < m->n; r++)
        total += each + (size_t)r % 3;
    memset(recv, 0, sizeof(out));
    for (size_t i = 0; i < own; i++)
        send[i] = datum(m->me, 0, i);
    op->sendbuf = send;
    op->recvbuf = room ? recv : NULL;
    op->recvcap = room ? total - (size_t)lacks : 0;
    op->recvcounts = counts;
    sign(m);
    rc = run(m);
    CHECK_RC(rc, lacks ? -HVD_EINVAL : 1, &m->err);
    for (int r = 0; r < m->n; r++)
        CHECK(counts[r] == each + (size_t)r % 3);
    if (lacks)
        CHECK(strstr(m->err.text, "recvbuf has room for"));
    if (lacks || !room) {
        CHECK(where >= 0 || recv[0] == 0);
        return;
    }
    for (int r = 0; r < m->n; r++)
        for (size_t i = 0; i < counts[r]; i++)
            CHECK(*recv++ == datum(r, 0, i));
}

static void test_gathers(struct member *m)
{
    static const size_t each[] = {0, 1, 300};

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        for (int room = 0; room <= 2; room++) {
            if (room == 2 && (each[i] == 0 || m->n < 2))
                continue;
            gather(m, each[i], room, -1);
            gather(m, each[i], room, 0);
            gather(m, each[i], room, 5);
        }
}

static size_t split(int from, int to, size_t each)
{
    return each ? each + (size_t)(from * 7 + to * 3) % 5 : 0;
}

static void alltoall(struct member *m, size_t each, int room)
{
    size_t sends[RANKS_MAX], counts[RANKS_MAX], count = 0, total = 0;
    int32_t *send = (int32_t *)(void *)in, *recv = (int32_t *)(void *)out;
    int lacks = room == 2 && m->me == m->n - 1, rc;
    struct hvd__op *op;

    memset(recv, 0, sizeof(out));
    for (int r = 0; r < m->n; r++) {
        sends[r] = split(m->me, r, each);
        total += split(r, m->me, each);
        for (size_t i = 0; i < sends[r]; i++)
            send[count++] = datum(m->me, r, i);
    }
    op = prepare(m, HVD__ALLTOALL, HVD_INT32, count);
    op->sendbuf = send;
    op->sendcounts = sends;
    op->recvbuf = room ? recv : NULL;
    op->recvcap = room ? total - (size_t)lacks : 0;
    op->recvcounts = counts;
    sign(m);
    rc = run(m);
    CHECK_RC(rc, lacks ? -HVD_EINVAL : 1, &m->err);
    for (int r = 0; r < m->n; r++)
        CHECK(counts[r] == split(r, m->me, each));
    for (int r = 0; r < m->n && room && !lacks; r++)
        for (size_t i = 0; i < counts[r]; i++)
            CHECK(*recv++ == datum(r, m->me, i));
    CHECK(*recv == 0);
}

static void test_alltoalls(struct member *m)
{
    static const size_t each[] = {0, 1, 400};

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        for (int room = 0; room <= (each[i] && m->n > 1 ? 2 : 1); room++)
            alltoall(m, each[i], room);
}

void check_barrier(struct member *m)
{
    prepare(m, HVD__BARRIER, HVD_UINT8, 0);
    hvd__op_time(&m->op);
    DONE(m);
    CHECK(m->op.trace.agreed_ns != HVD__OP_TIMED);
}

void check_moves(struct member *m)
{
    test_broadcast(m, 0);
    test_broadcast(m, 1);
    test_broadcast(m, MOST);
    test_gathers(m);
    test_alltoalls(m);
    check_barrier(m);
}

void check_small_allreduce(struct member *m)
{
    allreduce(m, HVD_INT32, HVD_SUM, 10, 0);
}

void check_reductions(struct member *m)
{
    reduce_all(m);
    test_nan(m);
    test_ends(m, HVD_UINT8, 5, 0xff);
    test_ends(m, HVD_INT8, 0xff, 5);
    test_ends(m, HVD_UINT16, 5, 0xffff);
    test_ends(m, HVD_INT16, 0xffff, 5);
    test_parts(m, HVD_FLOAT32, 100);
    test_parts(m, HVD_FLOAT16, 1000);
    test_parts(m, HVD_BFLOAT16, 1000);
    if (!hb_knob("MPI_CHUNK"))
        test_parts(m, HVD_FLOAT32, 1200007); /* more than a block */
    test_scatters(m);
}
