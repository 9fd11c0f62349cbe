/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI plane by itself, under an MPI launcher: `mpi_plane_rank PLUGIN VERB`
 *
 *     collectives       operations of every kind are right
 *     agreement         ranks that disagree are told, and go on
 *     sets              planes work side by side, in threads
 *     leave             a rank leaves while others wait
 *     given-up          a rank gives up an operation that it began
 *     given-up-driven   the same, while a thread drives it
 *     own               the program's own MPI goes on beside it
 *     too-low           the program's MPI thread level is too low
 *     too-late          the program has finalised MPI
 *     speed             prints size and ns of allreduces
 *
 * Prints what is wrong and aborts, which ends the job.  HVD_MPI_CHUNK limits
 * what goes into one MPI call.
 */
#include "tests/system/prog/mpi_plane.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void collectives(void)
{
    struct member m = join_world(0);

    CHECK(m.plane->ops->began(m.plane, &m.err) >= 0);
    check_reductions(&m);
    check_moves(&m);
    part_from(&m);
}

/* ---- Agreement -------------------------------------------------------------
 */

static void test_mismatch(struct member *m)
{
    struct hvd__op *op = prepare(m, HVD__ALLREDUCE, HVD_INT32, 1);
    int32_t send = 1, recv = -7;

    op->sendbuf = &send;
    op->recvbuf = &recv;
    reduces(m, HVD_SUM);
    sign(m);
    /* one rank differs, each rank in turn */
    if (m->me == (int)(m->seq % (uint64_t)m->n))
        op->first_signature = op->signature = 99;
    CHECK_RC(run(m), -HVD_EMISMATCH, &m->err);
    CHECK(recv == -7);
}

static void test_cut(struct member *m)
{
    struct hvd__op *op = prepare(m, HVD__ALLREDUCE, HVD_INT32, 1);
    int32_t send = 1, recv = -7;

    op->sendbuf = &send;
    op->recvbuf = &recv;
    reduces(m, HVD_SUM);
    sign(m);
    op->signature += (uint64_t)(m->me % 2);
    op->entries = (uint32_t)(5 + (m->me + 1) % m->n);
    CHECK_RC(run(m), HVD__CUT, &m->err);
    CHECK(op->agreed_entries == 5 && recv == -7);
}

static void agreement(void)
{
    struct member m = join_world(0);

    for (int i = 0; i < 3 * m.n && m.n > 1; i++) {
        test_mismatch(&m);
        test_cut(&m);
        check_small_allreduce(&m);
    }
    part_from(&m);
}

/* ---- Sets ------------------------------------------------------------------
 */

static void *sum_often(void *arg)
{
    struct member *m = arg;

    for (int i = 0; i < 100; i++) {
        struct hvd__op *op = prepare(m, HVD__ALLREDUCE, HVD_INT64, 40);
        int64_t send[40], recv[40];

        for (int k = 0; k < 40; k++)
            send[k] = m->me + k + i;
        op->sendbuf = send;
        op->recvbuf = recv;
        reduces(m, HVD_SUM);
        DONE(m);
        for (int k = 0; k < 40; k++)
            CHECK(recv[k] == m->n * (m->n - 1) / 2 + m->n * (k + i));
    }
    return NULL;
}

/* Makes three process sets, whose members differ from rank to rank, while the
 * plane of the world goes on. */
static void sets(void)
{
    struct member all = join_world(1), some[3];
    int n = world.size, ranks[3][RANKS_MAX], count[3] = {0}, in_set[3] = {0};
    pthread_t threads[4];

    CHECK(pthread_create(&threads[3], NULL, sum_often, &all) == 0);
    for (int s = 0; s < 3; s++) {
        for (int r = 0; r < n; r++)
            if (s == 0 || r % 2 == s - 1) {
                ranks[s][count[s]++] = r;
                in_set[s] |= r == world.rank;
            }
        if (!in_set[s])
            continue;
        some[s] = join_plane(ranks[s], count[s], (uint32_t)(2 + s));
        CHECK(pthread_create(&threads[s], NULL, sum_often, &some[s]) == 0);
    }
    CHECK(pthread_join(threads[3], NULL) == 0);
    for (int s = 0; s < 3; s++)
        if (in_set[s])
            CHECK(pthread_join(threads[s], NULL) == 0);
    for (int s = 0; s < 3; s++)
        if (in_set[s])
            part_from(&some[s]);
    /* the plane of the world alone again */
    sum_often(&all);
    part_from(&all);
    all = join_world(9);
    sum_often(&all);
    part_from(&all);
}

/* ---- Leaving ---------------------------------------------------------------
 */

