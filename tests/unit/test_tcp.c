/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives of a TCP group: direct exchange, ring and chain, at sizes
 * around every switch, with members that are slow, leave or die.
 */
#include "runtime/plane/tcp/tcp.h"
#include "tests/unit/tcp_group.h"
#include "tests/unit/unit.h"
#include "tests/unit/values.h"

#include "lib/base/sys/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPEN_MS = 20000, CHUNK = 4096, BYTES_MAX = 4 << 20 };

static int open_well(struct tcp_group *g, int me, struct hvd__tcp **t)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = tcp_group_open(g, me, OPEN_MS, t, &err);

    if (rc < 0)
        fprintf(stderr, "member %d: %s\n", me, err.text);
    return rc;
}

static unsigned char mark(int member, size_t i)
{
    return (unsigned char)((size_t)member * 31 + i * 7 + i / 251);
}

/* ---- Exchange -------------------------------------------------------- */

static const size_t lengths[] = {0, 1, 7, 4096, 65537, 1000000};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* Members send blocks of different lengths in the same exchange. */
static int exchange_once(struct tcp_group *g, struct hvd__tcp *t, int me,
                         int trial, unsigned char *memory)
{
    struct hvd__tcp_block blocks[TCP_GROUP_MAX];
    unsigned char *mine = memory + (size_t)g->n * 1000000;
    size_t len = lengths[(trial + me) % LENGTHS];

    for (size_t i = 0; i < len; i++)
        mine[i] = mark(me, i);
    for (int i = 0; i < g->n; i++)
        blocks[i] =
            (struct hvd__tcp_block){memory + (size_t)i * 1000000, 1000000};
    hvd__tcp_exchange(t, mine, len, len / 2, blocks);
    must(tcp_group_finish(t, NULL) == 1);
    for (int i = 0; i < g->n; i++) {
        if (i == me)
            continue;
        must(blocks[i].len == lengths[(trial + i) % LENGTHS]);
        for (size_t k = 0; k < blocks[i].len; k++)
            must(((unsigned char *)blocks[i].p)[k] == mark(i, k));
    }
    return 0;
}

static int exchange_body(struct tcp_group *g, int me)
{
    unsigned char *memory = malloc((size_t)(g->n + 1) * 1000000);
    struct hvd__tcp *t = NULL;

    must(memory && open_well(g, me, &t) == 0);
    for (int trial = 0; trial < 12; trial++)
        must(exchange_once(g, t, me, trial, memory) == 0);
    hvd__tcp_free(t);
    free(memory);
    return 0;
}

