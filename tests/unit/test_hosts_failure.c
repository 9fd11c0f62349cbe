/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of worlds on several hosts: deaths and leaving at every point, a
 * broken network, long waits, lack of memory.
 */
#include "lib/base/alloc.h"
#include "runtime/hvd.h"
#include "runtime/plane/hier/hier.h"
#include "runtime/plane/shm/shm.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const worlds[] = {"ab", "aabb", "abbb", "aaabbc"};

static int run_on(const char *place, world_fn *body, void *arg)
{
    struct world w = {
        .size = (int)strlen(place), .body = body, .arg = arg, .place = place};

    return world_run_with(&w);
}

/* ---- Death ----------------------------------------------------------- */

enum { LARGE = 300000 };

/* Runs collectives until one fails; returns its status. */
static int until_failure(int trial)
{
    static int32_t buf[LARGE], all[1000], other[LARGE];
    size_t some[] = {1, 1000, LARGE};
    int rc = 0;

    for (int i = 0; rc == 0; i++) {
        size_t count = some[(trial + i / 4) % 3];

        switch ((i + trial) % 6) {
        case 0:
            rc = hvd_barrier(NULL);
            break;
        case 1:
            rc =
                hvd_broadcast(buf, buf, count, HVD_INT32, i % hvd_size(), NULL);
            break;
        case 2:
            rc = hvd_allgather(buf, 100, all, 1000, NULL, HVD_INT32, NULL);
            break;
        case 3:
            count -= count % (size_t)hvd_size();
            rc = hvd_alltoall(buf, NULL, count, other, LARGE, NULL, HVD_INT32,
                              NULL);
            break;
        case 4:
            rc = hvd_reducescatter(buf, other, count, 1, HVD_INT32, HVD_SUM,
                                   NULL);
            break;
        default:
            rc = hvd_allreduce(buf, buf, count, HVD_INT32, HVD_SUM, NULL);
        }
    }
    return rc;
}

struct end {
    const char *place;
    int trial, victim;
};

static int death_body(int rank, void *arg)
{
    const struct end *e = arg;
    hvd_request *req = NULL;
    char text[96];

    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    /* All ranks have completed the operation. */
    atomic_fetch_add(&world_board->flag[0], 1);
    while (atomic_load(&world_board->flag[0]) < hvd_size())
        sched_yield();
    if (rank == 0)
        atomic_store(&world_board->kill_rank, e->victim + 1);
    want(until_failure(e->trial) == -HVD_EPEER);
    snprintf(text, sizeof(text), "rank %d on host host-%c: killed by signal 9",
             e->victim, e->place[e->victim]);
    want(strcmp(hvd_error_message(), text) == 0);
    /* Later calls fail alike, blocking or not. */
    want(hvd_barrier(NULL) == -HVD_EPEER);
    want(hvd_barrier_async("x", NULL, &req) == 0);
    want(hvd_wait(req) == -HVD_EPEER);
    want(strcmp(hvd_error_message(), text) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_death)
{
    struct end e = {.place = worlds[_i % 4], .trial = _i};
    struct world w = {.body = death_body, .arg = &e, .place = e.place};

    w.size = (int)strlen(e.place);
    e.victim = 1 + _i / 4 % (w.size - 1);
    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert(WIFSIGNALED(w.wait_status[e.victim]));
}
END_TEST

/* ---- Leaving --------------------------------------------------------- */

static int left_error(const struct end *e, int rc)
{
    char text[96];

    snprintf(text, sizeof(text), "rank %d on host host-%c has shut down",
             e->victim, e->place[e->victim]);
    want(rc == -HVD_ESHUTDOWN);
    want(strcmp(hvd_error_message(), text) == 0);
    return 0;
}

/* The operation that all ranks have joined completes everywhere and the next
 * fails, whether a rank shut down or only exited. */
static int leave_body(int rank, void *arg)
{
    static int32_t buf[LARGE];
    const struct end *e = arg;
    size_t some[] = {1, 3000, LARGE}, count = some[e->trial % 3];

    want(hvd_init() == 0);
    for (size_t i = 0; i < count; i++)
        buf[i] = 1;
    if (e->trial % 2)
        want(hvd_broadcast(buf, buf, count, HVD_INT32, e->victim, NULL) == 0);
    want(hvd_allreduce(buf, buf, count, HVD_INT32, HVD_SUM, NULL) == 0);
    for (size_t i = 0; i < count; i++)
        want(buf[i] == hvd_size());
    if (rank == e->victim)
        return e->trial % 4 < 2 ? hvd_shutdown() : 0;
    want(left_error(e, hvd_barrier(NULL)) == 0);
    want(left_error(e, hvd_barrier(NULL)) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_leave)
{
    struct end e = {.place = worlds[_i % 4], .trial = _i / 4};
    struct world w = {.body = leave_body, .arg = &e, .place = e.place};

    w.size = (int)strlen(e.place);
    e.victim = _i % w.size;
    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

/* A large broadcast arrives although the root leaves right after handing it to
 * its kernel. */
static int leave_at_once_body(int rank, void *arg)
{
    static int32_t buf[LARGE];

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 0)
        for (int i = 0; i < LARGE; i++)
            buf[i] = i;
    want(hvd_broadcast(buf, buf, LARGE, HVD_INT32, 0, NULL) == 0);
    for (int i = 0; i < LARGE; i++)
        want(buf[i] == i);
    return 0; /* without hvd_shutdown */
}

START_TEST(test_leave_at_once)
{
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(run_on(worlds[_i], leave_at_once_body, NULL), 0);
}
END_TEST

/* The last rank shuts down inside an operation.  Its host learns that it has
 * left; other hosts may only see a lost connection, to it or to a rank that
 * failed because of it. */
static int abandon_body(int rank, void *arg)
{
    static int32_t buf[4 * LARGE];
    hvd_request *req = NULL;
    char name[24];
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == hvd_size() - 1) {
        want(hvd_allreduce_async("g", buf, buf, 4 * LARGE, HVD_INT32, HVD_SUM,
                                 NULL, &req) == 0);
        while (!atomic_load(&world_board->flag[0]))
            want(hvd_test(req, &rc) == 0);
        want(hvd_shutdown() == 0);
        rc = hvd_wait(req);
        want(rc == 0 || rc == -HVD_ESHUTDOWN);
        return 0;
    }
    want(hvd_allreduce_async("g", buf, buf, 4 * LARGE, HVD_INT32, HVD_SUM, NULL,
                             &req) == 0);
    if (rank == 0)
        atomic_store(&world_board->flag[0], 1);
    rc = hvd_wait(req);
    if (rc == 0)
        rc = hvd_barrier(NULL);
    snprintf(name, sizeof(name), "rank %d ", hvd_size() - 1);
    want(rc == -HVD_ESHUTDOWN || rc == -HVD_EPEER);
    want(rc == -HVD_EPEER || strstr(hvd_error_message(), name));
    atomic_fetch_add(&world_board->flag[1], 1);
    while (atomic_load(&world_board->flag[1]) < hvd_size() - 1)
        usleep(1000);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_abandon)
{
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(run_on(worlds[_i], abandon_body, NULL), 0);
}
END_TEST

/* ---- The network ----------------------------------------------------- */

/* Breaks every TCP connection of this process, as a network failure would. */
static void cut(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_storage sa;
        socklen_t len = sizeof(sa);

        if (getpeername(fd, (struct sockaddr *)&sa, &len) == 0 &&
            sa.ss_family != AF_UNIX)
            shutdown(fd, SHUT_RDWR);
    }
}

