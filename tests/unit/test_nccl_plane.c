/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL plug-in's plane in states that a job on one host does not reach
 * through libhvd: layers across hosts, ranks without room, joined ranks, ranks
 * that disagree, several streams, and more launches in flight than can be told
 * apart.  Most tests run with one stream and with three.
 */
#include "lib/base/sys/clock.h"
#include "tests/unit/nccl_world.h"
#include "tests/unit/unit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Layers -------------------------------------------------------------- */

static int in_layers(const char *algorithm)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX,
                                      HVD_PRODUCT};
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT16, HVD_INT32,
                                            HVD_INT64};
    static const size_t counts[] = {1, 2, 3, 64, COUNT};

    for (size_t d = 0; d < 4; d++)
        for (size_t i = 0; i < 5; i++) {
            const char *was =
                nccl_reduce(dtypes[d], ops[i], counts[i], i == 4 ? 1 : 1.25);

            if (!was)
                fprintf(stderr, "rank %d: %s\n", nccl_self.me,
                        nccl_self.err.text);
            must(was && strcmp(was, algorithm) == 0);
        }
    return 0;
}

static int run_torus(struct shm_group *g, int me)
{
    return nccl_begin(g, me) || in_layers("nccl.allreduce.torus") || nccl_end();
}

static int run_hierarchical(struct shm_group *g, int me)
{
    return nccl_begin(g, me) || in_layers("nccl.allreduce.hierarchical") ||
           nccl_end();
}

static int run_flat(struct shm_group *g, int me)
{
    return nccl_begin(g, me) || in_layers("nccl.allreduce") || nccl_end();
}

/* ---- Moves --------------------------------------------------------------- */

/* Returns a rank's elements in an allgather; ragged_before: their offset. */
static size_t ragged(int rank)
{
    return (size_t)(7 * rank + 3);
}

static size_t ragged_before(int rank)
{
    size_t sum = 0;

    for (int r = 0; r < rank; r++)
        sum += ragged(r);
    return sum;
}

static int *numbers(int rank, size_t count)
{
    int *v = malloc(count * sizeof(*v));

    for (size_t i = 0; i < count; i++)
        v[i] = 1000 * rank + (int)i;
    return v;
}

static int gathered_well(const void *at)
{
    size_t total = ragged_before(nccl_self.n);
    int *all = malloc(total * sizeof(*all)), good = 1;

    gpu_read(all, at, total * sizeof(*all));
    for (int r = 0; r < nccl_self.n; r++)
        for (size_t i = 0; i < ragged(r); i++)
            good &= all[ragged_before(r) + i] == 1000 * r + (int)i;
    free(all);
    return good;
}

/* skip: offset of sendbuf in recvbuf; -1: sendbuf is apart. */
static int gather(int skip, size_t room, int ordered)
{
    struct hvd__op o = nccl_op(HVD__ALLGATHER, HVD_INT32, 0);
    size_t own = ragged(nccl_self.me), counts[RANKS];
    int *mine = numbers(nccl_self.me, own);
    int *at = gpu_alloc(ragged_before(nccl_self.n) * sizeof(int) + 400);
    int *from = skip < 0 ? gpu_alloc(own * sizeof(int)) : at + skip, rc;

    gpu_write(from, mine, own * sizeof(int));
    free(mine);
    o.sendbuf = from;
    o.recvbuf = at;
    o.count = own;
    o.recvcap = room;
    o.recvcounts = counts;
    o.device.ordered = ordered;
    rc = nccl_carry_out(&o, 0);
    if (rc == 1 && ordered)
        must(o.device.launch && nccl_wait(o.device.launch, 0) == 1);
    if (rc == -HVD_EINVAL)
        must(o.device.launch == 0);
    for (int r = 0; r < nccl_self.n; r++)
        must(counts[r] == ragged(r));
    must(rc != 1 || gathered_well(at));
    if (skip < 0)
        gpu_free(from);
    gpu_free(at);
    return rc;
}