START_TEST(test_exchange)
{
    static const int sizes[] = {2, 3, 5};
    struct tcp_group g = {.n = sizes[_i], .body = exchange_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* Setting up many members is fast: 64 members with 2016 connections. */
static int many_body(struct tcp_group *g, int me)
{
    static unsigned char all[TCP_GROUP_MAX][8];
    struct hvd__tcp_block blocks[TCP_GROUP_MAX];
    struct hvd__tcp *t = NULL;
    unsigned char mine = (unsigned char)me;

    must(open_well(g, me, &t) == 0);
    for (int trial = 0; trial < 3; trial++) {
        for (int i = 0; i < g->n; i++)
            blocks[i] = (struct hvd__tcp_block){all[i], sizeof(all[i])};
        hvd__tcp_exchange(t, &mine, 1, 1, blocks);
        must(tcp_group_finish(t, NULL) == 1);
        for (int i = 0; i < g->n; i++)
            must(i == me || (blocks[i].len == 1 && all[i][0] == i));
    }
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_many_members)
{
    struct tcp_group g = {.n = 64, .body = many_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Ring ------------------------------------------------------------ */

static int ring_once(struct tcp_group *g, struct hvd__tcp *t, int me,
                     enum hvd_dtype dtype, enum hvd_op op, size_t count)
{
    static _Alignas(64) unsigned char buf[8 << 20], chunk[CHUNK];
    struct hvd__tcp_reduction ring = {
        .buf = buf,
        .count = count,
        .elem_bytes = hvd_dtype_size(dtype),
        .reduce = hvd__reduce_get(dtype, op),
        .args = {1.0, 1.0, op == HVD_AVERAGE ? g->n : 1, 0},
        .chunk = chunk,
        .chunk_bytes = count % 2 ? CHUNK : 24,
    };

    values_fill(dtype, op, g->n, me, buf, count);
    hvd__tcp_allreduce(t, &ring, HVD__TCP_RING);
    must(tcp_group_finish(t, NULL) == 1);
    must(values_check(dtype, op, g->n, 1.0, buf, count) == count);
    return 0;
}

static int ring_body(struct tcp_group *g, int me)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 100, 4095, 4096, 100001};
    static const enum hvd_dtype dtypes[] = {HVD_UINT8, HVD_FLOAT16, HVD_FLOAT32,
                                            HVD_INT64};
    struct hvd__tcp *t = NULL;

    must(open_well(g, me, &t) == 0);
    for (int d = 0; d < 4; d++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            must(ring_once(g, t, me, dtypes[d], HVD_SUM, counts[c]) == 0);
            must(ring_once(g, t, me, dtypes[d], HVD_AVERAGE, counts[c]) == 0);
            must(ring_once(g, t, me, dtypes[d], HVD_MAX, counts[c]) == 0);
        }
    must(ring_once(g, t, me, HVD_FLOAT32, HVD_SUM, 2000001) == 0);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_ring)
{
    static const int sizes[] = {2, 3, 4, 7};
    struct tcp_group g = {.n = sizes[_i], .body = ring_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Chain ----------------------------------------------------------- */

static int chain_body(struct tcp_group *g, int me)
{
    static const size_t bytes[] = {0, 1, 4096, BYTES_MAX};
    unsigned char *buf = malloc(BYTES_MAX);
    struct hvd__tcp *t = NULL;

    must(buf && open_well(g, me, &t) == 0);
    for (int root = 0; root < g->n; root++)
        for (int b = 0; b < 4; b++) {
            for (size_t i = 0; i < bytes[b]; i++)
                buf[i] = me == root ? mark(root, i) : 0;
            hvd__tcp_broadcast(t, buf, bytes[b], root, HVD__TCP_CHAIN);
            must(tcp_group_finish(t, NULL) == 1);
            for (size_t i = 0; i < bytes[b]; i++)
                must(buf[i] == mark(root, i));
        }
    hvd__tcp_free(t);
    free(buf);
    return 0;
}

START_TEST(test_chain)
{
    static const int sizes[] = {2, 3, 6};
    struct tcp_group g = {.n = sizes[_i], .body = chain_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* ---- Ends ------------------------------------------------------------ */

static const char *host_of(void *arg, uint32_t rank)
{
    (void)arg;
    return rank == 777 ? "far" : "?";
}

/* An operation completes although a member leaves after its part of it.  The
 * next one fails and names the rank that the member said had left. */
static int gone_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    unsigned char *buf = calloc(1, BYTES_MAX);
    struct hvd__tcp *t = NULL;
    struct hvd__tcp_config config = tcp_group_config(g, me);

    config.host_of = host_of;
    must(buf && hvd__tcp_open(&config, &t, &err) == 0);
    hvd__tcp_broadcast(t, buf, BYTES_MAX, 0, HVD__TCP_CHAIN);
    if (me == 2)
        usleep(50000); /* the others are done, or stuck, by now */
    must(tcp_group_finish(t, &err) == 1);
    if (me == 0) {
        hvd__tcp_tell_gone(t, 777);
        hvd__tcp_free(t);
        free(buf);
        return 0;
    }
    tcp_group_exchange(g, t);
    must(tcp_group_finish(t, &err) == -HVD_ESHUTDOWN);
    must(strcmp(err.text, "rank 777 on host far has shut down") == 0);
    must(err.rank == 777 && strcmp(err.host, "far") == 0);
    hvd__tcp_free(t);
    free(buf);
    return 0;
}

START_TEST(test_gone)
{
    struct tcp_group g = {.n = 3, .body = gone_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static int knows_nothing(void *arg, struct hb_error *err)
{
    (void)arg;
    (void)err;
    return 0;
}

/* If the agent reports no death, the error is a lost connection. */
static int death_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp_config config = tcp_group_config(g, me);
    struct hvd__tcp *t = NULL;
    int rc;

    config.agent_lost = knows_nothing;
    must(hvd__tcp_open(&config, &t, &err) == 0);
    if (me == 1)
        raise(SIGKILL);
    tcp_group_exchange(g, t);
    rc = tcp_group_finish(t, &err);
    must(rc == -HVD_EPEER);
    must(strncmp(err.text, "rank 101 on host h1: connection lost", 36) == 0);
    must(err.rank == 101);
    /* Stay until rank 2 is done: else it could blame this rank. */
    tcp_group_meet(g, 0, 2);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_death)
{
    struct tcp_group g = {.n = 3, .body = death_body};

    ck_assert_int_eq(tcp_group_run(&g), 1);
    ck_assert(WIFSIGNALED(g.wait_status[1]));
}
END_TEST

/* A member dies in the middle of each operation.  A member that notices
 * hangs up on the others, so that all fail, though not all know whose death
 * it was. */
enum { MIDDLES = 7, MIDDLE_MEMBERS = 4, VICTIM = 2 };

static void begin_middle(struct hvd__tcp *t, int which, unsigned char *buf)
{
    static unsigned char chunk[CHUNK];
    static const size_t first[] = {0, 500000, 900000, 900001, BYTES_MAX / 4};
    static struct hvd__tcp_block send[MIDDLE_MEMBERS], recv[MIDDLE_MEMBERS];
    struct hvd__tcp_reduction r = {.buf = buf,
                                   .count = BYTES_MAX / 4,
                                   .elem_bytes = 4,
                                   .reduce =
                                       hvd__reduce_get(HVD_FLOAT32, HVD_SUM),
                                   .args = {1.0, 1.0, 1, 0},
                                   .chunk = chunk,
                                   .chunk_bytes = CHUNK};

    for (int i = 0; i < MIDDLE_MEMBERS; i++) {
        send[i] = (struct hvd__tcp_block){buf, BYTES_MAX / 4};
        recv[i] = (struct hvd__tcp_block){buf + (size_t)i * (BYTES_MAX / 4),
                                          BYTES_MAX / 4};
    }
    if (which < 3)
        hvd__tcp_allreduce(t, &r,
                           (enum hvd__tcp_algorithm)(HVD__TCP_RD + which));
    else if (which == 3)
        hvd__tcp_reduce_scatter(t, &r, first);
    else if (which == 4)
        hvd__tcp_allgather(t, buf, first);
    else if (which == 5)
        hvd__tcp_alltoallv(t, send, NULL, recv, 1);
    else
        hvd__tcp_broadcast(t, buf, BYTES_MAX, 0, HVD__TCP_CHAIN);
}

/* Runs operations until one fails because the victim has died. */
static int middle_body(struct tcp_group *g, int me)
{
    unsigned char *buf = calloc(1, BYTES_MAX);
    struct hb_error err = HB_ERROR_INIT;
    int which = *(int *)g->arg, rc = 1;
    struct hvd__tcp *t = NULL;

    must(buf && open_well(g, me, &t) == 0);
    for (int turn = 0; rc == 1; turn++) {
        begin_middle(t, which, buf);
        if (me == VICTIM && turn == 2) {
            hvd__tcp_progress(t, &err);
            raise(SIGKILL);
        }
        rc = tcp_group_finish(t, &err);
    }
    must(rc == -HVD_EPEER);
    must(err.rank >= 100 && err.rank < 100 + g->n && err.rank != 100 + me);
    must(strstr(err.text, "connection lost"));
    hvd__tcp_hang_up(t);
    hvd__tcp_free(t);
    free(buf);
    return 0;
}

START_TEST(test_death_in_the_middle)
{
    struct tcp_group g = {.n = MIDDLE_MEMBERS, .body = middle_body, .arg = &_i};

    ck_assert_int_eq(tcp_group_run(&g), 1);
    ck_assert(WIFSIGNALED(g.wait_status[VICTIM]));
}
END_TEST

/* Waits until hvd__tcp_began reports a peer's operation (1) or end (< 0). */
static int began_wait(struct hvd__tcp *t, struct hb_error *err)
{
    int rc;

    while ((rc = hvd__tcp_began(t, err)) == 0)
        hvd__tcp_pause(t, 0);
    return rc;
}

static int began_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp_config config = tcp_group_config(g, me);
    struct hvd__tcp *t = NULL;

    config.host_of = host_of;
    must(hvd__tcp_open(&config, &t, &err) == 0);
    must(me == 0 || hvd__tcp_began(t, &err) == 0);
    atomic_fetch_add(&g->flags[0], 1);
    while (me == 0 && atomic_load(&g->flags[0]) < g->n)
        usleep(1000);
    if (me == 0)
        usleep(20000); /* the others are likely asleep */
    else
        must(began_wait(t, &err) == 1);
    tcp_group_exchange(g, t);
    must(tcp_group_finish(t, &err) == 1);
    if (me == 0) {
        hvd__tcp_tell_gone(t, 777);
    } else {
        must(began_wait(t, &err) == -HVD_ESHUTDOWN);
        must(strcmp(err.text, "rank 777 on host far has shut down") == 0);
    }
    tcp_group_meet(g, 1, g->n);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_began)
{
    struct tcp_group g = {.n = _i, .body = began_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* A peer's next message, or its end, arrives together with the one before. */
static int ahead_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp_config config = tcp_group_config(g, me);
    struct hvd__tcp *t = NULL;
    int leaves = *(const int *)g->arg;

    config.host_of = host_of;
    must(hvd__tcp_open(&config, &t, &err) == 0);
    tcp_group_exchange(g, t);
    must(me == 0 || hvd__tcp_progress(t, &err) == 0); /* only sends */
    tcp_group_meet(g, 0, g->n);
    if (me == 0) {
        must(tcp_group_finish(t, &err) == 1);
        if (leaves)
            hvd__tcp_tell_gone(t, 777);
        else
            tcp_group_exchange(g, t);
        must(leaves || hvd__tcp_progress(t, &err) == 0);
    }
    tcp_group_meet(g, 1, g->n);
    if (me > 0) {
        must(tcp_group_finish(t, &err) == 1);
        must(began_wait(t, &err) == (leaves ? -HVD_ESHUTDOWN : 1));
        tcp_group_exchange(g, t);
    }
    if (me > 0 || !leaves)
        must(tcp_group_finish(t, &err) == (leaves ? -HVD_ESHUTDOWN : 1));
    tcp_group_meet(g, 2, g->n);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_ahead)
{
    int leaves = _i % 2;
    struct tcp_group g = {.n = 2 + _i / 2, .body = ahead_body, .arg = &leaves};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* Between operations the death of a peer is noticed, and so is an interrupt. */
static int idle_death_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;

    must(open_well(g, me, &t) == 0);
    if (me == 1)
        raise(SIGKILL);
    must(began_wait(t, &err) == -HVD_EPEER);
    must(strncmp(err.text, "rank 101 on host h1: connection lost", 36) == 0);
    tcp_group_meet(g, 0, g->n - 1);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_idle_death)
{
    struct tcp_group g = {.n = _i, .body = idle_death_body};

    ck_assert_int_eq(tcp_group_run(&g), 1);
    ck_assert(WIFSIGNALED(g.wait_status[1]));
}
END_TEST

static int interrupt_body(struct tcp_group *g, int me)
{
    struct hvd__tcp *t = NULL;

    must(open_well(g, me, &t) == 0);
    hvd__tcp_pause(t, 0);
    usleep(1000); /* likely asleep from now on */
    for (int i = 0; i < 3; i++) {
        must(hvd__tcp_began(t, NULL) == 0);
        hvd__tcp_interrupt(t);
        hvd__tcp_pause(t, 0);
    }
    tcp_group_meet(g, 0, g->n);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_interrupt)
{
    struct tcp_group g = {.n = 2, .body = interrupt_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* Reports a death as the agent would. */
static int word(void *arg, struct hb_error *err)
{
    (void)arg;
    return hb_error_set(err, HVD_EPEER, "rank 9 on host x: killed");
}

static int word_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    int fds[2];
    struct hvd__tcp_config config = tcp_group_config(g, me);

    config.agent_lost = word;
    must(pipe(fds) == 0);
    config.agent_fd = fds[0];
    must(hvd__tcp_open(&config, &t, &err) == 0);
    if (me == 1) {
        while (!atomic_load(&g->flags[0]))
            usleep(1000);
        hvd__tcp_free(t);
        return 0;
    }
    tcp_group_exchange(g, t);
    must(hvd__tcp_progress(t, &err) == 0);
    must(write(fds[1], "x", 1) == 1);
    must(tcp_group_finish(t, &err) == -HVD_EPEER);
    must(strcmp(err.text, "rank 9 on host x: killed") == 0);
    atomic_store(&g->flags[0], 1);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_agents_word)
{
    struct tcp_group g = {.n = 2, .body = word_body};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

/* The agent's report is found although another thread has read it from the
 * socket, and however often the wait is interrupted. */
static _Atomic int *told;
static int word_if_told(void *arg, struct hb_error *err)
{
    return atomic_load(told) ? word(arg, err) : 0;
}

static void *interrupt_often(void *arg)
{
    while (!atomic_load(told + 1)) {
        hvd__tcp_interrupt(arg);
        usleep(20000);
    }
    return NULL;
}

static int wait_for_word(const struct tcp_group *g, struct hvd__tcp *t)
{
    int interrupted = *(int *)g->arg;
    struct hb_error err = HB_ERROR_INIT;
    pthread_t thread;
    uint64_t began_ns;

    must(!interrupted ||
         pthread_create(&thread, NULL, interrupt_often, t) == 0);
    tcp_group_exchange(g, t);
    for (int i = 0; i < 3; i++) {
        must(hvd__tcp_progress(t, &err) == 0);
        hvd__tcp_pause(t, 0);
    }
    atomic_store(told, 1);
    began_ns = hb_now_ns();
    must(tcp_group_finish(t, &err) == -HVD_EPEER);
    must(hb_now_ns() - began_ns < 700000000);
    must(strcmp(err.text, "rank 9 on host x: killed") == 0);
    atomic_store(told + 1, 1);
    return interrupted ? pthread_join(thread, NULL) : 0;
}

static int taken_word_body(struct tcp_group *g, int me)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    struct hvd__tcp_config config = tcp_group_config(g, me);

    config.agent_lost = word_if_told;
    told = g->flags;
    must(hvd__tcp_open(&config, &t, &err) == 0);
    while (me == 1 && !atomic_load(told + 1))
        usleep(1000);
    must(me == 1 || wait_for_word(g, t) == 0);
    hvd__tcp_free(t);
    return 0;
}

START_TEST(test_taken_word)
{
    struct tcp_group g = {.n = 2, .body = taken_word_body, .arg = &_i};

    ck_assert_int_eq(tcp_group_run(&g), 0);
}
END_TEST

static Suite *tcp_suite(void)
{
    Suite *s = suite_create("tcp");
    TCase *t = tcase_create("tcp");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_exchange, 0, 3);
    tcase_add_test(t, test_many_members);
    tcase_add_loop_test(t, test_ring, 0, 4);
    tcase_add_loop_test(t, test_chain, 0, 3);
    tcase_add_test(t, test_gone);
    tcase_add_test(t, test_death);
    tcase_add_loop_test(t, test_death_in_the_middle, 0, MIDDLES);
    tcase_add_loop_test(t, test_began, 2, 5);
    tcase_add_loop_test(t, test_ahead, 0, 4);
    tcase_add_loop_test(t, test_idle_death, 2, 4);
    tcase_add_test(t, test_interrupt);
    tcase_add_test(t, test_agents_word);
    tcase_add_loop_test(t, test_taken_word, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_suite());
}
