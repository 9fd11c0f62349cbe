/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hierarchical plane by itself, over every shape of group: every
 * collective, operations in parts, ragged ones, several rounds, ranks that
 * propose different operations, and waiting without an operation.
 */
#include "tests/unit/hier_world.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const places[] = {"ab",   "aabb",    "abbb",  "aaabbc",
                                     "abcd", "abcabca", "aaaaab"};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static int run(const char *place,
               int (*body)(struct hier_world *, struct hvd__plane *, int))
{
    struct hier_world w = {.place = place, .body = body};

    return hier_world_run(&w);
}

static void reduces(struct hvd__op *op, enum hvd_op how)
{
    op->op = how;
    op->reduce = hvd__reduce_get(op->dtype, how);
}

/* ---- Allreduce ----------------------------------------------------------- */

static int reduce_direct(struct hvd__plane *p, int n, int rank, size_t count,
                         int in_place)
{
    float *send = malloc((count + 1) * 4), *recv = malloc((count + 1) * 4);
    struct hb_error err;
    struct hvd__op op =
        hier_world_op(HVD__ALLREDUCE, HVD_FLOAT32, count + 7, &err);

    must(send && recv);
    reduces(&op, HVD_SUM);
    op.args = (struct hvd__reduce_args){2.0, 0.25, 1, 0};
    values_fill(HVD_FLOAT32, HVD_SUM, n, rank, in_place ? recv : send, count);
    op.sendbuf = in_place ? recv : send;
    op.recvbuf = recv;
    op.count = count;
    must(plane_do(p, &op) == 1);
    must(values_check(HVD_FLOAT32, HVD_SUM, n, 0.5, recv, count) == count);
    must(op.trace.algorithm);
    free(send);
    free(recv);
    return 0;
}

static int direct_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    static const size_t counts[] = {0, 1, 7, 1000, 20011, UNIT_LARGE(700001)};

    for (int i = 0; i < 6; i++)
        for (int in_place = 0; in_place < 2; in_place++)
            must(reduce_direct(p, w->size, rank, counts[i], in_place) == 0);
    return 0;
}

START_TEST(test_allreduce)
{
    ck_assert_int_eq(run(places[_i], direct_body), 0);
}
END_TEST

enum { PARTS = 9 };

/* Reduces the parts of a float32 sum, in the form in which they travel. */
static int reduce_parts(struct hvd__plane *p, int n, int rank, size_t each,
                        enum hvd_dtype wire)
{
    struct hvd__part parts[PARTS];
    float *bufs[PARTS];
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__ALLREDUCE, wire, each, &err);
    size_t first = 0;

    reduces(&op, HVD_SUM);
    op.part_dtype = HVD_FLOAT32;
    for (size_t k = 0; k < PARTS; k++) {
        size_t count = each + 13 * k;

        bufs[k] = malloc(count * 4);
        must(bufs[k]);
        values_fill(HVD_FLOAT32, HVD_SUM, n, rank, bufs[k], count);
        parts[k] = (struct hvd__part){bufs[k], bufs[k], first, count, NULL};
        first += count;
    }
    op.parts = parts;
    op.nparts = PARTS;
    op.count = first;
    op.entries = PARTS;
    must(plane_do(p, &op) == 1);
    for (int k = 0; k < PARTS; k++) {
        must(values_check(HVD_FLOAT32, HVD_SUM, n, 1.0, bufs[k],
                          parts[k].count) == parts[k].count);
        free(bufs[k]);
    }
    return 0;
}

/* The largest operation needs more than one round. */
static int parts_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    static const size_t each[] = {1, 100, 5003, 300007};

    for (int i = 0; i < 4; i++) {
        must(reduce_parts(p, w->size, rank, each[i], HVD_FLOAT32) == 0);
        must(reduce_parts(p, w->size, rank, each[i], HVD_FLOAT16) == 0);
    }
    return 0;
}

START_TEST(test_parts)
{
    ck_assert_int_eq(run(places[_i], parts_body), 0);
}
END_TEST