static void expect_shutdown(struct member *m, int rank)
{
    char want[64];
    int rc;

    prepare(m, HVD__BARRIER, HVD_UINT8, 0);
    sign(m);
    rc = run(m);
    CHECK_RC(rc, -HVD_ESHUTDOWN, &m->err);
    snprintf(want, sizeof(want), "rank %d on host ", rank);
    CHECK(strstr(m->err.text, want) && strstr(m->err.text, "has shut down"));
    CHECK(m->err.rank == rank && m->err.host[0]);
    /* later calls fail as well */
    hb_error_clear(&m->err);
    CHECK_RC(run(m), -HVD_ESHUTDOWN, &m->err);
}

/* A plane that all have left, and that is disconnected soon, finds no
 * header. */
static void ask_after_leaving(struct member *m)
{
    for (int i = 0; i < 200; i++) {
        mpi->close();
        CHECK(m->plane->ops->began(m->plane, &m->err) <= 0);
        hb_error_clear(&m->err);
        usleep(1000);
    }
}

/* The last rank leaves.  The others wait for it, or ask whether it has
 * begun. */
static void leave(void)
{
    struct member m = join_world(0);
    int last = m.n - 1, rc;

    check_barrier(&m);
    if (m.me == last) {
        usleep(20000);
        m.plane->ops->leave(m.plane);
        m.plane->ops->leave(m.plane);
        /* leaving is no failure, but this rank starts nothing more */
        rc = m.plane->ops->began(m.plane, &m.err);
        CHECK(rc >= 0 || !strstr(m.err.text, "this rank"));
        hb_error_clear(&m.err);
        prepare(&m, HVD__BARRIER, HVD_UINT8, 0);
        CHECK_RC(run(&m), -HVD_ESHUTDOWN, &m.err);
    } else if (m.me == 0) {
        while ((rc = m.plane->ops->began(m.plane, &m.err)) == 0)
            m.plane->ops->pause(m.plane, 0);
        CHECK_RC(rc, m.n > 2 && rc == 1 ? 1 : -HVD_ESHUTDOWN, &m.err);
        expect_shutdown(&m, last);
        m.plane->ops->leave(m.plane);
    } else {
        expect_shutdown(&m, last);
        m.plane->ops->leave(m.plane);
    }
    part_from(&m);
    mpi->close();
    /* and all ranks open the world again */
    open_world();
    m = join_world(0);
    sum_often(&m);
    m.plane->ops->leave(m.plane);
    ask_after_leaving(&m);
    part_from(&m);
}

/* The last rank begins an operation and gives it up.  Ranks that have not begun
 * it get an error.  If the others are in it, all of them complete it, or none
 * does. */
static void given_up(void)
{
    for (int late = 0; late <= 1; late++) {
        struct member m = join_world(0);
        struct hvd__op *op = prepare(&m, HVD__ALLREDUCE, HVD_INT32, 1);
        int32_t send = m.me, recv = 0;
        int rc;

        op->sendbuf = &send;
        op->recvbuf = &recv;
        reduces(&m, HVD_SUM);
        sign(&m);
        if (late && m.me < m.n - 1)
            usleep(2500000); /* longer than the last rank stays */
        CHECK_RC(m.plane->ops->start(m.plane, op), 0, &m.err);
        if (m.me < m.n - 1) {
            rc = finish(&m);
            CHECK_RC(rc, late ? -HVD_ESHUTDOWN : 1, &m.err);
            CHECK(late || recv == m.n * (m.n - 1) / 2);
        } else {
            m.plane->ops->abandon(m.plane);
            m.plane->ops->abandon(m.plane);
        }
        m.plane->ops->leave(m.plane);
        part_from(&m);
        mpi->close();
    }
}

static void *finish_quietly(void *arg)
{
    struct member *m = arg;

    m->rc = finish(m);
    return NULL;
}

/* The last rank gives up an operation that one of its threads drives, while it
 * frees another plane.  The operation is carried out once, by either thread. */
static void given_up_while_driven(void)
{
    static int32_t send[1 << 16], recv[1 << 16];

    for (int i = 0; i < 20; i++) {
        struct member m = join_world(1), other = join_world(2);
        struct hvd__op *op = prepare(&m, HVD__ALLREDUCE, HVD_INT32, 1 << 16);
        pthread_t driver;

        check_barrier(&other); /* all are about to begin */
        op->sendbuf = send;
        op->recvbuf = recv;
        reduces(&m, HVD_SUM);
        sign(&m);
        if (m.me < m.n - 1) {
            CHECK_RC(run(&m), 1, &m.err);
        } else {
            CHECK_RC(m.plane->ops->start(m.plane, op), 0, &m.err);
            CHECK(pthread_create(&driver, NULL, finish_quietly, &m) == 0);
            m.plane->ops->abandon(m.plane);
            CHECK(pthread_join(driver, NULL) == 0);
            CHECK(m.rc == 1 || m.rc == -HVD_ESHUTDOWN);
        }
        part_from(&other);
        m.plane->ops->leave(m.plane);
        part_from(&m);
        mpi->close();
    }
}

