/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the surviving ranks see when a rank dies, leaves, forks, loses its
 * agent, or is denied a system call.
 */
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/worker.h"
#include "runtime/core/world/agent_client.h"
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 4,
    MANY = 10,
    LARGE = 300000,
    SOON_MS = 2000,
    FILTER_ROUNDS = 500
};

/* Domains of MANY ranks: rank 2 is a leader, a member, or alone. */
static const uint32_t layouts[][MANY] = {
    {0, 0, 1, 1, 2, 2, 2, 1, 0, 0},
    {0, 0, 0, 1, 1, 2, 2, 1, 0, 0},
    {0, 0, 2, 1, 1, 1, 1, 1, 0, 0},
};
enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

/* Returns whether a rank exited with 0. */
static int ended_well(const struct world *w, int rank)
{
    return w->wait_status[rank] == 0;
}

/* ---- Death --------------------------------------------------------- */

/* Runs collectives until one fails; returns its status. */
static int until_failure(int trial)
{
    static int32_t buf[LARGE], all[MANY * 100];
    size_t counts[] = {1, 1000, LARGE};
    int rc = 0;

    for (int i = 0; rc == 0; i++) {
        atomic_fetch_add(&world_board->word[hvd_rank()], 1);
        switch ((i + trial) % 4) {
        case 0:
            rc = hvd_barrier(NULL);
            break;
        case 1:
            rc = hvd_broadcast(buf, buf, counts[trial % 3], HVD_INT32,
                               i % hvd_size(), NULL);
            break;
        case 2:
            rc =
                hvd_allgather(buf, 100, all, MANY * 100, NULL, HVD_INT32, NULL);
            break;
        default:
            rc = hvd_allreduce(buf, buf, counts[trial % 3], HVD_INT32, HVD_SUM,
                               NULL);
        }
    }
    return rc;
}

static int survivor(int rc)
{
    int32_t v = 1;
    hvd_request *req = NULL;
    struct hvd_stats stats = {.size = sizeof(stats)};

    want(rc == -HVD_EPEER);
    want(strcmp(hvd_error_message(),
                "rank 2 on host testhost: killed by signal 9") == 0);
    /* Later calls fail alike, blocking or not, and hvd_shutdown works. */
    want(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL) == -HVD_EPEER);
    want(hvd_barrier_async("x", NULL, &req) == 0);
    want(hvd_wait(req) == -HVD_EPEER);
    want(strstr(hvd_error_message(), "rank 2 on host testhost"));
    want(hvd_stats(&stats) == 0 && stats.errors >= 3);
    want(hvd_shutdown() == 0);
    return 0;
}

/* Rank 0 has rank 2 killed after some operations. */
static int death_body(int rank, void *arg)
{
    int trial = *(int *)arg;

    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 0)
        atomic_store(&world_board->kill_rank, 2 + 1);
    return survivor(until_failure(trial));
}

START_TEST(test_death_at_random_points)
{
    int trial = _i;
    struct world w = {.size = RANKS, .body = death_body, .arg = &trial};

    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert(WIFSIGNALED(w.wait_status[2]));
}
END_TEST

START_TEST(test_death_by_domain)
{
    int trial = _i;
    struct world w = {.size = MANY,
                      .body = death_body,
                      .arg = &trial,
                      .domains = layouts[_i % LAYOUTS]};

    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert(WIFSIGNALED(w.wait_status[2]));
}
END_TEST

/* The others sleep in a collective when a rank dies: they must wake up within a
 * limit that is generous for slow machines. */
static int death_asleep_body(int rank, void *arg)
{
    uint64_t before_ns;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 2) {
        while (atomic_load(&world_board->flag[0]) < hvd_size() - 1)
            sched_yield();
        usleep(50000); /* likely asleep by now; passes either way */
        atomic_store(&world_board->word[8], hb_now_ns());
        raise(SIGKILL);
    }
    atomic_fetch_add(&world_board->flag[0], 1);
    rc = hvd_barrier(NULL);
    before_ns = atomic_load(&world_board->word[8]);
    want(hb_now_ns() - before_ns < (uint64_t)SOON_MS * 1000000);
    return survivor(rc);
}

START_TEST(test_death_asleep)
{
    struct world w = {.size = RANKS, .body = death_asleep_body};

    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert(WIFSIGNALED(w.wait_status[2]));
}
END_TEST

START_TEST(test_death_asleep_by_domain)
{
    struct world w = {
        .size = MANY, .body = death_asleep_body, .domains = layouts[_i]};

    ck_assert_int_eq(world_run_with(&w), 1);
    ck_assert(WIFSIGNALED(w.wait_status[2]));
}
END_TEST