/* ---- Reducescatter ------------------------------------------------------- */

static int scatter_rows(struct hvd__plane *p, int n, int rank, size_t rows,
                        size_t row_elems)
{
    size_t count = rows * row_elems;
    int32_t *send = malloc((count + 1) * 4), *recv, *want;
    struct hb_error err;
    struct hvd__op op =
        hier_world_op(HVD__REDUCESCATTER, HVD_INT32, count + 1, &err);
    struct hvd__share s;

    reduces(&op, HVD_SUM);
    op.args.divisor = n;
    op.row_elems = row_elems;
    op.count = count;
    s = hvd__op_share(&op, rank, n);
    recv = malloc((s.count + 1) * 4);
    want = malloc((s.count + 1) * 4);
    must(send && recv && want);
    for (size_t i = 0; i < count; i++)
        send[i] = (int32_t)(i * 3) + rank;
    for (size_t i = 0; i < s.count; i++)
        want[i] = (n * (int32_t)((s.first + i) * 3) + n * (n - 1) / 2) / n;
    want[s.count] = recv[s.count] = 4711;
    op.sendbuf = send;
    op.recvbuf = recv;
    must(plane_do(p, &op) == 1);
    must(memcmp(recv, want, (s.count + 1) * 4) == 0);
    must(op.trace.algorithm);
    free(send);
    free(recv);
    free(want);
    return 0;
}

static int rows_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    must(scatter_rows(p, w->size, rank, 0, 3) == 0);
    must(scatter_rows(p, w->size, rank, 3, 5) == 0);
    must(scatter_rows(p, w->size, rank, 1, UNIT_LARGE(200003)) == 0);
    must(scatter_rows(p, w->size, rank, 1009, 77) == 0);
    return scatter_rows(p, w->size, rank, 30011, 101);
}

START_TEST(test_reducescatter)
{
    ck_assert_int_eq(run(places[_i], rows_body), 0);
}
END_TEST

/* ---- Alltoall ------------------------------------------------------------ */

static size_t split(int from, int to, size_t scale)
{
    return (size_t)((from * 5 + to * 3) % 7) * scale;
}

static uint16_t element(int from, int to, size_t i)
{
    return (uint16_t)((size_t)from * 1009 + (size_t)to * 31 + i);
}

static uint16_t *make_splits(const struct hvd__op *op, int n, int rank)
{
    uint16_t *send = malloc((op->count + 1) * 2), *at = send;

    for (int r = 0; send && r < n; r++)
        for (size_t i = 0; i < op->sendcounts[r]; i++)
            *at++ = element(rank, r, i);
    return send;
}

/* room: 0 asks for counts only; 1 fits; more: room - 1 elements too few. */
static int trade(struct hvd__plane *p, int n, int rank, size_t scale, int room)
{
    size_t counts[HIER_WORLD_MAX], got[HIER_WORLD_MAX], sum = 0;
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__ALLTOALL, HVD_UINT16, scale, &err);
    uint16_t *send, *recv, *at;

    for (int r = 0; r < n; r++) {
        counts[r] = split(rank, r, scale);
        op.count += counts[r];
        sum += split(r, rank, scale);
    }
    op.sendcounts = counts;
    op.recvcounts = got;
    send = make_splits(&op, n, rank);
    recv = calloc(sum + 1, 2);
    must(send && recv);
    op.sendbuf = send;
    op.recvbuf = room ? recv : NULL;
    op.recvcap = room ? sum - (size_t)(room - 1) : 0;
    must(plane_do(p, &op) == (room < 2 || !sum ? 1 : -HVD_EINVAL));
    at = recv;
    for (int r = 0; r < n; r++) {
        must(got[r] == split(r, rank, scale));
        for (size_t i = 0; i < got[r]; i++, at++)
            must(*at == (room == 1 ? element(r, rank, i) : 0));
    }
    must(*at == 0);
    free(send);
    free(recv);
    return 0;
}