static int run_gather(struct shm_group *g, int me)
{
    size_t total;

    if (nccl_begin(g, me))
        return 1;
    total = ragged_before(nccl_self.n);
    must(gather(-1, total, 0) == 1);
    must(gather((int)ragged_before(me), total, 0) == 1); /* in place */
    must(gather(2, total, 0) == 1);
    must(gather((int)total - 3, total, 1) == 1);
    for (int ordered = 0; ordered < 2; ordered++) {
        int is_short = me == 1;

        must(gather(-1, is_short ? total - 1 : total, ordered) ==
             (is_short ? -HVD_EINVAL : 1));
        must(!is_short ||
             strstr(nccl_self.err.text, "room for 53 elements and 54"));
    }
    must(nccl_sum_is("nccl.allreduce"));
    return nccl_end();
}

/* Rank r sends r + to + 1 elements to rank `to`; the last rank may have too
 * little room. */
static int exchange(int last_has_room)
{
    struct hvd__op o = nccl_op(HVD__ALLTOALL, HVD_FLOAT64, 0);
    size_t splits[RANKS], counts[RANKS], total = 0, out = 0, i = 0;
    double *values, *at;
    int lacks = !last_has_room && nccl_self.me == nccl_self.n - 1, rc;

    for (int r = 0; r < nccl_self.n; r++) {
        splits[r] = (size_t)(nccl_self.me + r + 1);
        total += splits[r]; /* the counts are symmetric */
    }
    at = gpu_alloc(2 * total * sizeof(double));
    values = malloc(total * sizeof(double));
    for (int r = 0; r < nccl_self.n; r++)
        for (size_t k = 0; k < splits[r]; k++)
            values[out++] = 100.0 * nccl_self.me + r;
    gpu_write(at, values, total * sizeof(double));
    o.sendbuf = at;
    o.recvbuf = at + total;
    o.count = total;
    o.sendcounts = splits;
    o.recvcounts = counts;
    o.recvcap = lacks ? total - 1 : total;
    rc = nccl_carry_out(&o, 0);
    must(rc == (lacks ? -HVD_EINVAL : 1));
    gpu_read(values, at + total, total * sizeof(double));
    for (int r = 0; r < nccl_self.n; r++) {
        must(counts[r] == splits[r]);
        for (size_t k = 0; k < splits[r]; k++, i++)
            must(lacks || values[i] == 100.0 * r + nccl_self.me);
    }
    free(values);
    gpu_free(at);
    return 0;
}

static int run_exchange(struct shm_group *g, int me)
{
    return nccl_begin(g, me) || exchange(1) || exchange(0) || exchange(1) ||
           nccl_end();
}

/* ---- Ranks that have joined ---------------------------------------------- */

/* Carries out `o` as the last rank, which has joined: zeros from host memory,
 * in one part. */
static int stand_in(struct hvd__op *o, size_t bytes)
{
    unsigned char *host = calloc(2, bytes);
    struct hvd__part part = {host, host, 0, o->count, NULL};
    int rc;

    o->sendbuf = host;
    o->recvbuf = host + bytes;
    if (o->parts) {
        o->parts = &part;
        o->nparts = 1;
        o->sendbuf = o->recvbuf = NULL;
    }
    rc = nccl_carry_out(o, 1);
    free(host);
    return rc;
}

static int joined(enum hvd__kind kind, enum hvd_dtype dtype, int in_parts)
{
    struct hvd__op o = nccl_op(kind, dtype, HVD_SUM);
    struct values v = nccl_values(dtype, HVD_SUM);
    size_t size = hvd_dtype_size(dtype);
    unsigned char *at, *out = gpu_alloc(COUNT * size);
    struct hvd__share own = {0, COUNT};
    struct hvd__part parts[2];

    v.n--;
    at = nccl_filled(&v, COUNT);
    parts[0] = (struct hvd__part){at, out, 0, 400, NULL};
    parts[1] = (struct hvd__part){at + 400 * size, out + 400 * size, 400,
                                  COUNT - 400, NULL};
    o.count = COUNT;
    o.sendbuf = at;
    o.recvbuf = out;
    if (in_parts) {
        o.parts = parts;
        o.nparts = 2;
    }
    if (kind == HVD__REDUCESCATTER)
        own = hvd__op_share(&o, nccl_self.me, nccl_self.n);
    if (nccl_self.me == nccl_self.n - 1) {
        must(stand_in(&o, COUNT * size) == 1);
    } else {
        must(nccl_carry_out(&o, 0) == 1);
        must(nccl_is_right(&v, out, own.first, own.count));
    }
    gpu_free(out);
    gpu_free(at);
    return 0;
}

