/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/cause.h: why a rank ended, with fixtures for the kernel. */
#include "lib/agent/cause.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static struct fixture fixture;
static struct cause cause;

static void setup(void)
{
    fixture_open(&fixture);
    memset(&cause, 0, sizeof(cause));
}

static void teardown(void)
{
    cause_fini(&cause);
    fixture_close(&fixture);
}

/* What becomes of an end; the phrase goes to text. */
static struct control_exited explain(struct cause_facts f, int code, int status,
                                     char text[256])
{
    siginfo_t info = {.si_code = code};
    struct control_exited m;
    char *phrase;

    memset(&m, 0, sizeof(m));
    info.si_status = status;
    f.info = &info;
    if (!f.cwd)
        f.cwd = "/proc"; /* a file system without blocks */
    cause_explain(&cause, &f, &m);
    phrase = cause_phrase(&m);
    snprintf(text, 256, "%s", phrase);
    hb_free(phrase);
    hb_free(m.detail);
    m.detail = NULL;
    return m;
}

static void make_v1(int kills)
{
    char text[64];

    fixture_file(&fixture, "proc/self/cgroup",
                 "9:name=systemd:/\n4:memory:/job\n0::/\n");
    snprintf(text, sizeof(text),
             "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills);
    fixture_file(&fixture, "sys/fs/cgroup/memory/job/memory.oom_control", text);
    fixture_file(&fixture, "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                 "9223372036854771712\n");
    fixture_file(&fixture, "sys/fs/cgroup/memory/memory.limit_in_bytes",
                 "3221225472\n");
}

static void make_v2(int kills)
{
    char text[64];

    fixture_file(&fixture, "proc/self/cgroup", "0::/a/b\n");
    snprintf(text, sizeof(text), "low 0\noom 7\noom_kill %d\n", kills);
    fixture_file(&fixture, "sys/fs/cgroup/a/b/memory.events", text);
    fixture_file(&fixture, "sys/fs/cgroup/a/b/memory.max", "max\n");
    fixture_file(&fixture, "sys/fs/cgroup/a/memory.max", "2147483648\n");
}

START_TEST(test_exit)
{
    struct cause_facts f = {.pid = 10};
    struct control_exited m;
    char text[256];

    cause_init(&cause, fixture.root);
    m = explain(f, CLD_EXITED, 0, text);
    ck_assert_int_eq(m.exit_code, 0);
    ck_assert_int_eq(m.cause, CONTROL_CAUSE_EXIT);
    m = explain(f, CLD_EXITED, 3, text);
    ck_assert_int_eq(m.exit_code, 3);
    ck_assert_int_eq(m.signal, 0);
    ck_assert_str_eq(text, "exited with code 3");
}
END_TEST

START_TEST(test_signals)
{
    struct cause_facts f = {.pid = 10};
    struct control_exited m;
    char text[256];

    cause_init(&cause, fixture.root);
    m = explain(f, CLD_DUMPED, SIGSEGV, text);
    ck_assert_int_eq(m.exit_code, 139);
    ck_assert_int_eq(m.core_dumped, 1);
    ck_assert_int_eq(m.cause, CONTROL_CAUSE_SIGNAL);
    ck_assert_str_eq(text, "killed by signal 11 (SIGSEGV), core dumped");
    explain(f, CLD_KILLED, SIGXCPU, text);
    ck_assert_ptr_nonnull(strstr(text, "limit on CPU time"));
    explain(f, CLD_KILLED, SIGXFSZ, text);
    ck_assert_ptr_nonnull(strstr(text, "limit on file size"));
    explain(f, CLD_KILLED, SIGRTMIN + 6, text);
    ck_assert_ptr_nonnull(strstr(text, "(signal 40)"));
}
END_TEST

START_TEST(test_kill_from_outside)
{
    struct cause_facts f = {.pid = 10};
    char text[256];

    make_v1(2);
    cause_init(&cause, fixture.root);
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_SIGNAL);
    ck_assert_str_eq(text, "killed by signal 9 (SIGKILL): by an unknown "
                           "process: not by hvdrun, no out-of-memory kill "
                           "recorded");
}
END_TEST

START_TEST(test_hard_limit_on_cpu_time)
{
    struct cause_facts f = {.pid = 10, .cpu_used_up = 1};
    char text[256];

    make_v1(2);
    cause_init(&cause, fixture.root);
    explain(f, CLD_KILLED, SIGKILL, text);
    ck_assert_ptr_nonnull(strstr(text, "limit on CPU time"));
}
END_TEST

START_TEST(test_our_own_signals)
{
    struct cause_facts f = {.pid = 10,
                            .ending = 1,
                            .sent = UINT64_C(1) << SIGTERM |
                                    UINT64_C(1) << SIGKILL |
                                    UINT64_C(1) << SIGUSR1};
    char text[256];

    make_v1(0);
    cause_init(&cause, fixture.root);
    make_v1(1); /* somebody else's, not to be blamed */
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_HVDRUN);
    ck_assert_str_eq(text, "killed by signal 9 (SIGKILL)");
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGUSR1, text).cause,
                     CONTROL_CAUSE_HVDRUN);
    ck_assert_ptr_nonnull(strstr(text, "SIGUSR1 passed on by hvdrun"));
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGUSR2, text).cause,
                     CONTROL_CAUSE_SIGNAL);
}
END_TEST

