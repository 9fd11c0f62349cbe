/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every algorithm of a TCP group, with 1 to 8 members, at sizes around parts,
 * chunks and socket buffers: right values, and, where floats are rounded, the
 * same bits on all members.  Operations follow each other without anything
 * between them that would bring the members into step.
 */
#include "runtime/plane/tcp/tcp.h"
#include "tests/unit/tcp_group.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPEN_MS = 60000,
    MEMBERS_MAX = 8,
    BUF_BYTES = 4 << 20,
    CHUNK_BYTES = 64 << 10,
    BLOCK_MAX = 300001,
};

static _Alignas(64) unsigned char buf[BUF_BYTES], chunk[CHUNK_BYTES];
static _Alignas(64) unsigned char input[BUF_BYTES];

/* Delays a member now and then. */
static void dawdle(int me, size_t trial)
{
    if ((trial * 7 + (size_t)me) % 11 == 0)
        usleep(300);
}

static struct hvd__tcp_reduction vector(enum hvd_dtype dtype, enum hvd_op op,
                                        int n, size_t count)
{
    struct hvd__tcp_reduction r = {
        .buf = buf,
        .count = count,
        .elem_bytes = hvd_dtype_size(dtype),
        .reduce = hvd__reduce_get(dtype, op),
        .args = {1.0, 1.0, op == HVD_AVERAGE ? n : 1, 0},
        .chunk = chunk,
        /* Also chunks that are not a whole number of elements. */
        .chunk_bytes = count % 3 == 0 ? CHUNK_BYTES : 1021,
    };

    return r;
}

/* ---- Allreduce ------------------------------------------------------- */

static const enum hvd__tcp_algorithm allreduces[] = {
    HVD__TCP_RD, HVD__TCP_RABENSEIFNER, HVD__TCP_RING, HVD__TCP_AUTO};

static const size_t counts[] = {
    0,   1,    2,    3,    5,    7,     8,     9,     63,     254,   255,
    256, 1021, 4096, 4097, 8192, 16384, 16385, 65537, 300001, 500002};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]), FEW = 14 };

static int allreduce_once(struct tcp_group *g, struct hvd__tcp *t, int me,
                          enum hvd__tcp_algorithm a, enum hvd_dtype dtype,
                          enum hvd_op op, size_t count)
{
    struct hvd__tcp_reduction r = vector(dtype, op, g->n, count);
    enum hvd__tcp_algorithm done;

    values_fill(dtype, op, g->n, me, buf, count);
    if (count % 2) {
        memcpy(input, buf, count * r.elem_bytes);
        memset(buf, 0xa5, count * r.elem_bytes);
        r.src = input;
    }
    dawdle(me, count + (size_t)op);
    done = hvd__tcp_allreduce(t, &r, a);
    must(a == HVD__TCP_AUTO ? done != a : done == a);
    must(tcp_group_finish(t, NULL) == 1);
    must(values_check(dtype, op, g->n, 1.0, buf, count) == count);
    values_fill(dtype, op, g->n, me, buf, count);
    must(!r.src || memcmp(input, buf, count * r.elem_bytes) == 0);
    return 0;
}

static int allreduce_body(struct tcp_group *g, int me)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX};
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    for (int a = 0; a < 4; a++)
        for (size_t c = 0; c < COUNTS; c++)
            must(allreduce_once(g, t, me, allreduces[a], HVD_FLOAT32,
                                ops[c % 4], counts[c]) == 0);
    for (int a = 0; a < 4; a++)
        for (int d = 0; d < VALUES_DTYPES; d++)
            for (size_t c = 0; c < FEW; c++)
                must(allreduce_once(g, t, me, allreduces[a], (enum hvd_dtype)d,
                                    c % 2 ? HVD_SUM : HVD_MAX, counts[c]) == 0);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_allreduce)
{
    struct tcp_group g = {.n = _i, .body = allreduce_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Same bits ------------------------------------------------------- */

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state;
}

/* Fills with random bits, which include NaN, infinities, denormals and both
 * zeros. */
static void fill_wildly(int me, size_t trial, size_t bytes)
{
    uint32_t state = (uint32_t)((size_t)me * 7919 + trial);

    for (size_t i = 0; i < bytes; i++)
        buf[i] = (unsigned char)(next(&state) >> 24);
    for (size_t i = 0; i + 64 <= bytes; i += 64)
        memset(buf + i, i / 64 % 2 ? 0 : 0x80, 8);
}

static uint64_t hash(size_t bytes)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ buf[i]) * 1099511628211u;
    return h;
}

static int all_agree(struct tcp_group *g, struct hvd__tcp *t, int me,
                     uint64_t mine)
{
    struct hvd__tcp_block blocks[MEMBERS_MAX];
    uint64_t theirs[MEMBERS_MAX];

    for (int i = 0; i < g->n; i++)
        blocks[i] = (struct hvd__tcp_block){&theirs[i], sizeof(theirs[i])};
    hvd__tcp_exchange(t, &mine, sizeof(mine), sizeof(mine), blocks);
    must(tcp_group_finish(t, NULL) == 1);
    for (int i = 0; i < g->n; i++)
        must(i == me || theirs[i] == mine);
    return 0;
}

