/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_init and hvd_shutdown: worlds of one and of several ranks, repeated, and
 * every way in which the environment or the agent can be wrong.
 */
#include "lib/base/alloc.h"
#include "runtime/core/world/blame.h"
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- A world of one ------------------------------------------------ */

START_TEST(test_alone)
{
    float a[3] = {1, 2, 3}, b[3] = {0};
    struct hvd_options half = HVD_OPTIONS_INIT;
    size_t got = 0;

    ck_assert_int_eq(hvd_is_initialized(), 0);
    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_is_initialized(), 1);
    ck_assert_int_eq(hvd_rank(), 0);
    ck_assert_int_eq(hvd_size(), 1);
    ck_assert_int_eq(hvd_local_rank(), 0);
    ck_assert_int_eq(hvd_local_size(), 1);
    ck_assert_int_eq(hvd_cross_rank(), 0);
    ck_assert_int_eq(hvd_cross_size(), 1);
    half.prescale = 0.5;
    ck_assert_int_eq(hvd_allreduce(a, b, 3, HVD_FLOAT32, HVD_AVERAGE, &half),
                     0);
    ck_assert(b[0] == 0.5f && b[2] == 1.5f);
    ck_assert_int_eq(hvd_broadcast(a, b, 3, HVD_FLOAT32, 0, NULL), 0);
    ck_assert(b[2] == 3);
    ck_assert_int_eq(hvd_allgather(a, 2, b, 3, &got, HVD_FLOAT32, NULL), 0);
    ck_assert_uint_eq(got, 2);
    ck_assert_int_eq(hvd_barrier(NULL), 0);
    ck_assert_int_eq(hvd_shutdown(), 0);
    ck_assert_int_eq(hvd_shutdown(), 0);
    ck_assert_int_eq(hvd_is_initialized(), 0);
}
END_TEST

START_TEST(test_before_init)
{
    hvd_request *req = NULL;

    ck_assert_int_eq(hvd_rank(), -HVD_ENOTINIT);
    ck_assert_int_eq(hvd_cross_size(), -HVD_ENOTINIT);
    ck_assert_int_eq(hvd_barrier(NULL), -HVD_ENOTINIT);
    ck_assert_int_eq(hvd_barrier_async("b", NULL, &req), -HVD_ENOTINIT);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "hvd_init"));
    ck_assert_int_eq(hvd_shutdown(), 0);
    ck_assert_str_ne(hvd_version(), "");
}
END_TEST

static void init_fails(int status, const char *text)
{
    ck_assert_int_eq(hvd_init(), -status);
    ck_assert_msg(strstr(hvd_error_message(), text), "%s", hvd_error_message());
    ck_assert_int_eq(hvd_is_initialized(), 0);
}

START_TEST(test_environment)
{
    setenv("HVD_SIZE", "4", 1);
    init_fails(HVD_EINVAL, "HVD_RENDEZVOUS is not set");
    setenv("HVD_SIZE", "four", 1);
    init_fails(HVD_EINVAL, "hvd_init: ");
    unsetenv("HVD_SIZE");
    setenv("HVD_RENDEZVOUS", "unix:@nobody-listens-here", 1);
    init_fails(HVD_EINVAL, "HVD_RANK is not");
    setenv("HVD_RANK", "0", 1);
    init_fails(HVD_ESYSTEM, "connect to the agent");
    setenv("HVD_RENDEZVOUS", "unix:/nobody/listens/here", 1);
    init_fails(HVD_ENOENT, "connect to the agent");
    setenv("HVD_RENDEZVOUS", "tcp:host:1", 1);
    init_fails(HVD_EINVAL, "unix:@NAME");
    setenv("HVD_RENDEZVOUS", "unix:", 1);
    init_fails(HVD_EINVAL, "unix:@NAME");
    setenv("HVD_RENDEZVOUS", "unix:@", 1);
    init_fails(HVD_EINVAL, "not a socket's");
    setenv("HVD_START_TIMEOUT", "soon", 1);
    init_fails(HVD_EINVAL, "HVD_START_TIMEOUT");
    unsetenv("HVD_START_TIMEOUT");
    unsetenv("HVD_RENDEZVOUS");
    unsetenv("HVD_RANK");
    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_shutdown(), 0);
}
END_TEST