START_TEST(test_cgroup_v1_oom_with_the_limit_above)
{
    struct cause_facts f = {.pid = 10};
    char text[256];

    make_v1(2);
    cause_init(&cause, fixture.root);
    make_v1(3);
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_OOM);
    ck_assert_str_eq(text, "killed by signal 9 (SIGKILL): out of memory: "
                           "cgroup limit 3 GiB");
    /* One kill explains one death. */
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_SIGNAL);
}
END_TEST

START_TEST(test_cgroup_v2_oom)
{
    struct cause_facts f = {.pid = 10};
    char text[256];

    make_v2(0);
    cause_init(&cause, fixture.root);
    make_v2(2);
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_OOM);
    ck_assert_ptr_nonnull(strstr(text, "cgroup limit 2 GiB"));
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_OOM);
}
END_TEST

START_TEST(test_host_oom_without_a_cgroup)
{
    struct cause_facts f = {.pid = 10};
    char text[256];

    fixture_file(&fixture, "proc/vmstat", "nr_free_pages 1\noom_kill 4\n");
    cause_init(&cause, fixture.root);
    fixture_file(&fixture, "proc/vmstat", "nr_free_pages 1\noom_kill 5\n");
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_OOM);
    ck_assert_ptr_nonnull(strstr(text, "the host's memory was used up"));
}
END_TEST

START_TEST(test_kernel_log)
{
    struct cause_facts f = {.pid = 4711};
    char text[256];

    fixture_file(&fixture, "dev/kmsg", "");
    cause_init(&cause, fixture.root);
    fixture_file(&fixture, "dev/kmsg",
                 "3,1,2,-;Out of memory: Killed process 4711 (python3)\n");
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_OOM);
}
END_TEST

/* sh -c "program; ..." exits 137 when its child is killed. */
START_TEST(test_oom_behind_a_shell)
{
    struct cause_facts f = {.pid = 10};
    char text[256];

    make_v2(0);
    cause_init(&cause, fixture.root);
    make_v2(2);
    ck_assert_int_eq(explain(f, CLD_EXITED, 137, text).cause,
                     CONTROL_CAUSE_OOM);
    ck_assert_int_eq(explain(f, CLD_EXITED, 1, text).cause, CONTROL_CAUSE_EXIT);
    ck_assert_ptr_nonnull(strstr(text, "a process of this job was killed"));
}
END_TEST

START_TEST(test_full_disk_in_stderr)
{
    struct cause_facts f = {.pid = 10,
                            .tail = "write: No space left on device\n"};
    char text[256];

    f.tmpdir = "/proc";
    cause_init(&cause, fixture.root);
    explain(f, CLD_EXITED, 1, text);
    ck_assert_str_eq(text,
                     "exited with code 1: it reported that a disk is full");
    f.tail = "OSError: [Errno 122] Disk quota exceeded\n";
    explain(f, CLD_EXITED, 1, text);
    ck_assert_ptr_nonnull(strstr(text, "disk quota"));
    f.tail = NULL;
    explain(f, CLD_EXITED, 1, text);
    ck_assert_str_eq(text, "exited with code 1");
}
END_TEST

/* In a container the path of the cgroup can be the host's. */
START_TEST(test_cgroup_path_not_visible)
{
    struct cause_facts f = {.pid = 10};
    char text[256];

    fixture_file(&fixture, "proc/self/cgroup", "0::/host/path\n");
    fixture_file(&fixture, "sys/fs/cgroup/memory.events", "oom_kill 0\n");
    cause_init(&cause, fixture.root);
    fixture_file(&fixture, "sys/fs/cgroup/memory.events", "oom_kill 1\n");
    ck_assert_int_eq(explain(f, CLD_KILLED, SIGKILL, text).cause,
                     CONTROL_CAUSE_OOM);
    ck_assert_ptr_nonnull(strstr(text, "out of memory"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cause");
    TCase *t = tcase_create("cause");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_exit);
    tcase_add_test(t, test_signals);
    tcase_add_test(t, test_kill_from_outside);
    tcase_add_test(t, test_hard_limit_on_cpu_time);
    tcase_add_test(t, test_our_own_signals);
    tcase_add_test(t, test_cgroup_v1_oom_with_the_limit_above);
    tcase_add_test(t, test_cgroup_v2_oom);
    tcase_add_test(t, test_host_oom_without_a_cgroup);
    tcase_add_test(t, test_kernel_log);
    tcase_add_test(t, test_oom_behind_a_shell);
    tcase_add_test(t, test_full_disk_in_stderr);
    tcase_add_test(t, test_cgroup_path_not_visible);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