/* ---- A program that calls MPI itself --------------------------------------
 */

/* The MPI of the plug-in, as the program itself calls it.  The program is not
 * linked with an MPI, because a handle is a pointer in Open MPI and an integer
 * in MPICH. */
static struct {
    void *so;
    int (*init_thread)(int *, char ***, int, int *);
    int (*finalize)(void);
    int (*finalized)(int *);
} own_mpi;

static void look_up(const char *name, void *function)
{
    void *symbol = dlsym(own_mpi.so, name);

    CHECK(symbol);
    memcpy(function, &symbol, sizeof(symbol));
}

/* Initialises MPI with a thread level from 0 to 3, numbers that both MPIs
 * share. */
static void begin_own(int level)
{
    int provided = -1;

    look_up("MPI_Init_thread", &own_mpi.init_thread);
    look_up("MPI_Finalize", &own_mpi.finalize);
    look_up("MPI_Finalized", &own_mpi.finalized);
    CHECK(own_mpi.init_thread(NULL, NULL, level, &provided) == 0);
    CHECK(provided == level);
}

static void expect_refusal(const char *word)
{
    struct hb_error err = HB_ERROR_INIT;

    CHECK_RC(mpi->open(&world, start_limit(), &err), -HVD_EUNSUPPORTED, &err);
    CHECK(strstr(err.text, word) && !strchr(err.text, '\n'));
}

static void own(void)
{
    struct member m;
    int finalized = 1;

    begin_own(2);
    open_world();
    m = join_world(0);
    sum_often(&m);
    m.plane->ops->leave(m.plane);
    part_from(&m);
    mpi->close();
    mpi->finalize();
    own_mpi.finalized(&finalized);
    CHECK(!finalized);
    CHECK(own_mpi.finalize() == 0);
    expect_refusal("finalised");
}

static void too_low(void)
{
    begin_own(1);
    expect_refusal("MPI_THREAD_SERIALIZED");
    CHECK(own_mpi.finalize() == 0);
}

static void too_late(void)
{
    begin_own(2);
    CHECK(own_mpi.finalize() == 0);
    expect_refusal("finalised");
}

/* ---- Speed ------------------------------------------------------------------
 */

static void speed(void)
{
    static const size_t bytes[] = {8, 64 << 10, 4 << 20};
    struct member m = join_world(0);
    float *send = calloc(1, 4 << 20), *recv = calloc(1, 4 << 20);

    CHECK(send && recv);
    for (int i = 0; i < 3; i++) {
        int times = bytes[i] < 1000     ? (m.n > 2 ? 500 : 20000)
                    : bytes[i] < 100000 ? (m.n > 2 ? 200 : 2000)
                                        : 60;
        uint64_t began = 0;

        for (int t = -times / 10; t < times; t++) {
            if (t == 0)
                began = hb_now_ns();
            prepare(&m, HVD__ALLREDUCE, HVD_FLOAT32, bytes[i] / 4);
            m.op.sendbuf = send;
            m.op.recvbuf = recv;
            reduces(&m, HVD_SUM);
            DONE(&m);
        }
        if (m.me == 0)
            printf("%zu %.0f\n", bytes[i],
                   (double)(hb_now_ns() - began) / times);
    }
    free(send);
    free(recv);
    part_from(&m);
}

/* ---- */

static const struct {
    const char *name;
    void (*run)(void);
    int by_itself; /* the mode itself opens the world and finalises MPI */
} modes[] = {
    {"collectives", collectives, 0},
    {"agreement", agreement, 0},
    {"sets", sets, 0},
    {"leave", leave, 0},
    {"given-up", given_up, 0},
    {"given-up-driven", given_up_while_driven, 0},
    {"speed", speed, 0},
    {"own", own, 1},
    {"too-low", too_low, 1},
    {"too-late", too_late, 1},
};

static void load(const char *path)
{
    struct hb_error err = HB_ERROR_INIT;
    hvd__plugin_fn *get;
    void *symbol;

    own_mpi.so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!own_mpi.so) {
        fprintf(stderr, "%s\n", dlerror());
        exit(99);
    }
    symbol = dlsym(own_mpi.so, HVD__PLUGIN_SYMBOL);
    CHECK(symbol && dlsym(own_mpi.so, "hvd_mpi_library"));
    memcpy(&get, &symbol, sizeof(get));
    CHECK(get("another", &err) == NULL && err.status == -HVD_EPROTO);
    mpi = get(HVD__PLUGIN_ABI, NULL);
    CHECK(mpi);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 3 && i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(argv[2], modes[i].name) != 0)
            continue;
        load(argv[1]);
        if (!modes[i].by_itself)
            open_world();
        modes[i].run();
        if (!modes[i].by_itself) {
            mpi->close();
            mpi->finalize();
        }
        return 0;
    }
    return 99;
}