static int bits_body(struct tcp_group *g, int me)
{
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT16, HVD_BFLOAT16,
                                            HVD_FLOAT32, HVD_FLOAT64};
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX,
                                      HVD_PRODUCT};
    struct hvd__tcp *t = NULL;
    size_t trial = 0;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    for (int a = 0; a < 3; a++)
        for (int d = 0; d < 4; d++)
            for (int o = 0; o < 5; o++, trial++) {
                size_t count = trial % 4 ? 1 + trial * 13 : 30001;
                struct hvd__tcp_reduction r =
                    vector(dtypes[d], ops[o], g->n, count);

                fill_wildly(me, trial, count * r.elem_bytes);
                r.args.post = o == 0 ? 1.0 / 3 : 1.0;
                hvd__tcp_allreduce(t, &r, allreduces[a]);
                must(tcp_group_finish(t, NULL) == 1);
                must(all_agree(g, t, me, hash(count * r.elem_bytes)) == 0);
            }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_same_bits)
{
    struct tcp_group g = {.n = _i, .body = bits_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Scaling and the caller's own elements --------------------------- */

/* An element of 24 bytes: maximum, minimum and sum. */
struct summary {
    int64_t most, least, sum;
};

static void summarise(void *dst, const void *const *srcs, int nsrc,
                      size_t count, const struct hvd__reduce_args *args)
{
    for (size_t i = 0; i < count; i++) {
        struct summary s = ((const struct summary *)srcs[0])[i];

        for (int k = 1; k < nsrc; k++) {
            const struct summary *o = (const struct summary *)srcs[k] + i;

            s.most = o->most > s.most ? o->most : s.most;
            s.least = o->least < s.least ? o->least : s.least;
            s.sum += o->sum;
        }
        s.sum *= (int64_t)args->post;
        ((struct summary *)dst)[i] = s;
    }
}

static int own_body(struct tcp_group *g, int me)
{
    struct summary *s = (struct summary *)buf;
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    for (int a = 0; a < 3; a++) {
        struct hvd__tcp_reduction r = vector(HVD_UINT8, HVD_SUM, g->n, 333);

        for (int i = 0; i < 333; i++)
            s[i] = (struct summary){i + me, i - me, 1};
        r.elem_bytes = sizeof(*s);
        r.reduce = summarise;
        /* Every element is scaled by `post` once; `pre` is not applied here. */
        r.args.pre = 99.0;
        r.args.post = 5.0;
        hvd__tcp_allreduce(t, &r, allreduces[a]);
        must(tcp_group_finish(t, NULL) == 1);
        for (int i = 0; i < 333; i++) {
            must(s[i].most == i + g->n - 1 && s[i].least == i - g->n + 1);
            must(s[i].sum == 5 * g->n);
        }
    }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_own_elements)
{
    struct tcp_group g = {.n = _i, .body = own_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Reduce-scatter and allgather ------------------------------------ */

/* Makes uneven parts, some of them empty. */
static void make_parts(int n, size_t trial, size_t *first)
{
    first[0] = 0;
    for (int i = 0; i < n; i++)
        first[i + 1] =
            first[i] + ((trial + (size_t)i) % 3 == 0
                            ? 0
                            : counts[(trial * 5 + (size_t)i) % (COUNTS - 2)]);
}

static int scatter_once(struct tcp_group *g, struct hvd__tcp *t, int me,
                        size_t trial)
{
    enum hvd_op op = trial % 2 ? HVD_SUM : HVD_AVERAGE;
    size_t first[MEMBERS_MAX + 1], own;
    struct hvd__tcp_reduction r;

    make_parts(g->n, trial, first);
    own = first[me + 1] - first[me];
    r = vector(HVD_FLOAT32, op, g->n, first[g->n]);
    r.src = trial % 4 < 2 ? input : NULL;
    values_fill(HVD_FLOAT32, op, g->n, me, r.src ? input : buf, r.count);
    dawdle(me, trial);
    hvd__tcp_reduce_scatter(t, &r, first);
    must(tcp_group_finish(t, NULL) == 1);
    must(values_check_from(HVD_FLOAT32, op, g->n, 1.0, buf + 4 * first[me],
                           first[me], own) == own);
    return 0;
}

static unsigned char mark(int member, size_t i)
{
    return (unsigned char)((size_t)member * 31 + i * 7 + i / 251);
}

static int gather_once(struct tcp_group *g, struct hvd__tcp *t, int me,
                       size_t trial)
{
    size_t first[MEMBERS_MAX + 1];

    make_parts(g->n, trial, first);
    memset(buf, 0, first[g->n]);
    for (size_t i = first[me]; i < first[me + 1]; i++)
        buf[i] = mark(me, i);
    dawdle(me, trial);
    hvd__tcp_allgather(t, buf, first);
    must(tcp_group_finish(t, NULL) == 1);
    for (int m = 0; m < g->n; m++)
        for (size_t i = first[m]; i < first[m + 1]; i++)
            must(buf[i] == mark(m, i));
    return 0;
}

static int ring_body(struct tcp_group *g, int me)
{
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    for (size_t trial = 0; trial < 24; trial++) {
        must(scatter_once(g, t, me, trial) == 0);
        must(gather_once(g, t, me, trial) == 0);
    }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_ring)
{
    struct tcp_group g = {.n = _i, .body = ring_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Alltoall -------------------------------------------------------- */

static size_t length(int n, int from, int to, size_t trial)
{
    static const size_t lengths[] = {0, 1, 5, 4096, 0, 65537, BLOCK_MAX};

    return lengths[(trial * 3 + (size_t)(from * n + to)) % 7];
}

static int alltoall_once(struct tcp_group *g, struct hvd__tcp *t, int me,
                         size_t trial, unsigned char *memory)
{
    struct hvd__tcp_block send[MEMBERS_MAX], recv[MEMBERS_MAX];
    int known = trial % 2;

    for (int i = 0; i < g->n; i++) {
        unsigned char *out = memory + (size_t)i * BLOCK_MAX;
        unsigned char *in = memory + (size_t)(g->n + i) * BLOCK_MAX;

        send[i] = (struct hvd__tcp_block){out, length(g->n, me, i, trial)};
        recv[i] = (struct hvd__tcp_block){in, known ? length(g->n, i, me, trial)
                                                    : BLOCK_MAX};
        for (size_t k = 0; k < send[i].len; k++)
            out[k] = mark(me * g->n + i, k);
    }
    dawdle(me, trial);
    hvd__tcp_alltoallv(t, send, NULL, recv, known);
    must(tcp_group_finish(t, NULL) == 1);
    for (int i = 0; i < g->n; i++) {
        if (i == me)
            continue;
        must(recv[i].len == length(g->n, i, me, trial));
        for (size_t k = 0; k < recv[i].len; k++)
            must(((unsigned char *)recv[i].p)[k] == mark(i * g->n + me, k));
    }
    return 0;
}

static int alltoall_body(struct tcp_group *g, int me)
{
    unsigned char *memory = malloc((size_t)g->n * 2 * BLOCK_MAX);
    struct hvd__tcp *t = NULL;

    must(memory && tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    for (size_t trial = 0; trial < 14; trial++)
        must(alltoall_once(g, t, me, trial, memory) == 0);
    hvd__tcp_free(t);
    free(memory);
    return 0;
}

START_TEST(test_alltoall)
{
    struct tcp_group g = {.n = _i, .body = alltoall_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* A block is shorter than both members have agreed: its receiver fails. */
static int length_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    unsigned char in[8] = {0}, out[8] = {0};
    struct hvd__tcp_block send[2] = {{out, 8}, {out, 8}};
    struct hvd__tcp_block recv[2] = {{in, 8}, {in, 8}};
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, &err) == 0);
    if (me == 1)
        send[0].len = 7;
    hvd__tcp_alltoallv(t, send, NULL, recv, 1);
    if (me == 0) {
        must(tcp_group_finish(t, &err) == -HVD_EPROTO);
        must(strcmp(err.text,
                    "rank 101 on host h1: its message is out of step") == 0);
    } else {
        must(tcp_group_finish(t, &err) == 1);
    }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_known_length)
{
    struct tcp_group g = {.n = 2, .body = length_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Broadcast ------------------------------------------------------- */

static int broadcast_body(struct tcp_group *g, int me)
{
    static const enum hvd__tcp_algorithm as[] = {HVD__TCP_TREE, HVD__TCP_CHAIN,
                                                 HVD__TCP_AUTO};
    static const size_t bytes[] = {0, 1, 4096, 65537, 2000000};
    struct hvd__tcp *t = NULL;

    must(tcp_group_open(g, me, OPEN_MS, &t, NULL) == 0);
    for (int root = 0; root < g->n; root++)
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 5; b++) {
                for (size_t i = 0; i < bytes[b]; i++)
                    buf[i] = me == root ? mark(root + a, i) : 0;
                dawdle(me, (size_t)(root + b));
                hvd__tcp_broadcast(t, buf, bytes[b], root, as[a]);
                must(tcp_group_finish(t, NULL) == 1);
                for (size_t i = 0; i < bytes[b]; i++)
                    must(buf[i] == mark(root + a, i));
            }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_broadcast)
{
    struct tcp_group g = {.n = _i, .body = broadcast_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static Suite *tcp_collectives_suite(void)
{
    Suite *s = suite_create("tcp_collectives");
    TCase *t = tcase_create("tcp_collectives");

    tcase_set_timeout(t, 100);
    tcase_add_loop_test(t, test_allreduce, 1, MEMBERS_MAX + 1);
    tcase_add_loop_test(t, test_same_bits, 2, MEMBERS_MAX + 1);
    tcase_add_loop_test(t, test_own_elements, 1, MEMBERS_MAX + 1);
    tcase_add_loop_test(t, test_ring, 1, MEMBERS_MAX + 1);
    tcase_add_test(t, test_known_length);
    tcase_add_loop_test(t, test_alltoall, 1, MEMBERS_MAX + 1);
    tcase_add_loop_test(t, test_broadcast, 1, MEMBERS_MAX + 1);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_collectives_suite());
}