static int run_joined(struct shm_group *g, int me)
{
    return nccl_begin(g, me) || joined(HVD__ALLREDUCE, HVD_FLOAT32, 0) ||
           joined(HVD__ALLREDUCE, HVD_INT16, 0) ||
           joined(HVD__ALLREDUCE, HVD_INT32, 1) ||
           joined(HVD__ALLREDUCE, HVD_BOOL, 1) ||
           joined(HVD__REDUCESCATTER, HVD_INT64, 0) ||
           joined(HVD__REDUCESCATTER, HVD_UINT16, 0) || nccl_end();
}

/* ---- Ranks that do not agree --------------------------------------------- */

static int differ(uint64_t signature, uint64_t first, uint32_t entries,
                  struct hvd__op *out)
{
    struct hvd__op o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    void *at = gpu_alloc(4 * COUNT);
    int rc;

    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.signature = signature;
    o.first_signature = first;
    o.entries = entries;
    rc = nccl_carry_out(&o, 0);
    gpu_free(at);
    *out = o;
    return rc;
}

static int run_differ(struct shm_group *g, int me)
{
    struct hvd__op o, host;
    uint32_t one[1] = {1};

    if (nccl_begin(g, me))
        return 1;
    must(differ(50 + (uint64_t)me, 50 + (uint64_t)me, 1, &o) == -HVD_EMISMATCH);
    must(differ(50 + (uint64_t)me, 50, 2 + (uint32_t)me, &o) == HVD__CUT);
    must(o.agreed_entries == 2);
    must(nccl_sum_is("nccl.allreduce"));
    /* One rank's memory is host memory, as without this plug-in. */
    if (me > 0) {
        must(differ(60, 60, 1, &o) == -HVD_EMISMATCH);
    } else {
        host = nccl_op(HVD__ALLREDUCE, HVD_INT32, HVD_SUM);
        host.sendbuf = host.recvbuf = one;
        host.count = 1;
        host.flags = 0;
        host.signature = host.first_signature = 60;
        must(nccl_carry_out(&host, 1) == -HVD_EMISMATCH && one[0] == 1);
    }
    must(nccl_sum_is("nccl.allreduce"));
    return nccl_end();
}

/* ---- Many launches ------------------------------------------------------ */

static int is_over(uint64_t first, uint64_t last)
{
    return nccl_self.plane->ops->launches->test(nccl_self.plane, first, last,
                                                &nccl_self.err) == 1;
}

static int run_many(struct shm_group *g, int me)
{
    enum { MANY = 300 };
    struct hvd__op o;
    CUstream other;
    float *at, got = 1;

    if (nccl_begin(g, me))
        return 1;
    other = gpu_stream();
    at = gpu_alloc(sizeof(got));
    gpu_write(at, &got, sizeof(got));
    for (int i = 1; i <= MANY; i++) {
        o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_AVERAGE);
        o.sendbuf = o.recvbuf = at;
        o.count = 1;
        o.device.ordered = 1;
        must(nccl_carry_out(&o, 0) == 1 && o.device.launch == (uint64_t)i);
        /* The next one uses the same memory, perhaps on another stream. */
        must(nccl_order(o.device.launch, nccl_self.stream) == 0);
    }
    must(nccl_order(MANY, other) == 0);
    GPU(StreamSynchronize, other);
    must(nccl_wait(1, 0) == 1);
    must(nccl_wait(MANY / 2, 0) == 1);
    must(nccl_self.plane->ops->launches->wait(nccl_self.plane, 1, MANY, 0,
                                              &nccl_self.err) == 1);
    must(is_over(1, MANY));
    gpu_read(&got, at, sizeof(got));
    must(got == 1.0f);
    GPU(StreamDestroy, other);
    gpu_free(at);
    return nccl_end();
}

static _Atomic int may_end;

static void until_may_end(void *arg)
{
    (void)arg;
    while (!atomic_load(&may_end))
        sched_yield();
}

/* ---- Several streams ----------------------------------------------------- */

