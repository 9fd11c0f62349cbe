/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory plane driven directly: ranks that disagree, wait, leave or
 * die, and several planes in one segment.
 */
#include "tests/unit/shm_member.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Agreement ----------------------------------------------------------- */

/* Ranks start operations of different kinds and sizes: all get the mismatch, no
 * buffer is written, and later operations work. */
static int differ_once(struct shm_member *k, int alike, int equally_many)
{
    unsigned char buf[4096];
    struct hvd__op *op = shm_member_op(
        k, k->me % 2 ? HVD__ALLREDUCE : HVD__ALLGATHER, HVD_UINT8);
    size_t recvcounts[SHM_GROUP_MAX] = {0};
    int rc;

    memset(buf, SHM_GUARD, sizeof(buf));
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_UINT8, HVD_SUM);
    op->sendbuf = op->recvbuf = buf;
    op->count = 16u << k->me;
    op->recvcap = 0;
    op->recvcounts = recvcounts;
    op->entries = (uint32_t)(equally_many ? 5 : 10 - k->me);
    op->signature += (uint64_t)k->me << 32;
    if (!alike)
        op->first_signature = op->signature;
    rc = plane_do(k->plane, op);
    must(rc == (alike ? HVD__CUT : -HVD_EMISMATCH));
    must(!alike ||
         op->agreed_entries == (uint32_t)(equally_many ? 5 : 11 - k->n));
    for (size_t i = 0; i < sizeof(buf); i++)
        must(buf[i] == SHM_GUARD);
    must(recvcounts[0] == 0);
    return 0;
}