/* Some ranks wait in hvd_wait, driven by the engine thread or by themselves. */
static int death_async_body(int rank, void *arg)
{
    static int32_t buf[1000];
    hvd_request *reqs[10];

    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 2)
        raise(SIGKILL);
    for (int i = 0; i < 10; i++)
        want(hvd_allreduce_async(NULL, buf + i * 100, buf + i * 100, 100,
                                 HVD_INT32, HVD_SUM, NULL, &reqs[i]) == 0);
    for (int i = 0; i < 9; i++)
        want(hvd_wait(reqs[i]) == -HVD_EPEER);
    return survivor(hvd_wait(reqs[9]));
}

START_TEST(test_death_async)
{
    struct world w = {.size = RANKS, .body = death_async_body};

    ck_assert_int_eq(world_run_with(&w), 1);
}
END_TEST

/* A rank that passes memory which it cannot access is killed by SIGSEGV, also
 * over TCP, and whether the calling thread or the engine thread accesses it. */
static int bad_memory_body(int rank, void *arg)
{
    enum { BYTES = 1 << 20 };
    void *memory = mmap(NULL, BYTES, rank ? PROT_NONE : PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    hvd_request *req;

    want(memory != MAP_FAILED && hvd_init() == 0 && hvd_barrier(NULL) == 0);
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
    want(hvd_broadcast_async("b", memory, memory, BYTES, HVD_UINT8, 1, NULL,
                             &req) == 0);
    if (*(int *)arg)
        usleep(300000);
    want(hvd_wait(req) == -HVD_EPEER);
    want(strstr(hvd_error_message(), "killed by signal 11"));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_bad_memory)
{
    struct world w = {
        .size = 2, .body = bad_memory_body, .place = _i / 2 ? "ab" : "aa"};
    int waits = _i % 2;

    w.arg = &waits;
    ck_assert_int_eq(world_run_with(&w), 1);
}
END_TEST

/* ---- Leaving ------------------------------------------------------- */

static int left_error(int rc, int by)
{
    char text[64];

    snprintf(text, sizeof(text), "rank %d on host testhost has shut down", by);
    want(rc == -HVD_ESHUTDOWN);
    want(strcmp(hvd_error_message(), text) == 0);
    return 0;
}

/* Rank 1 leaves after an operation that all ranks have published: that one
 * completes everywhere, the next fails. */
static int leave_body(int rank, void *arg)
{
    static int32_t buf[LARGE];
    size_t counts[] = {1, 3000, LARGE};
    size_t count = counts[*(int *)arg % 3];

    want(hvd_init() == 0);
    for (size_t i = 0; i < count; i++)
        buf[i] = 1;
    want(hvd_allreduce(buf, buf, count, HVD_INT32, HVD_SUM, NULL) == 0);
    for (size_t i = 0; i < count; i++)
        want(buf[i] == hvd_size());
    if (rank == 1) {
        want(hvd_shutdown() == 0);
        want(hvd_barrier(NULL) == -HVD_ENOTINIT);
        return 0;
    }
    want(left_error(hvd_barrier(NULL), 1) == 0);
    want(left_error(hvd_barrier(NULL), 1) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_leave)
{
    ck_assert_int_eq(world_run(RANKS, leave_body, &_i), 0);
}
END_TEST

START_TEST(test_leave_by_domain)
{
    /* Rank 1 is a member, or a leader. */
    static const uint32_t domains[2][MANY] = {{0, 0, 1, 0, 1}, {0, 1, 1, 1}};
    struct world w = {.size = MANY,
                      .body = leave_body,
                      .arg = &_i,
                      .domains = domains[_i % 2]};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

/* A rank that exits without hvd_shutdown counts as having left, not as dead:
 * its destructor wakes the others. */
static int exit_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == 0);
    if (rank == 3) {
        usleep(20000); /* the others are likely asleep */
        return 0;
    }
    want(left_error(hvd_barrier(NULL), 3) == 0);
    return 0; /* nor do these call hvd_shutdown */
}

START_TEST(test_exit_without_shutdown)
{
    ck_assert_int_eq(world_run(RANKS, exit_body, NULL), 0);
}
END_TEST

/* ---- The agent ----------------------------------------------------- */

static int orphan_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    if (rank == 1) {
        while (!atomic_load(&world_board->flag[0]))
            sched_yield();
        return hvd_shutdown();
    }
    want(hvd_barrier(NULL) == -HVD_ECLOSED);
    want(strstr(hvd_error_message(), "agent on this host is gone"));
    atomic_store(&world_board->flag[0], 1);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_agent_gone)
{
    struct world w = {.size = 2, .body = orphan_body, .fault = WORLD_GONE};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

/* A failed allocation does not cost a rank its agent: the message is read
 * later. */
START_TEST(test_no_memory_for_the_agent)
{
    struct hvd__agent a = HVD__AGENT_INIT;
    struct worker_abort m = {.rank = 3, .text = "rank 3 died"};
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf out = HB_BUF_INIT;
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    a.fd = fds[0];
    ck_assert_int_eq(worker_encode_abort(&out, &m), 0);
    ck_assert_int_eq(write(fds[1], hb_buf_data(&out), hb_buf_len(&out)),
                     (ssize_t)hb_buf_len(&out));
    hb_alloc_fail_after(0);
    ck_assert_int_eq(hvd__agent_check(&a, &err), 0);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
    ck_assert_int_eq(err.status, 0);
    ck_assert_int_eq(hvd__agent_check(&a, &err), -HVD_EPEER);
    ck_assert_str_eq(err.text, "rank 3 died");
    ck_assert_int_eq(err.rank, 3);
    hb_buf_free(&out);
    hvd__agent_close(&a);
    close(fds[1]);
}
END_TEST

/* ---- System calls that a filter refuses ------------------------------ */

static int refuse_membarrier(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    want(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    want(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    return 0;
}

/* Ranks wake each other also where membarrier is refused, on some or all ranks,
 * before or after hvd_init.  One lost wake-up would exceed the world's time
 * limit. */
static int filter_body(int rank, void *arg)
{
    int trial = *(int *)arg;
    int filtered = trial & 1 || rank == 1;

    if (filtered && !(trial & 2))
        want(refuse_membarrier() == 0);
    want(hvd_init() == 0);
    if (filtered && trial & 2)
        want(refuse_membarrier() == 0);
    for (int i = 0; i < FILTER_ROUNDS; i++) {
        int32_t v = 1;

        if (i % 2 == rank)
            usleep((useconds_t)(280 + i % 64));
        want(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL) == 0);
        want(v == 2);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_no_membarrier)
{
    ck_assert_int_eq(world_run(2, filter_body, &_i), 0);
}
END_TEST

/* ---- Fork ---------------------------------------------------------- */

static int in_child(hvd_request *req)
{
    int32_t v = 1;
    int done = 0;

    want(!hvd_is_initialized());
    want(hvd_rank() == -HVD_ENOTINIT);
    want(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL) == -HVD_ENOTINIT);
    want(hvd_init() == -HVD_EUNSUPPORTED);
    want(strstr(hvd_error_message(), "forked from rank 1"));
    want(hvd_wait(req) == -HVD_ENOTINIT);
    want(hvd_test(req, &done) == -HVD_ENOTINIT && !done);
    want(strstr(hvd_error_message(), "forked"));
    want(hvd_shutdown() == 0);
    return 0;
}

/* Exits with the destructor.  Not under AddressSanitizer, whose leak checker's
 * locks another thread may have held at the fork. */
static void end_child(int rc)
{
#ifdef __SANITIZE_ADDRESS__
    _exit(rc);
#else
    exit(rc);
#endif
}

/* A forked child's exit, destructor included, does not disturb its parent,
 * whose operation is in flight until rank 0 joins it. */
static int fork_body(int rank, void *arg)
{
    hvd_request *req = NULL;

    (void)arg;
    want(hvd_init() == 0);
    if (rank == 1) {
        int status = -1;
        pid_t pid;

        want(hvd_barrier_async("b", NULL, &req) == 0);
        pid = fork();
        if (pid == 0)
            end_child(in_child(req));
        want(waitpid(pid, &status, 0) == pid && status == 0);
        atomic_store(&world_board->flag[0], 1);
        want(hvd_wait(req) == 0);
    } else {
        while (!atomic_load(&world_board->flag[0]))
            sched_yield();
        want(hvd_barrier_async("b", NULL, &req) == 0);
        want(hvd_wait(req) == 0);
    }
    for (int i = 0; i < 3; i++) {
        int32_t v = 1;

        want(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL) == 0);
        want(v == 2);
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_fork)
{
    struct world w = {.size = 2, .body = fork_body};

    ck_assert_int_eq(world_run_with(&w), 0);
    ck_assert(ended_well(&w, 1));
}
END_TEST

static Suite *failure_suite(void)
{
    Suite *s = suite_create("failure");
    TCase *t = tcase_create("failure");

    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, test_death_at_random_points, 0, 24);
    tcase_add_test(t, test_death_asleep);
    tcase_add_loop_test(t, test_death_by_domain, 0, 12);
    tcase_add_loop_test(t, test_death_asleep_by_domain, 0, LAYOUTS);
    tcase_add_test(t, test_death_async);
    tcase_add_loop_test(t, test_bad_memory, 0, 4);
    tcase_add_loop_test(t, test_leave, 0, 30);
    tcase_add_loop_test(t, test_leave_by_domain, 0, 6);
    tcase_add_test(t, test_exit_without_shutdown);
    tcase_add_test(t, test_agent_gone);
    tcase_add_test(t, test_no_memory_for_the_agent);
    tcase_add_loop_test(t, test_no_membarrier, 0, 4);
    tcase_add_test(t, test_fork);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(failure_suite());
}
