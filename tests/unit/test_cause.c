/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/cause.h: why a rank ended, with fixtures for the kernel. */
#include "lib/agent/rank/cause.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static struct fixture fixture;
static struct cause cause;
static struct cause_facts facts;
static char text[256]; /* phrase for the last end */

static void setup(void)
{
    fixture_open(&fixture);
    memset(&cause, 0, sizeof(cause));
    facts = (struct cause_facts){
        .pid = 10,
        .cpu = {RLIM_INFINITY, RLIM_INFINITY},
        .cwd = "/proc", /* a file system without blocks */
    };
}

static void teardown(void)
{
    cause_fini(&cause);
    fixture_close(&fixture);
}

/* Explains an end; sets `text` to its phrase. */
static struct control_exited explain(int code, int status)
{
    siginfo_t info = {.si_code = code};
    struct control_exited m;
    struct hb_buf phrase = HB_BUF_INIT;

    memset(&m, 0, sizeof(m));
    info.si_status = status;
    facts.info = &info;
    cause_explain(&cause, &facts, &m);
    hb_must(control_exited_phrase(&phrase, &m));
    snprintf(text, sizeof(text), "%s", hb_buf_data(&phrase));
    hb_buf_free(&phrase);
    hb_free(m.detail);
    m.detail = NULL;
    return m;
}

static void expect(int code, int status, enum control_cause wanted)
{
    ck_assert_int_eq(explain(code, status).cause, wanted);
}

static void make_v1(int kills)
{
    char kill[64];

    fixture_file(&fixture, "proc/self/cgroup",
                 "9:name=systemd:/\n4:memory:/job\n0::/\n");
    snprintf(kill, sizeof(kill),
             "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills);
    fixture_file(&fixture, "sys/fs/cgroup/memory/job/memory.oom_control", kill);
    fixture_file(&fixture, "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                 "9223372036854771712\n");
    fixture_file(&fixture, "sys/fs/cgroup/memory/memory.limit_in_bytes",
                 "3221225472\n");
}

static void make_v2(int kills)
{
    char kill[64];

    fixture_file(&fixture, "proc/self/cgroup", "0::/a/b\n");
    snprintf(kill, sizeof(kill), "low 0\noom 7\noom_kill %d\n", kills);
    fixture_file(&fixture, "sys/fs/cgroup/a/b/memory.events", kill);
    fixture_file(&fixture, "sys/fs/cgroup/a/b/memory.max", "max\n");
    fixture_file(&fixture, "sys/fs/cgroup/a/memory.max", "2147483648\n");
}

START_TEST(test_exit)
{
    struct control_exited m;

    cause_init(&cause, fixture.root);
    m = explain(CLD_EXITED, 0);
    ck_assert_int_eq(m.exit_code, 0);
    ck_assert_int_eq(m.cause, CONTROL_CAUSE_EXIT);
    m = explain(CLD_EXITED, 3);
    ck_assert_int_eq(m.exit_code, 3);
    ck_assert_int_eq(m.signal, 0);
    ck_assert_str_eq(text, "exit code 3");
}
END_TEST

START_TEST(test_signals)
{
    struct control_exited m;

    cause_init(&cause, fixture.root);
    m = explain(CLD_DUMPED, SIGSEGV);
    ck_assert_int_eq(m.exit_code, 139);
    ck_assert_int_eq(m.core_dumped, 1);
    ck_assert_int_eq(m.cause, CONTROL_CAUSE_SIGNAL);
    ck_assert_str_eq(text, "killed by signal 11 (SIGSEGV), core dumped");
    explain(CLD_KILLED, SIGXFSZ);
    ck_assert_ptr_nonnull(strstr(text, "limit on file size"));
    explain(CLD_KILLED, SIGRTMIN + 6);
    ck_assert_ptr_nonnull(strstr(text, "(SIGRTMIN+6)"));
}
END_TEST

/* Another process sent the signal, or the program raised it itself. */
START_TEST(test_signals_from_elsewhere)
{
    static const int sent[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
                               SIGUSR1, SIGUSR2, SIGCHLD, SIGXCPU};
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGABRT,
                              SIGSYS,  SIGTRAP, SIGPIPE, SIGALRM};

    cause_init(&cause, fixture.root);
    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
        expect(CLD_KILLED, sent[i], CONTROL_CAUSE_SIGNAL);
        ck_assert_msg(strstr(text, "): not sent by hvdrun") != NULL, "%s",
                      text);
    }
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        explain(CLD_KILLED, own[i]);
        ck_assert_ptr_null(strstr(text, "): "));
    }
}
END_TEST

START_TEST(test_kill_from_outside)
{
    make_v1(2);
    cause_init(&cause, fixture.root);
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_SIGNAL);
    ck_assert_str_eq(text, "killed by signal 9 (SIGKILL): by an unknown "
                           "process: not by hvdrun, no out-of-memory kill "
                           "recorded");
}
END_TEST

