/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory plane with domains: ranks that differ, are late, leave or
 * die, in every position of a domain.  test_shm checks that data arrives.
 */
#include "tests/unit/shm_member.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ranks 0, 2, 4 and 8 are leaders; 8 is alone. */
enum { N = 11 };
static const uint32_t uneven[N] = {5, 5, 1, 5, 0, 0, 0, 1, 9, 5, 0};
/* A leader of several ranks, a member, and the rank that is alone. */
static const int places[] = {0, 4, 3, 7, 8, 10};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

/* ---- Which planes have domains ------------------------------------------ */

static int has_domains(const struct shm_group *g, int count,
                       const uint32_t *domains)
{
    struct shm_group other = *g;
    struct hvd__plane *flat, *plane;
    int differ;

    other.domains = domains;
    plane = shm_group_set(&other, 0, NULL, count, 0);
    other.domains = NULL;
    flat = shm_group_set(&other, 0, NULL, count, 0);
    differ = plane->ops != flat->ops;
    plane->ops->free(plane);
    flat->ops->free(flat);
    return differ;
}

static int body_which(struct shm_group *g, int me)
{
    static const uint32_t one[16] = {0}, two[16] = {0, 0, 1, 1},
                          half[16] = {0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7},
                          many[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

    if (me)
        return 0;
    must(has_domains(g, 9, two));
    must(has_domains(g, 16, half));
    must(!has_domains(g, 15, half));
    must(!has_domains(g, 8, two));
    must(!has_domains(g, 16, one));
    must(!has_domains(g, 16, many));
    return 0;
}

START_TEST(test_which)
{
    struct shm_group g = {.n = 16, .body = body_which};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Bits --------------------------------------------------------------- */

/* Fills buf with numbers whose sum depends on the order. */
static void fill_uneven(float *buf, size_t count, int me)
{
    uint32_t x = 12345u + (uint32_t)me;

    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        buf[i] = (float)(x >> 8) * (i % 3 ? 1e-3f : 1e5f) - 8e3f;
    }
}

static int sum_on(struct shm_member *k, struct hvd__plane *plane,
                  const float *send, float *recv, size_t count)
{
    struct hvd__op *op = shm_member_op(k, HVD__ALLREDUCE, HVD_FLOAT32);

    op->op = HVD_SUM;
    op->reduce = hvd__reduce_get(HVD_FLOAT32, HVD_SUM);
    op->sendbuf = send;
    op->recvbuf = recv;
    op->count = count;
    return plane_do(plane, op);
}

static int body_bits(struct shm_group *g, int me)
{
    static const size_t counts[] = {1, 24, 900, 20000};
    static float send[20000], with[20000], without[20000];
    struct shm_group other = *g;
    struct hvd__plane *flat;
    struct shm_member k;

    other.domains = NULL;
    flat = shm_group_set(&other, 1, NULL, g->n, me);
    shm_member_open(&k, g, me);
    shm_group_meet(g);
    for (int i = 0; i < 4; i++) {
        fill_uneven(send, counts[i], me);
        must(sum_on(&k, k.plane, send, with, counts[i]) == 1);
        must(sum_on(&k, flat, send, without, counts[i]) == 1);
        must(memcmp(with, without, counts[i] * sizeof(float)) == 0);
    }
    flat->ops->free(flat);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_bits)
{
    struct shm_group g = {.n = N, .body = body_bits, .domains = uneven};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Agreement ---------------------------------------------------------- */

/* One rank starts another operation: all ranks get the mismatch, and later
 * operations work. */
static int differ_once(struct shm_member *k, int odd, int alike)
{
    struct hvd__op *op = shm_member_op(k, HVD__BARRIER, HVD_UINT8);

    op->entries = (uint32_t)(30 - k->me);
    if (k->me == odd) {
        op->signature += (uint64_t)1 << 32;
        op->entries = 7;
        if (!alike)
            op->first_signature = op->signature;
    }
    must(plane_do(k->plane, op) == (alike ? HVD__CUT : -HVD_EMISMATCH));
    must(!alike || op->agreed_entries == 7);
    return 0;
}

static int run_differ(struct shm_member *k)
{
    for (int odd = 0; odd < k->n; odd++) {
        must(differ_once(k, odd, 0) == 0);
        must(differ_once(k, odd, 1) == 0);
        must(shm_do_barrier(k) == 0);
        must(differ_once(k, k->n - 1 - odd, odd % 2) == 0);
        must(shm_do_allreduce(k, HVD_FLOAT32, HVD_SUM, (size_t)odd * 997, 0) ==
             0);
        must(shm_do_broadcast(k, (size_t)odd * 9000, odd) == 0);
    }
    return 0;
}

static int body_differ(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (int i = 0; i < 3; i++)
        must(run_differ(&k) == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_differ)
{
    struct shm_group g = {.n = N, .body = body_differ, .domains = uneven};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* In one process, where ThreadSanitizer sees all accesses. */
START_TEST(test_threads)
{
    struct shm_group g = {.n = N, .body = body_differ, .domains = uneven};

    ck_assert_int_eq(shm_group_run_threads(&g), 0);
}
END_TEST

/* A set of some ranks, beside the world, has domains of its own. */
static int body_set(struct shm_group *g, int me)
{
    static const int members[] = {1, 2, 3, 4, 6, 7, 8, 9, 10};
    struct shm_member world, own;
    int place = 0;

    shm_member_open(&world, g, me);
    own = world;
    own.n = 9;
    while (place < own.n && members[place] != me)
        place++;
    if (place < own.n) {
        own.me = place;
        own.plane = shm_group_set(g, 1, members, own.n, place);
    }
    must(shm_do_barrier(&world) == 0);
    if (place < own.n)
        must(run_differ(&own) == 0);
    must(run_differ(&world) == 0);
    if (place < own.n)
        own.plane->ops->free(own.plane);
    shm_member_close(&world);
    return 0;
}

START_TEST(test_set)
{
    struct shm_group g = {.n = N, .body = body_set, .domains = uneven};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Who is waited for -------------------------------------------------- */

/* When `late` begins, all others have looked twice, and the leaders have seen
 * all domains but one. */
static int late_once(struct shm_member *k, int late)
{
    struct hvd__op *op = shm_member_op(k, HVD__BARRIER, HVD_UINT8);

    hvd__op_time(op);
    if (k->me != late)
        must(k->plane->ops->start(k->plane, op) == 0);
    shm_group_meet(k->g);
    for (int i = 0; i < 2; i++) {
        if (k->me != late)
            must(k->plane->ops->progress(k->plane, op) == 0);
        shm_group_meet(k->g);
    }
    if (k->me == late) {
        must(plane_do(k->plane, op) == 1);
    } else {
        int rc;

        while ((rc = k->plane->ops->progress(k->plane, op)) == 0)
            k->plane->ops->pause(k->plane, 0);
        must(rc == 1);
    }
    must(op->trace.late_rank == (k->me == late ? -1 : late));
    must(op->trace.agreed_ns > HVD__OP_TIMED);
    return 0;
}

static int body_late(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (int i = 0; i < 2 * N; i++)
        must(late_once(&k, i % N) == 0);
    shm_member_close(&k);
    return 0;
}

START_TEST(test_late)
{
    struct shm_group g = {.n = N, .body = body_late, .domains = uneven};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* The other ranks sleep when one begins. */
static int body_asleep(struct shm_group *g, int me)
{
    struct shm_member k;

    shm_member_open(&k, g, me);
    for (int i = 0; i < PLACES; i++) {
        if (me == places[i])
            usleep(20000);
        must(shm_do_allreduce(&k, HVD_INT32, HVD_SUM, (size_t)i * 5000, 0) ==
             0);
    }
    shm_member_close(&k);
    return 0;
}

START_TEST(test_asleep)
{
    struct shm_group g = {.n = N, .body = body_asleep, .domains = uneven};

    ck_assert_int_eq(shm_group_run(&g), 0);
}
END_TEST

/* ---- Those who go ------------------------------------------------------- */

enum going { DIES, LEAVES };

struct farewell {
    int who, begins; /* begins: whether it publishes its header first */
    enum going going;
};

static void go(struct shm_member *k, enum going going)
{
    if (going == DIES)
        raise(SIGKILL);
    k->plane->ops->leave(k->plane);
    shm_member_close(k);
}

/* An operation that a rank published before it dies or leaves completes, also
 * if it is a leader; the next one fails everywhere and names the rank. */
static int body_goes(struct shm_group *g, int me)
{
    const struct farewell *f = g->arg;
    int status = f->going == DIES ? -HVD_EPEER : -HVD_ESHUTDOWN;
    struct shm_member k;
    int rc;

    shm_member_open(&k, g, me);
    must(shm_do_barrier(&k) == 0);
    shm_member_op(&k, HVD__BARRIER, HVD_UINT8);
    if (me != f->who || f->begins)
        must(k.plane->ops->start(k.plane, &k.op) == 0);
    shm_group_meet(g);
    if (me == f->who) {
        go(&k, f->going);
        return 0;
    }
    while ((rc = k.plane->ops->progress(k.plane, &k.op)) == 0)
        k.plane->ops->pause(k.plane, 0);
    if (f->begins) {
        must(rc == 1);
        shm_member_op(&k, HVD__BARRIER, HVD_UINT8);
        rc = plane_do(k.plane, &k.op);
    }
    must(rc == status && k.err.rank == 100 + f->who);
    shm_member_close(&k);
    return 0;
}

static void expect_goes(enum going going, int begins, int who)
{
    struct farewell f = {who, begins, going};
    struct shm_group g = {
        .n = N, .body = body_goes, .arg = &f, .domains = uneven};

    ck_assert_int_eq(shm_group_run(&g), going == DIES);
    ck_assert(going != DIES || WIFSIGNALED(g.wait_status[who]));
}

START_TEST(test_dies)
{
    expect_goes(DIES, 0, places[_i]);
    expect_goes(DIES, 1, places[_i]);
}
END_TEST

START_TEST(test_leaves)
{
    expect_goes(LEAVES, 0, places[_i]);
    expect_goes(LEAVES, 1, places[_i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shm_domains");
    TCase *t = tcase_create("domains");

    tcase_set_timeout(t, 300);
    tcase_add_test(t, test_which);
    tcase_add_test(t, test_bits);
    tcase_add_test(t, test_differ);
    tcase_add_test(t, test_threads);
    tcase_add_test(t, test_set);
    tcase_add_test(t, test_late);
    tcase_add_test(t, test_asleep);
    tcase_add_loop_test(t, test_dies, 0, PLACES);
    tcase_add_loop_test(t, test_leaves, 0, PLACES);
    suite_add_tcase(s, t);
    return unit_run(s);
}