static int body_differ(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (int i = 0; i < 50; i++) {
        must(differ_once(&k, 0, i % 2) == 0);
        must(differ_once(&k, 1, 0) == 0);
        must(differ_once(&k, 1, 1) == 0);
        must(shm_do_allreduce(&k, HVD_FLOAT32, HVD_SUM, (size_t)i * 997, 0) ==
             0);
        must(differ_once(&k, i % 2, i % 3 == 0) == 0);
        must(shm_do_broadcast(&k, 200000, i % k.n) == 0);
    }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_differ)
{
    struct shm_group g = {
        .n = _i, .body = body_differ, .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* hvd__shm_start_as starts a barrier here that is agreed on as `what`. */
static int body_as(struct shm_group *g, int me)
{
    struct shm_member k;
    struct hvd__op what, *op;
    int rc;

    shm_member_open(&k, g, me);
    what = *shm_member_op(&k, HVD__ALLREDUCE, HVD_FLOAT32);
    what.entries = (uint32_t)(5 + me);
    what.signature = (uint64_t)me;
    op = shm_member_op(&k, HVD__BARRIER, HVD_UINT8);
    must(hvd__shm_start_as(k.plane, op, &what) == 0);
    while ((rc = k.plane->ops->progress(k.plane, op)) == 0)
        k.plane->ops->pause(k.plane, 0);
    must(rc == HVD__CUT && op->agreed_entries == 5);
    must(what.agreed_entries == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_as)
{
    struct shm_group g = {.n = 3, .body = body_as};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Between operations -------------------------------------------------- */

/* Waits as the engine does, without an operation of its own. */
static int wait_for_peer(struct shm_member *k)
{
    int rc;

    while ((rc = k->plane->ops->began(k->plane, &k->err)) == 0)
        k->plane->ops->pause(k->plane, 0);
    return rc;
}

static int body_began(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (int i = 0; i < 20; i++) {
        must(shm_do_barrier(&k) == 0);
        shm_group_meet(g);
        if (me == i % k.n) {
            if (i % 4 == 0)
                usleep(20000); /* the others likely sleep */
        } else {
            must(wait_for_peer(&k) == 1);
        }
    }
    must(shm_do_barrier(&k) == 0);
    shm_group_meet(g);
    must(k.plane->ops->began(k.plane, &k.err) == 0);
    k.plane->ops->interrupt(k.plane);
    k.plane->ops->pause(k.plane, 0);
    must(k.plane->ops->began(k.plane, &k.err) == 0);
    /* The first rank to leave ends the wait of the others. */
    shm_group_meet(g);
    if (me == 0)
        k.plane->ops->leave(k.plane);
    else
        must(wait_for_peer(&k) == -HVD_ESHUTDOWN && k.err.rank == 100);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_began)
{
    struct shm_group g = {.n = 3, .body = body_began};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Slots --------------------------------------------------------------- */

/* Two sets at a time, each in its slot, beside the world; then other sets in
 * the same slots. */
static int body_slots(struct shm_group *g, int me)
{
    static const int sets[2][2][2] = {{{0, 2}, {1, 3}}, {{0, 3}, {1, 2}}};
    struct shm_member world, own;

    shm_member_open(&world, g, me);
    for (int round = 0; round < 6; round++) {
        int pair = round % 2, which = 0, place = 0;

        for (int s = 0; s < 2; s++)
            for (int i = 0; i < 2; i++)
                if (sets[pair][s][i] == me) {
                    which = s;
                    place = i;
                }
        own = world;
        own.n = 2;
        own.me = place;
        own.plane = shm_group_set(g, 1 + (which + round) % 2, sets[pair][which],
                                  2, place);
        must(shm_do_barrier(&world) == 0);
        for (int i = 0; i < 20 + 10 * which; i++) {
            must(shm_do_allreduce(&own, HVD_INT32, HVD_SUM, (size_t)i * 300,
                                  0) == 0);
            must(shm_do_alltoall(&own, (size_t)i * 200) == 0);
        }
        must(shm_do_allreduce(&world, HVD_INT32, HVD_SUM, 20000, 0) == 0);
        own.plane->ops->free(own.plane);
        must(shm_do_barrier(&world) == 0);
    }
    shm_member_close(&world);
    return 0;
}

START_TEST(test_slots)
{
    struct shm_group g = {.n = 4, .body = body_slots};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* op->root is a number from group_ranks, not a local rank. */
static int body_group_ranks(struct shm_group *g, int me)
{
    static const int group_ranks[] = {3, 4, 9};
    static const uint32_t world_ranks[] = {30, 40, 90};
    const struct hvd__shm_config config = {
        .head = g->head,
        .local_rank = me,
        .local_size = 3,
        .world_ranks = world_ranks,
        .group_ranks = group_ranks,
        .host = "testhost",
        .cpus = 2,
    };
    struct shm_member k;

    shm_member_open(&k, g, me);
    k.plane->ops->free(k.plane);
    shm_group_meet(g);
    k.plane = hvd__shm_new(&config);
    must(k.plane != NULL);
    shm_group_meet(g);
    for (int i = 0; i < 3; i++) {
        struct hvd__op *op = shm_member_op(&k, HVD__BROADCAST, HVD_INT32);
        int value = me;

        op->root = group_ranks[i];
        op->sendbuf = op->recvbuf = &value;
        op->count = 1;
        hvd__op_time(op);
        must(shm_member_do(&k) == 0);
        must(value == i);
        must(op->trace.agreed_ns > HVD__OP_TIMED);
    }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_group_ranks)
{
    struct shm_group g = {.n = 3, .body = body_group_ranks};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Ranks that go ------------------------------------------------------- */

static int body_death(struct shm_group *g, int me)
{
    struct shm_member k;
    struct hvd__op *op;
    static float buf[1 << 20];

    shm_member_open(&k, g, me);
    must(shm_do_barrier(&k) == 0);
    op = shm_member_op(&k, HVD__ALLREDUCE, HVD_FLOAT32);
    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_FLOAT32, HVD_SUM);
    op->sendbuf = op->recvbuf = buf;
    op->count = 1 << 20;
    if (me == 1) {
        shm_member_die_at(&buf[1 << 19]);
        plane_do(k.plane, op);
        return 0; /* not reached */
    }
    must(plane_do(k.plane, op) == -HVD_EPEER);
    must(k.err.rank == 101 && strcmp(k.err.text, "it was killed") == 0);
    hb_error_clear(&k.err);
    must(k.plane->ops->start(k.plane, op) == -HVD_EPEER);
    must(k.plane->ops->began(k.plane, &k.err) == -HVD_EPEER);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_death)
{
    struct shm_group g = {.n = 3, .body = body_death};

    ck_assert_int_eq(shm_group_run(&g), 1);
    ck_assert(WIFSIGNALED(g.wait_status[1]));
}
END_TEST

/* An operation that a rank published before leaving completes; the next
 * fails. */
static int body_left(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    must(shm_do_allreduce(&k, HVD_INT64, HVD_SUM, 4, 0) == 0);
    if (me == 2) {
        k.plane->ops->leave(k.plane);
        k.plane->ops->leave(k.plane);
        shm_member_close(&k);
        return 0;
    }
    shm_member_op(&k, HVD__BARRIER, HVD_UINT8);
    must(plane_do(k.plane, &k.op) == -HVD_ESHUTDOWN);
    must(k.err.rank == 102 && strcmp(k.err.host, "testhost") == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_left)
{
    struct shm_group g = {.n = 3, .body = body_left};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* After a failed operation a rank may reuse its memory: a peer that still reads
 * there must not take that for data.  Rank 2 does its part and dies, rank 0
 * gives up, and rank 1 comes late. */
enum { LENT_ELEMS = 30000, DONE_2 = 0, DONE_0 };

static void prepare_lent(struct shm_member *k, struct hvd__op *op,
                         size_t *sendcounts)
{
    size_t n = (size_t)k->n;

    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_INT32, HVD_SUM);
    op->sendbuf = shm_member_get(k, n * LENT_ELEMS * 4, 1);
    op->recvbuf = shm_member_get(k, n * LENT_ELEMS * 4, 0);
    op->count = LENT_ELEMS;
    op->recvcap = n * LENT_ELEMS;
    for (int r = 0; r < k->n; r++)
        sendcounts[r] = LENT_ELEMS / n;
    op->sendcounts = sendcounts;
    op->lanes = k->n;
}

static void meet_flag(const struct shm_group *g, int flag)
{
    while (!atomic_load(&g->flags[flag]))
        usleep(1000);
}

static int body_lent(struct shm_group *g, int me)
{
    enum hvd__kind kind = *(const enum hvd__kind *)g->arg;
    size_t sendcounts[SHM_GROUP_MAX];
    struct shm_member k;
    struct hvd__op *op;

    shm_member_open(&k, g, me);
    k.sort = SHM_IN_ARENA;
    op = shm_member_op(&k, kind, HVD_INT32);
    prepare_lent(&k, op, sendcounts);
    must(k.plane->ops->start(k.plane, op) == 0);
    shm_group_meet(g);
    if (me == 2) {
        must(k.plane->ops->progress(k.plane, op) == 0 ||
             kind == HVD__BROADCAST);
        atomic_store(&g->flags[DONE_2], 1);
        raise(SIGKILL);
    }
    if (me == 1)
        meet_flag(g, DONE_0);
    meet_flag(g, DONE_2);
    while (k.plane->ops->progress(k.plane, op) == 0)
        k.plane->ops->pause(k.plane, 0);
    must(k.err.status == -HVD_EPEER && k.err.rank == 102);
    atomic_store(&g->flags[DONE_0], 1);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_lent)
{
    static const enum hvd__kind kinds[] = {
        HVD__ALLREDUCE, HVD__BROADCAST,     HVD__ALLGATHER,
        HVD__ALLTOALL,  HVD__REDUCESCATTER, HVD__LANE_SCATTER};
    enum hvd__kind kind = kinds[_i];
    struct shm_group g = {.n = 3,
                          .body = body_lent,
                          .arg = &kind,
                          .arena_bytes = SHM_TEST_ARENA_BYTES};

    ck_assert_int_eq(shm_group_run(&g), 1);
    ck_assert(WIFSIGNALED(g.wait_status[2]));
}
END_TEST

/* ---- Setting up ---------------------------------------------------------- */

START_TEST(test_layout)
{
    for (int n = 1; n <= HVD__SHM_LOCAL_MAX; n++) {
        uint64_t bytes = hvd__shm_segment_bytes(n);

        ck_assert_uint_eq(bytes % 4096, 0);
        ck_assert(bytes > segment_head_bytes((uint32_t)n));
        /* Addresses only: each of 256 sets reserves a MiB for each rank, and
         * less than 32 bytes for each pair. */
        ck_assert_uint_lt(bytes, ((uint64_t)(n + 2) << 28) +
                                     (uint64_t)n * (uint64_t)n * 32 * 256);
        ck_assert_uint_eq(hvd__shm_arena_at(n, 0, 8192), bytes);
        ck_assert_uint_eq(hvd__shm_arena_at(n, n, 8192),
                          bytes + (uint64_t)n * 8192);
    }
}
END_TEST

static int make_one(void *arg)
{
    struct shm_group *g = arg;
    struct hvd__plane *plane = shm_group_plane(g, 0);

    if (!plane)
        return -1;
    plane->ops->free(plane);
    return 0;
}

static int body_memory(struct shm_group *g, int me)
{
    (void)me;
    unit_fail_each(make_one, g);
    return 0;
}

START_TEST(test_memory)
{
    struct shm_group g = {.n = 1, .body = body_memory};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shm_order");
    TCase *order = tcase_create("order");

    tcase_set_timeout(order, 300);
    tcase_add_loop_test(order, test_differ, 2, 5);
    tcase_add_test(order, test_as);
    tcase_add_test(order, test_began);
    tcase_add_test(order, test_slots);
    tcase_add_test(order, test_group_ranks);
    tcase_add_test(order, test_death);
    tcase_add_test(order, test_left);
    tcase_add_loop_test(order, test_lent, 0, 6);
    tcase_add_test(order, test_layout);
    tcase_add_test(order, test_memory);
    suite_add_tcase(s, order);
    return unit_run(s);
}