/* A busy machine counts CPU time roughly: an error of a quarter is allowed. */
START_TEST(test_limit_on_cpu_time)
{
    static const struct {
        int signo;
        rlim_t soft, hard;
        int64_t used_ms;
        int by_limit;
    } cases[] = {
        {SIGKILL, 1, 1, 990, 1},
        {SIGKILL, 1, 1, 760, 1},
        {SIGKILL, 1, 1, 100, 0},
        {SIGKILL, 1, 100, 1000, 0},
        {SIGKILL, 0, 0, 10, 1},
        {SIGKILL, 5, RLIM_INFINITY, 5000, 0},
        {SIGKILL, RLIM_INFINITY, RLIM_INFINITY, INT32_MAX, 0},
        /* the kernel has raised the soft limit by 1 */
        {SIGXCPU, 2, 10, 1000, 1},
        {SIGXCPU, 2, RLIM_INFINITY, 760, 1},
        {SIGXCPU, 1, 10, 100, 0},
        {SIGXCPU, 60, 100, 1000, 0},
        {SIGXCPU, RLIM_INFINITY, RLIM_INFINITY, 1000, 0},
    };

    make_v1(2);
    cause_init(&cause, fixture.root);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        facts.cpu.rlim_cur = cases[i].soft;
        facts.cpu.rlim_max = cases[i].hard;
        facts.cpu_ms = cases[i].used_ms;
        expect(CLD_KILLED, cases[i].signo, CONTROL_CAUSE_SIGNAL);
        ck_assert_msg((strstr(text, "limit on CPU time") != NULL) ==
                          cases[i].by_limit,
                      "case %zu: %s", i, text);
        ck_assert_msg((strstr(text, "not ") == NULL) == cases[i].by_limit, "%s",
                      text);
    }
}
END_TEST

START_TEST(test_our_own_signals)
{
    facts.ending = 1;
    facts.sent = UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGKILL |
                 UINT64_C(1) << SIGUSR1;
    make_v1(0);
    cause_init(&cause, fixture.root);
    make_v1(1); /* another process's kill, not to be blamed */
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_HVDRUN);
    ck_assert_str_eq(text, "killed by signal 9 (SIGKILL)");
    expect(CLD_KILLED, SIGUSR1, CONTROL_CAUSE_HVDRUN);
    ck_assert_ptr_nonnull(strstr(text, "SIGUSR1 passed on by hvdrun"));
    expect(CLD_KILLED, SIGUSR2, CONTROL_CAUSE_SIGNAL);
}
END_TEST

START_TEST(test_cgroup_v1_oom_with_the_limit_above)
{
    make_v1(2);
    cause_init(&cause, fixture.root);
    make_v1(3);
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_OOM);
    ck_assert_str_eq(text, "killed by signal 9 (SIGKILL): out of memory: "
                           "cgroup limit 3 GiB");
    /* One kill explains one death. */
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_SIGNAL);
}
END_TEST

START_TEST(test_cgroup_v2_oom)
{
    make_v2(0);
    cause_init(&cause, fixture.root);
    make_v2(2);
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_OOM);
    ck_assert_ptr_nonnull(strstr(text, "cgroup limit 2 GiB"));
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_OOM);
}
END_TEST

START_TEST(test_host_oom_without_a_cgroup)
{
    fixture_file(&fixture, "proc/vmstat", "nr_free_pages 1\noom_kill 4\n");
    cause_init(&cause, fixture.root);
    fixture_file(&fixture, "proc/vmstat", "nr_free_pages 1\noom_kill 5\n");
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_OOM);
    ck_assert_ptr_nonnull(strstr(text, "the host's memory was used up"));
}
END_TEST

START_TEST(test_kernel_log)
{
    facts.pid = 4711;
    fixture_file(&fixture, "dev/kmsg", "");
    cause_init(&cause, fixture.root);
    fixture_file(&fixture, "dev/kmsg",
                 "3,1,2,-;Out of memory: Killed process 4711 (python3)\n");
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_OOM);
}
END_TEST

/* sh -c "program; ..." exits with 137 when its child is killed. */
START_TEST(test_oom_behind_a_shell)
{
    make_v2(0);
    cause_init(&cause, fixture.root);
    make_v2(2);
    expect(CLD_EXITED, 137, CONTROL_CAUSE_OOM);
    expect(CLD_EXITED, 1, CONTROL_CAUSE_EXIT);
    ck_assert_ptr_nonnull(strstr(text, "a process of this job was killed"));
}
END_TEST

START_TEST(test_full_disk_in_stderr)
{
    facts.tail = "write: No space left on device\n";
    facts.tmpdir = "/proc";
    cause_init(&cause, fixture.root);
    explain(CLD_EXITED, 1);
    ck_assert_str_eq(text, "exit code 1: it reported that a disk is full");
    facts.tail = "OSError: [Errno 122] Disk quota exceeded\n";
    explain(CLD_EXITED, 1);
    ck_assert_ptr_nonnull(strstr(text, "disk quota"));
    facts.tail = NULL;
    explain(CLD_EXITED, 1);
    ck_assert_str_eq(text, "exit code 1");
}
END_TEST

/* In a container the cgroup's path can be the host's. */
START_TEST(test_cgroup_path_not_visible)
{
    fixture_file(&fixture, "proc/self/cgroup", "0::/host/path\n");
    fixture_file(&fixture, "sys/fs/cgroup/memory.events", "oom_kill 0\n");
    cause_init(&cause, fixture.root);
    fixture_file(&fixture, "sys/fs/cgroup/memory.events", "oom_kill 1\n");
    expect(CLD_KILLED, SIGKILL, CONTROL_CAUSE_OOM);
    ck_assert_ptr_nonnull(strstr(text, "out of memory"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cause");
    TCase *t = tcase_create("cause");

    tcase_add_unchecked_fixture(t, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_exit);
    tcase_add_test(t, test_signals);
    tcase_add_test(t, test_kill_from_outside);
    tcase_add_test(t, test_signals_from_elsewhere);
    tcase_add_test(t, test_limit_on_cpu_time);
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