static int alltoall_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    static const size_t scales[] = {0, 1, 100, 3001, 40009, UNIT_LARGE(900001)};

    for (int i = 0; i < 6; i++)
        must(trade(p, w->size, rank, scales[i], 1) == 0);
    /* Ranks without room, or that only ask, do not disturb the others. */
    for (int i = 1; i < 5; i++)
        must(trade(p, w->size, rank, scales[i], rank % 3) == 0);
    return trade(p, w->size, rank, 10, 1);
}

START_TEST(test_alltoall)
{
    ck_assert_int_eq(run(places[_i], alltoall_body), 0);
}
END_TEST

/* With many hosts some lanes carry more than others.  Rounded up to the longest
 * lane, they hold more than one share of each rank. */
static int uneven_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    must(rows_body(w, p, rank) == 0);
    must(trade(p, w->size, rank, 3001, 1) == 0);
    return trade(p, w->size, rank, 40009, 1);
}

START_TEST(test_uneven_lanes)
{
    ck_assert_int_eq(run("abcdeabcdeabcd", uneven_body), 0);
}
END_TEST

/* ---- Broadcast, allgather, barrier --------------------------------------- */

static int copy_out(struct hvd__plane *p, int root, int rank, size_t count)
{
    int32_t *buf = malloc((count + 1) * 4);
    struct hb_error err;
    struct hvd__op op =
        hier_world_op(HVD__BROADCAST, HVD_INT32, count + 5, &err);

    must(buf);
    for (size_t i = 0; i < count; i++)
        buf[i] = rank == root ? (int32_t)i * root : -1;
    op.root = root;
    op.sendbuf = op.recvbuf = buf;
    op.count = count;
    must(plane_do(p, &op) == 1);
    for (size_t i = 0; i < count; i++)
        must(buf[i] == (int32_t)i * root);
    free(buf);
    return 0;
}

static int gather(struct hvd__plane *p, int n, int rank, size_t scale)
{
    size_t got[HIER_WORLD_MAX], sum = 0;
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__ALLGATHER, HVD_UINT16, scale, &err);
    uint16_t *recv, *at;

    for (int r = 0; r < n; r++)
        sum += split(r, 0, scale);
    recv = malloc((sum + 1) * 2);
    must(recv);
    at = recv;
    for (size_t i = 0; i < split(rank, 0, scale); i++)
        recv[i] = element(rank, 0, i);
    op.sendbuf = op.recvbuf = recv;
    op.count = split(rank, 0, scale);
    op.recvcap = sum;
    op.recvcounts = got;
    must(plane_do(p, &op) == 1);
    for (int r = 0; r < n; r++) {
        must(got[r] == split(r, 0, scale));
        for (size_t i = 0; i < got[r]; i++)
            must(*at++ == element(r, 0, i));
    }
    free(recv);
    return 0;
}

static int barrier(struct hvd__plane *p, uint64_t signature)
{
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__BARRIER, HVD_UINT8, signature, &err);

    return plane_do(p, &op);
}

static int others_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    static const size_t counts[] = {0, 1, 4000, UNIT_LARGE(300007)};

    for (int i = 0; i < 4; i++) {
        for (int root = 0; root < w->size; root += 2)
            must(copy_out(p, root, rank, counts[i]) == 0);
        must(gather(p, w->size, rank, counts[i]) == 0);
        must(barrier(p, 3) == 1);
    }
    return 0;
}

START_TEST(test_others)
{
    ck_assert_int_eq(run(places[_i], others_body), 0);
}
END_TEST

/* A kind that has no list of steps is refused. */
static int kinds_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    struct hvd__op op;

    (void)w;
    (void)rank;
    hvd__op_init(&op);
    for (op.kind = HVD__ALLREDUCE; op.kind <= HVD__JOIN; op.kind++)
        must(p->ops->supports(p, &op));
    for (; op.kind < HVD__LANE_SCATTER + 3; op.kind++)
        must(!p->ops->supports(p, &op));
    return 0;
}