/* Returns whether a launch is over within 200 ms. */
static int ends_soon(uint64_t launch)
{
    return nccl_wait(launch, hb_now_ns() + UINT64_C(200000000)) == 1;
}

/* Launches a sum behind the work on `stream`: returns its number. */
static uint64_t launch_behind(CUstream stream, struct values *v, void **at)
{
    struct hvd__op o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    CUstream own = nccl_self.stream;
    int rc;

    *v = nccl_values(HVD_FLOAT32, HVD_SUM);
    *at = nccl_filled(v, COUNT);
    o.sendbuf = o.recvbuf = *at;
    o.count = COUNT;
    o.device.ordered = 1;
    nccl_self.stream = stream;
    rc = nccl_carry_out(&o, 0);
    nccl_self.stream = own;
    must(rc == 1 && o.device.launch);
    return o.device.launch;
}

/* Of three launches the first and the third wait for work of the caller that
 * does not end.  The second one ends if there are two streams, but not if it is
 * behind the first.  The third uses the first stream again. */
static int streams(struct shm_group *g, int me, int overlap)
{
    struct values v[3];
    uint64_t launch[3];
    CUstream busy;
    void *at[3];

    if (nccl_begin(g, me))
        return 1;
    busy = gpu_stream();
    must(nccl_sum_is("nccl.allreduce"));
    atomic_store(&may_end, 0);
    GPU(LaunchHostFunc, busy, until_may_end, NULL);
    for (int i = 0; i < 3; i++)
        launch[i] =
            launch_behind(i % 2 ? nccl_self.stream : busy, &v[i], &at[i]);
    must(ends_soon(launch[1]) == overlap);
    must(!ends_soon(launch[0]) && !ends_soon(launch[2]));
    must(!is_over(launch[0], launch[1])); /* as of a group of these */
    atomic_store(&may_end, 1);
    for (int i = 0; i < 3; i++) {
        must(nccl_wait(launch[i], 0) == 1);
        must(nccl_is_right(&v[i], at[i], 0, COUNT));
        gpu_free(at[i]);
    }
    GPU(StreamDestroy, busy);
    return nccl_end();
}

static int run_overlap(struct shm_group *g, int me)
{
    return streams(g, me, 1);
}

static int run_in_order(struct shm_group *g, int me)
{
    return streams(g, me, 0);
}

/* ---- Memory -------------------------------------------------------------- */

/* A sum that is scaled first needs memory of its own.  Getting and freeing it
 * must not wait for another stream of the device that never ends: its work may
 * wait for a peer, and the peer for this rank.  Without pools the memory is
 * freed when the sum's own stream is done. */
static int run_pools(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    struct hvd__op o;
    struct values v;
    CUstream other;
    void *in, *out;

    if (nccl_begin(g, me))
        return 1;
    other = gpu_stream();
    must(nccl_sum_is("nccl.allreduce"));
    if (!s->setting)
        GPU(LaunchHostFunc, other, until_may_end, NULL);
    o = nccl_op(HVD__REDUCESCATTER, HVD_INT32, HVD_SUM);
    v = nccl_values(HVD_INT32, HVD_SUM);
    v.pre = o.prescale = o.args.pre = 1.25;
    in = nccl_filled(&v, (size_t)g->n);
    out = gpu_alloc(sizeof(int32_t));
    o.sendbuf = in;
    o.recvbuf = out;
    o.count = (size_t)g->n;
    for (int i = 0; i < 5; i++) {
        o.signature = o.first_signature = 0;
        must(nccl_carry_out(&o, 0) == 1);
        must(nccl_is_right(&v, out, (size_t)me, 1));
    }
    atomic_store(&may_end, 1);
    GPU(StreamSynchronize, other);
    GPU(StreamDestroy, other);
    gpu_free(in);
    gpu_free(out);
    return nccl_end();
}

/* After abandoning an operation its buffers are the caller's again, whatever
 * the peers do. */