/* After a network failure every rank soon names a rank on the other host, even
 * ranks without a connection of their own; later calls fail alike. */
static int cut_body(int rank, void *arg)
{
    static int32_t buf[LARGE];
    const char *place = arg, *told;
    size_t count = place[2] ? LARGE : 1;
    char text[96];

    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 0)
        cut();
    want(hvd_allreduce(buf, buf, count, HVD_INT32, HVD_SUM, NULL) ==
         -HVD_EPEER);
    told = hvd_error_message();
    snprintf(text, sizeof(text), "on host host-%c: connection lost",
             place[rank] == 'a' ? 'b' : 'a');
    want(strncmp(told, "rank ", 5) == 0 && strstr(told, text));
    want(hvd_barrier(NULL) == -HVD_EPEER);
    want(strstr(hvd_error_message(), text));
    /* Stay until all know: else a rank's exit could be taken for the cause. */
    atomic_fetch_add(&world_board->flag[0], 1);
    while (atomic_load(&world_board->flag[0]) < hvd_size())
        usleep(1000);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_cut)
{
    static const char *const cuts[] = {"ab", "aabb", "aab"};

    ck_assert_int_eq(run_on(cuts[_i], cut_body, (void *)(uintptr_t)cuts[_i]),
                     0);
}
END_TEST

/* A rank that waits for a slow rank on another host sleeps. */
static int patient_body(int rank, void *arg)
{
    struct rusage before, after;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    getrusage(RUSAGE_SELF, &before);
    if (rank == 1)
        sleep(2);
    want(hvd_barrier(NULL) == 0);
    getrusage(RUSAGE_SELF, &after);
    want(after.ru_utime.tv_sec - before.ru_utime.tv_sec < 1);
    want(after.ru_nvcsw - before.ru_nvcsw < 200);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_waiting_sleeps)
{
    ck_assert_int_eq(run_on("aab", patient_body, NULL), 0);
}
END_TEST

/* ---- Memory ---------------------------------------------------------- */

START_TEST(test_no_memory_for_the_plane)
{
    static const uint32_t host_of[] = {0, 0, 1}, ranks[] = {0, 1};
    uint64_t bytes = hvd__shm_segment_bytes(2);
    struct segment_head *head = aligned_alloc(4096, bytes);
    struct hvd__map map;
    struct hvd__shm_config shm = {.head = head,
                                  .local_size = 2,
                                  .world_ranks = ranks,
                                  .host = "a",
                                  .cpus = 1};
    struct hvd__hier_config config = {.map = &map, .head = head};
    struct hvd__plane *plane = NULL;
    long n;

    ck_assert_ptr_nonnull(head);
    memset(head, 0, bytes);
    segment_head_init(head, 1, 2, bytes);
    ck_assert_int_eq(hvd__map_init(&map, 3, 2, host_of, 64, NULL), 0);
    config.shm = hvd__shm_new(&shm);
    ck_assert_ptr_nonnull(config.shm);
    for (n = 0; !plane; n++) {
        int fired;

        hb_alloc_fail_after(n);
        plane = hvd__hier_new(&config);
        fired = hb_alloc_fail_after(-1);
        ck_assert_int_eq(fired, plane == NULL);
    }
    ck_assert_int_gt(n, 5);
    plane->ops->free(plane);
    hvd__map_fini(&map);
    free(head);
}
END_TEST

static Suite *hosts_failure_suite(void)
{
    Suite *s = suite_create("hosts_failure");
    TCase *t = tcase_create("hosts_failure");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_death, 0, 24);
    tcase_add_loop_test(t, test_leave, 0, 24);
    tcase_add_loop_test(t, test_leave_at_once, 0, 4);
    tcase_add_loop_test(t, test_abandon, 0, 4);
    tcase_add_loop_test(t, test_cut, 0, 3);
    tcase_add_test(t, test_waiting_sleeps);
    tcase_add_test(t, test_no_memory_for_the_plane);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(hosts_failure_suite());
}