START_TEST(test_kinds)
{
    ck_assert_int_eq(run("ab", kinds_body), 0);
}
END_TEST

/* ---- Proposals ----------------------------------------------------------- */

/* All learn the smallest number of fused operations, whichever rank has it. */
static int cut_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    for (int odd = 0; odd < w->size; odd++) {
        float buf[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
        struct hvd__part part = {buf, buf, 0, 9, NULL};
        struct hb_error err;
        struct hvd__op op =
            hier_world_op(HVD__ALLREDUCE, HVD_FLOAT32, 100, &err);

        reduces(&op, HVD_SUM);
        op.parts = &part;
        op.nparts = 1;
        op.count = rank == odd ? 3 : 9;
        op.signature = rank == odd ? 103 : 109;
        op.entries = rank == odd ? 3 : 9;
        must(plane_do(p, &op) == HVD__CUT);
        must(op.agreed_entries == 3);
        for (int i = 0; i < 9; i++)
            must(buf[i] == 1);
        must(barrier(p, 5) == 1);
    }
    return 0;
}

/* Proposes an operation of any kind with a size that suits it. */
static int propose(struct hvd__plane *p, int n, int rank, int kind,
                   uint64_t signature, unsigned char *buf)
{
    size_t counts[HIER_WORLD_MAX];
    struct hb_error err;
    struct hvd__op op =
        hier_world_op((enum hvd__kind)kind, HVD_UINT8, signature, &err);

    for (int r = 0; r < n; r++)
        counts[r] = (size_t)1000 * (size_t)(rank + 1);
    reduces(&op, HVD_SUM);
    op.sendbuf = buf;
    op.recvbuf = buf + 200000;
    op.count = 100000;
    op.recvcap = 100000;
    op.sendcounts = counts;
    if (kind == HVD__ALLTOALL)
        op.count = (size_t)n * counts[0];
    op.entries = 2;
    return plane_do(p, &op);
}

static int mismatch_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    static const int kinds[] = {HVD__ALLREDUCE, HVD__BROADCAST,
                                HVD__ALLGATHER, HVD__BARRIER,
                                HVD__ALLTOALL,  HVD__REDUCESCATTER};
    unsigned char *buf = calloc(1, 400000);

    must(buf);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            for (int odd = 0; a != b && odd < w->size; odd += 3) {
                int kind = kinds[rank == odd ? b : a];

                must(propose(p, w->size, rank, kind, (uint64_t)kind + 50,
                             buf) == -HVD_EMISMATCH);
                must(barrier(p, 8) == 1);
            }
    for (int i = 0; i < 400000; i++)
        must(buf[i] == 0);
    free(buf);
    return 0;
}

START_TEST(test_cut)
{
    ck_assert_int_eq(run(places[_i], cut_body), 0);
}
END_TEST

START_TEST(test_mismatch)
{
    ck_assert_int_eq(run(places[_i], mismatch_body), 0);
}
END_TEST

/* ---- Waiting for anything ------------------------------------------------ */

/* All hosts but one wait for some rank to begin, and fall asleep. */
static int parked_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    for (int round = 0; round < 2 * w->map.hosts; round++) {
        int host = round % w->map.hosts, rc = 0;
        int others = w->size - hvd__map_local_size(&w->map, host);
        int parks = (int)w->map.host_of[rank] != host;
        struct hb_error err = HB_ERROR_INIT;

        atomic_fetch_add(&w->flags[round], parks);
        while (!parks && atomic_load(&w->flags[round]) < others)
            sched_yield();
        while (parks && rc == 0) {
            rc = p->ops->began(p, &err);
            if (rc == 0)
                p->ops->pause(p, 0);
        }
        must(rc >= 0);
        must(barrier(p, (uint64_t)round) == 1);
        must(reduce_direct(p, w->size, rank, 30000, 1) == 0);
    }
    return 0;
}