static int run_abandon(struct shm_group *g, int me)
{
    struct hvd__op o;
    void *at;
    int rc = 0;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    if (me > 0) {
        shm_group_meet(g);
        return nccl_end();
    }
    at = gpu_alloc(4 * COUNT);
    o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.signature = o.first_signature = 77;
    o.err = &nccl_self.err;
    must(nccl_self.plane->ops->start(nccl_self.plane, &o) == 0);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = nccl_self.plane->ops->progress(nccl_self.plane, &o);
    must(rc == 0);
    nccl_self.plane->ops->leave(nccl_self.plane);
    nccl_self.plane->ops->abandon(nccl_self.plane);
    gpu_free(at);
    shm_group_meet(g);
    return nccl_end();
}

/* ---- The suite ---------------------------------------------------------- */

/* Sets how many streams the ranks use, for one of the two runs of a test. */
static void use_streams(int run)
{
    setenv("HVD_NUM_NCCL_STREAMS", run ? "3" : "1", 1);
}

START_TEST(test_streams)
{
    struct nccl_scene s = {.n = 2, .odd = -1};

    unsetenv("HVD_NUM_NCCL_STREAMS");
    s.run = run_overlap;
    s.setting = "HVD_NUM_NCCL_STREAMS=2";
    ck_assert_int_eq(nccl_failures(s), 0);
    s.setting = "HOROVOD_NUM_NCCL_STREAMS=99";
    ck_assert_int_eq(nccl_failures(s), 0);
    s.run = run_in_order;
    s.setting = NULL;
    ck_assert_int_eq(nccl_failures(s), 0);
    s.setting = "HVD_NUM_NCCL_STREAMS=2";
    s.odd = 1; /* the other rank has one */
    ck_assert_int_eq(nccl_failures(s), 0);
    s.odd = -1;
    s.old = "libnccl-old.so.2"; /* cannot split communicators */
    ck_assert_int_eq(nccl_failures(s), 0);
}
END_TEST

START_TEST(test_layers)
{
    static const char *const libraries[] = {"libnccl.so.2", "libnccl-old.so.2"};

    use_streams(_i);
    for (int i = 0; i < 2; i++) {
        struct nccl_scene s = {
            .n = 4, .hosts = 2, .odd = -1, .old = libraries[i]};

        s.setting = "HVD_TORUS_ALLREDUCE=1";
        s.run = run_torus;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.setting = "HOROVOD_HIERARCHICAL_ALLREDUCE=1";
        s.run = run_hierarchical;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.run = run_flat;
        s.odd = 0; /* not all ranks want it */
        ck_assert_int_eq(nccl_failures(s), 0);
        s.odd = -1;
        s.n = 3;
        s.uneven = 1;
        ck_assert_int_eq(nccl_failures(s), 0);
    }
}
END_TEST

START_TEST(test_moves)
{
    use_streams(_i);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 4, .run = run_gather}), 0);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 3, .run = run_exchange}), 0);
}
END_TEST

START_TEST(test_joined)
{
    use_streams(_i);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 3, .run = run_joined}), 0);
}
END_TEST

START_TEST(test_differ)
{
    use_streams(_i);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 3, .run = run_differ}), 0);
}
END_TEST

START_TEST(test_pools)
{
    struct nccl_scene s = {.n = 2, .odd = -1, .run = run_pools};

    use_streams(_i);
    ck_assert_int_eq(nccl_failures(s), 0);
    s.setting = "FAKE_CUDA_POOLS=0";
    ck_assert_int_eq(nccl_failures(s), 0);
}
END_TEST

START_TEST(test_many)
{
    use_streams(_i);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 2, .run = run_many}), 0);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 1, .run = run_many}), 0);
    ck_assert_int_eq(
        nccl_failures((struct nccl_scene){.n = 2, .run = run_abandon}), 0);
}
END_TEST

static Suite *nccl_plane_suite(void)
{
    Suite *s = suite_create("nccl_plane");
    TCase *tc = tcase_create("nccl_plane");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, test_streams);
    tcase_add_loop_test(tc, test_layers, 0, 2);
    tcase_add_loop_test(tc, test_moves, 0, 2);
    tcase_add_loop_test(tc, test_joined, 0, 2);
    tcase_add_loop_test(tc, test_differ, 0, 2);
    tcase_add_loop_test(tc, test_pools, 0, 2);
    tcase_add_loop_test(tc, test_many, 0, 2);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return nccl_find_build() < 0 ? 1 : unit_run(nccl_plane_suite());
}