/* In the program itself there is a world of one, and no plug-in beside it. */
START_TEST(test_feature)
{
    static const struct {
        const char *name;
        int before, inside;
    } cases[] = {
        {"mpi_enabled", 0, 0},
        {"mpi_threads_supported", -HVD_ENOTINIT, 0},
        {"gloo_built", 1, 1},
        {"gloo_enabled", 0, 1},
        {"rocm_built", 0, 0},
        {"ddl_built", 0, 0},
        {"ccl_built", 0, 0},
        {"is_homogeneous", -HVD_ENOTINIT, 1},
        {"", -HVD_EINVAL, -HVD_EINVAL},
        {"mpi", -HVD_EINVAL, -HVD_EINVAL},
        {NULL, -HVD_EINVAL, -HVD_EINVAL},
    };

    for (int inside = 0; inside < 2; inside++) {
        if (inside)
            ck_assert_int_eq(hvd_init(), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            ck_assert_int_eq(hvd_feature(cases[i].name),
                             inside ? cases[i].inside : cases[i].before);
    }
    ck_assert_int_eq(hvd_shutdown(), 0);
    ck_assert_int_eq(hvd_feature("mpi"), -HVD_EINVAL);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "\"mpi\""));
    setenv("HVD_PLUGIN_DIR", "/nowhere", 1);
    ck_assert_int_eq(hvd_feature("mpi_built"), 0);
    ck_assert_int_eq(hvd_feature("cuda_built"), 0);
    ck_assert_int_eq(hvd_feature("nccl_built"), 0);
    unsetenv("HVD_PLUGIN_DIR");
}
END_TEST

START_TEST(test_local_gpu)
{
    ck_assert_int_eq(hvd_local_gpu(), -HVD_ENOTINIT);
    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_local_gpu(), -HVD_ENOENT);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "HVD_GPU is not set"));
    hvd_shutdown();
    setenv("HVD_GPU", "3", 1);
    ck_assert_int_eq(hvd_init(), 0);
    ck_assert_int_eq(hvd_local_gpu(), 3);
    hvd_shutdown();
    ck_assert_int_eq(hvd_local_gpu(), -HVD_ENOTINIT);
    setenv("HVD_GPU", "-1", 1);
    init_fails(HVD_EINVAL, "HVD_GPU");
    setenv("HVD_GPU", "first", 1);
    init_fails(HVD_EINVAL, "HVD_GPU");
    unsetenv("HVD_GPU");
}
END_TEST

/* ---- Worlds -------------------------------------------------------- */

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int again_body(int rank, void *arg)
{
    int files = open_files();

    (void)arg;
    for (int i = 0; i < 50; i++) {
        int32_t v = rank + i;
        hvd_request *req = NULL;

        want(hvd_init() == 0);
        want(hvd_rank() == rank && hvd_size() == 3);
        want(hvd_local_rank() == rank && hvd_local_size() == 3);
        want(hvd_cross_rank() == 0 && hvd_cross_size() == 1);
        want(hvd_allreduce_async("v", &v, &v, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == 0);
        want(hvd_wait(req) == 0);
        want(v == 3 + 3 * i);
        want(hvd_shutdown() == 0);
    }
    want(open_files() == files);
    return 0;
}

START_TEST(test_again_and_again)
{
    ck_assert_int_eq(world_run(3, again_body, NULL), 0);
}
END_TEST

/* Every allocation of hvd_init fails once, in a world of one rank with an
 * agent; then hvd_init works. */
static int no_memory_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    for (long n = 0;; n++) {
        int rc, fired;

        hb_alloc_fail_after(n);
        rc = hvd_init();
        fired = hb_alloc_fail_after(-1);
        if (!fired) {
            want(rc == 0 && n > 0);
            break;
        }
        want(rc == -HVD_ENOMEM && !hvd_is_initialized());
    }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_no_memory)
{
    ck_assert_int_eq(world_run(1, no_memory_body, NULL), 0);
}
END_TEST