START_TEST(test_parked)
{
    ck_assert_int_eq(run(places[_i], parked_body), 0);
}
END_TEST

/* ---- Who was waited for -------------------------------------------------- */

static int late_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    int late = w->size - 1;
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__BARRIER, HVD_UINT8, 9, &err);
    int rc = 0, waits = 0;

    /* The last rank begins once all others wait for it. */
    if (rank == late)
        while (atomic_load(&w->flags[0]) < late)
            sched_yield();
    hvd__op_time(&op);
    must(p->ops->start(p, &op) == 0);
    /* Let all others begin first, so that none waits for one of them. */
    atomic_fetch_add(&w->flags[1], rank != late);
    while (rank != late && atomic_load(&w->flags[1]) < late)
        sched_yield();
    for (int turns = 0; rc == 0; turns++) {
        /* Rank 0 listens to the other host: it counts as waiting when the
         * others have done what they can. */
        int ready = rank > 0 || atomic_load(&w->flags[0]) == late - 1;

        rc = p->ops->progress(p, &op);
        if (turns > 0 && ready && !waits)
            waits = atomic_fetch_add(&w->flags[0], 1) >= 0;
    }
    must(rc == 1);
    must(op.trace.agreed_ns > HVD__OP_TIMED);
    must(rank == late ? 1 : op.trace.late_rank == late);
    return 0;
}

/* The late rank is the only one on its host. */
START_TEST(test_late)
{
    static const char *const lates[] = {"ab", "aaaaab"};

    ck_assert_int_eq(run(lates[_i], late_body), 0);
}
END_TEST

/* ---- Messages that do not belong here ------------------------------------ */

/* Waits until n ranks have called it.  Returns 0, or 1 if they have not within
 * 5 s, as some wait in an operation. */
static int all_return(struct hier_world *w, int n)
{
    atomic_fetch_add(&w->flags[0], 1);
    for (int i = 0; i < 500 && atomic_load(&w->flags[0]) < n; i++)
        usleep(10000);
    must(atomic_load(&w->flags[0]) == n);
    return 0;
}

/* A rank of another host has another length for the same operation: all local
 * ranks fail, and none waits for the leader to leave. */
static int odd_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    float in[20] = {0}, out[20];
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__ALLREDUCE, HVD_FLOAT32, 7, &err);
    int rc;

    reduces(&op, HVD_SUM);
    op.sendbuf = in;
    op.recvbuf = out;
    op.count = rank == 2 ? 20 : 10;
    rc = plane_do(p, &op);
    must(rc == (rank == 1 ? -HVD_EPEER : -HVD_EPROTO) || rank == 2);
    must(err.rank == 2 || rank == 2);
    return all_return(w, 3);
}

START_TEST(test_odd)
{
    ck_assert_int_eq(run("aab", odd_body), 0);
}
END_TEST

/* Counts larger than memory, or whose sum overflows 64 bits, are refused before
 * any buffer is touched. */
static int huge_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    int kind = *(const int *)w->arg;
    unsigned char buf[400];
    size_t own = rank ? SIZE_MAX - 99 : 200;
    size_t got[2], split[2] = {own, 0};
    struct hb_error err;
    struct hvd__op op = hier_world_op(kind ? HVD__ALLTOALL : HVD__ALLGATHER,
                                      HVD_UINT8, 9, &err);

    memset(buf, rank + 1, sizeof(buf));
    op.sendbuf = buf + 200;
    op.recvbuf = buf;
    op.count = own;
    op.sendcounts = split;
    op.recvcap = 100;
    op.recvcounts = got;
    must(plane_do(p, &op) == -HVD_EPROTO);
    must(strstr(err.text, "makes no sense"));
    for (size_t i = 0; i < sizeof(buf); i++)
        must(buf[i] == rank + 1);
    return 0;
}

START_TEST(test_huge)
{
    struct hier_world w = {.place = "ab", .body = huge_body, .arg = &_i};

    ck_assert_int_eq(hier_world_run(&w), 0);
}
END_TEST