/* ---- Forked children ----------------------------------------------- */

/* A forked child inherits the agent's socket, but cannot speak for the rank. */
START_TEST(test_child_blames_nobody)
{
    struct hvd__agent agent = HVD__AGENT_INIT;
    struct hb_error err = HB_ERROR_INIT;
    char frame[WORKER_BLAMES_BYTES];
    int ends[2], status;
    pid_t pid;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ck_assert_int_eq(hvd_init(), 0);
    agent.fd = ends[0];
    hvd__blame_open(&agent);
    hb_error_set(&err, HVD_EPEER, "rank 1 has died");
    err.rank = 1;
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        hvd__blame(&err);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(recv(ends[1], frame, sizeof(frame), MSG_DONTWAIT), -1);
    hvd__blame(&err);
    ck_assert_int_eq(recv(ends[1], frame, sizeof(frame), MSG_DONTWAIT),
                     sizeof(frame));
    hvd__blame_close();
    ck_assert_int_eq(hvd_shutdown(), 0);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* ---- Bad agents ---------------------------------------------------- */

static const struct {
    enum world_fault fault;
    int size, status;
    const char *text;
} faults[] = {
    {WORLD_REFUSES, 2, HVD_EPERM, "refused this rank: no such rank"},
    {WORLD_IS_SILENT, 2, HVD_ETIMEOUT, "HVD_START_TIMEOUT"},
    {WORLD_TALKS_RUBBISH, 2, HVD_EPROTO, "hvd_init: "},
    {WORLD_HANGS_UP, 2, HVD_ECLOSED, "agent on this host is gone"},
    {WORLD_WRONG_SIZE, 2, HVD_EINVAL, "HVD_SIZE is 2 and hvdrun says 3"},
    {WORLD_SMALL_SEGMENT, 2, HVD_EPROTO, "the segment has"},
    {WORLD_BAD_HEAD, 2, HVD_EPROTO, "head is not ours"},
    {WORLD_NO_MEMFD, 2, HVD_EPROTO, "malformed SEGMENT"},
};
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

static int fault_body(int rank, void *arg)
{
    int i = *(int *)arg, files = open_files();

    (void)rank;
    if (faults[i].fault == WORLD_IS_SILENT)
        setenv("HVD_START_TIMEOUT", "100ms", 1);
    want(hvd_init() == -faults[i].status);
    want(strstr(hvd_error_message(), faults[i].text));
    want(!hvd_is_initialized() && hvd_rank() == -HVD_ENOTINIT);
    want(open_files() == files);
    return 0;
}

START_TEST(test_faults)
{
    struct world w = {.size = faults[_i].size,
                      .body = fault_body,
                      .arg = &_i,
                      .fault = faults[_i].fault};

    ck_assert_int_eq(world_run_with(&w), 0);
}
END_TEST

static Suite *init_suite(void)
{
    Suite *s = suite_create("init");
    TCase *t = tcase_create("init");

    tcase_set_timeout(t, 200);
    tcase_add_test(t, test_alone);
    tcase_add_test(t, test_before_init);
    tcase_add_test(t, test_environment);
    tcase_add_test(t, test_feature);
    tcase_add_test(t, test_local_gpu);
    tcase_add_test(t, test_again_and_again);
    tcase_add_test(t, test_no_memory);
    tcase_add_test(t, test_child_blames_nobody);
    tcase_add_loop_test(t, test_faults, 0, FAULTS);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(init_suite());
}