/* Each count would fit, but not their sum at rank 0: the other ranks fail too
 * and do not wait for rank 0 to leave. */
static int nonsense_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    unsigned char buf[8];
    size_t split[3] = {PTRDIFF_MAX, 0, 0};
    struct hb_error err;
    struct hvd__op op = hier_world_op(HVD__ALLTOALL, HVD_UINT8, 9, &err);

    (void)rank;
    op.sendbuf = op.recvbuf = buf;
    op.sendcounts = split;
    op.count = PTRDIFF_MAX;
    must(plane_do(p, &op) == -HVD_EPROTO);
    must(strstr(err.text, "makes no sense"));
    return all_return(w, 3);
}

START_TEST(test_nonsense)
{
    ck_assert_int_eq(run("aab", nonsense_body), 0);
}
END_TEST

/* ---- Leaving ------------------------------------------------------------- */

/* A rank leaves between operations: the others fail, whether they wait inside
 * an operation or for one to begin. */
static int leave_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    struct hb_error err = HB_ERROR_INIT;
    int gone = w->size - 1, rc = 0;

    must(barrier(p, 1) == 1);
    if (rank == gone)
        return 0;
    if (rank % 2)
        while ((rc = p->ops->began(p, &err)) == 0)
            p->ops->pause(p, 0);
    if (rc >= 0)
        rc = barrier(p, 2);
    must(rc == -HVD_ESHUTDOWN || rc == -HVD_EPEER);
    must(barrier(p, 2) == rc);
    return 0;
}

START_TEST(test_leave)
{
    ck_assert_int_eq(run(places[_i], leave_body), 0);
}
END_TEST

/* A rank that has announced its leaving cannot start an operation.  exit() may
 * run beside a thread that begins one, and the messages would be mixed. */
static int left_body(struct hier_world *w, struct hvd__plane *p, int rank)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__op op = hier_world_op(HVD__BARRIER, HVD_UINT8, 2, &err);

    (void)w;
    must(barrier(p, 1) == 1);
    if (rank == 0) {
        p->ops->leave(p);
        must(p->ops->start(p, &op) == -HVD_ESHUTDOWN);
        must(err.status == -HVD_ESHUTDOWN);
    } else {
        must(plane_do(p, &op) == -HVD_ESHUTDOWN);
        must(err.rank == 0);
    }
    return 0;
}

START_TEST(test_left)
{
    ck_assert_int_eq(run("ab", left_body), 0);
}
END_TEST

static Suite *hier_suite(void)
{
    Suite *s = suite_create("hier");
    TCase *t = tcase_create("hier"), *parked = tcase_create("parked");

    tcase_set_tags(t, UNIT_ONE_THREAD);
    tcase_set_timeout(t, 120);
    tcase_set_timeout(parked, 120);
    tcase_add_loop_test(t, test_allreduce, 0, PLACES);
    tcase_add_loop_test(t, test_parts, 0, PLACES);
    tcase_add_loop_test(t, test_reducescatter, 0, PLACES);
    tcase_add_test(t, test_uneven_lanes);
    tcase_add_loop_test(t, test_alltoall, 0, PLACES);
    tcase_add_loop_test(t, test_others, 0, PLACES);
    tcase_add_test(t, test_kinds);
    tcase_add_loop_test(t, test_cut, 0, PLACES);
    tcase_add_loop_test(t, test_mismatch, 0, PLACES);
    tcase_add_loop_test(parked, test_parked, 0, PLACES);
    tcase_add_loop_test(parked, test_late, 0, 2);
    tcase_add_loop_test(parked, test_leave, 0, PLACES);
    tcase_add_test(parked, test_left);
    tcase_add_test(t, test_odd);
    tcase_add_loop_test(t, test_huge, 0, 2);
    tcase_add_test(t, test_nonsense);
    suite_add_tcase(s, t);
    suite_add_tcase(s, parked);
    return s;
}

int main(void)
{
    return unit_run(hier_suite());
}
