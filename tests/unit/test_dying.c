/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/dying.h: processes that are dying. */
#include "lib/agent/rank/dying.h"
#include "lib/base/sys/clock.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 30000, TEXT_MAX = 2048 };

/* ---- What /proc says ----------------------------------------------------- */

/* Writes a line as in /proc/PID/stat, with these fields 9, 14, 15 and 52. */
static void make_line(char *text, const char *name, unsigned flags,
                      const char *utime, const char *stime, int code)
{
    size_t len =
        (size_t)snprintf(text, TEXT_MAX, "7 (%s) R 1 7 7 0 -1 %u 1 2 3 4 %s %s",
                         name, flags, utime, stime);

    for (int field = 16; field < 52; field++)
        len += (size_t)snprintf(text + len, TEXT_MAX - len, " %s",
                                field == 25 ? "18446744073709551615" : "0");
    snprintf(text + len, TEXT_MAX - len, " %d\n", code);
}

START_TEST(test_fields_are_found)
{
    char text[TEXT_MAX];
    struct dying_stat s;

    make_line(text, "a) R 1 (b", 0x400640, "70", "30", 11);
    ck_assert_int_eq(dying_parse(text, &s), 1);
    ck_assert(s.is_leaving);
    ck_assert_int_eq(s.wait_status, 11);
    ck_assert_int_eq(s.ticks, 100);

    make_line(text, "x", 0x40044, "1", "0", 3 << 8);
    ck_assert_int_eq(dying_parse(text, &s), 1);
    ck_assert(s.is_leaving);
    ck_assert_int_eq(s.wait_status, 3 << 8);
    ck_assert_int_eq(s.ticks, 1);

    make_line(text, "x", 0x400040, "1", "2", 9);
    ck_assert_int_eq(dying_parse(text, &s), 1);
    ck_assert(!s.is_leaving);
}
END_TEST

START_TEST(test_malformed_lines_are_refused)
{
    static const char *const lines[] = {"",      "7",           "7 (x",
                                        "7 (x)", "7 (x) R 1 2", "7 (x) R a"};
    char text[TEXT_MAX];
    struct dying_stat s;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        snprintf(text, sizeof(text), "%s", lines[i]);
        ck_assert_int_eq(dying_parse(text, &s), 0);
    }
    /* one field too few */
    make_line(text, "x", 4, "1", "2", 9);
    *strrchr(text, ' ') = '\0';
    ck_assert_int_eq(dying_parse(text, &s), 0);
    /* a field that is too large, or no number */
    make_line(text, "x", 4, "1", "9223372036854775807", 9);
    ck_assert_int_eq(dying_parse(text, &s), 0);
    make_line(text, "x", 4, "1", "2", 1 << 16);
    ck_assert_int_eq(dying_parse(text, &s), 0);
    make_line(text, "x", 4, "1", "2x", 9);
    ck_assert_int_eq(dying_parse(text, &s), 0);
}
END_TEST

/* ---- Real processes ------------------------------------------------------ */

/* Starts a process that waits for a signal; traced, if it is to be held at its
 * end. */
static pid_t start_process(int is_traced)
{
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    ck_assert_int_gt(pid, 0);
    if (is_traced)
        ck_assert_msg(ptrace(PTRACE_SEIZE, pid, NULL,
                             (void *)(long)PTRACE_O_TRACEEXIT) == 0,
                      "ptrace: %s", strerror(errno));
    return pid;
}

static int check(pid_t pid, siginfo_t *info)
{
    int64_t cpu_ms = -1;
    int rc = dying_check(pid, info, &cpu_ms);

    ck_assert(!rc || cpu_ms >= 0);
    return rc;
}

static void end_process(pid_t pid)
{
    siginfo_t info;

    kill(pid, SIGKILL);
    /* Past the stop at its end, if it is traced and has come to one. */
    (void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
}

START_TEST(test_living_are_not_dying)
{
    siginfo_t info;
    pid_t pid = start_process(0);

    ck_assert_int_eq(check(pid, &info), 0);
    kill(pid, SIGSTOP);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    ck_assert_int_eq(check(pid, &info), 0);
    kill(pid, SIGCONT);
    ck_assert_int_eq(check(pid, &info), 0);
    end_process(pid);
    ck_assert_int_eq(check(pid, &info), 0);
}
END_TEST

START_TEST(test_dying_is_seen_before_the_end)
{
    uint64_t end_ns = hb_now_ns() + LIMIT_MS * UINT64_C(1000000);
    siginfo_t info, ended = {0};
    pid_t pid = start_process(1);

    /* The trace stops it first when the signal comes, then at its end. */
    kill(pid, SIGUSR1);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    ck_assert_int_eq(ptrace(PTRACE_CONT, pid, NULL, (void *)(long)SIGUSR1), 0);
    while (!check(pid, &info) && hb_now_ns() < end_ns)
        usleep(1000);
    /* It cannot be reaped: the trace holds it at its end. */
    ck_assert_int_eq(
        waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    ck_assert_int_eq(ended.si_code, CLD_TRAPPED);
    ck_assert_int_eq(info.si_pid, pid);
    ck_assert_int_eq(info.si_code, CLD_KILLED);
    ck_assert_int_eq(info.si_status, SIGUSR1);
    end_process(pid);
}
END_TEST

/* Keeps the process alive after its first thread has ended. */
static void *stay(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

/* The first thread has ended, with a status, but another goes on. */
START_TEST(test_a_thread_that_lives_counts)
{
    uint64_t end_ns = hb_now_ns() + LIMIT_MS * UINT64_C(1000000);
    char path[64], line[TEXT_MAX];
    struct dying_stat s = {0};
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0) {
        pthread_t thread;

        pthread_create(&thread, NULL, stay, NULL);
        syscall(SYS_exit, 3);
    }
    ck_assert_int_gt(pid, 0);
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    while (!s.wait_status && hb_now_ns() < end_ns) {
        FILE *f = fopen(path, "r");

        ck_assert_ptr_nonnull(f);
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
        fclose(f);
        ck_assert_int_eq(dying_parse(line, &s), 1);
    }
    ck_assert_int_eq(s.is_leaving, 1);
    ck_assert_int_eq(s.wait_status, 3 << 8);
    ck_assert_int_eq(check(pid, &info), 0);
    end_process(pid);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dying");
    TCase *t = tcase_create("dying");

    tcase_add_test(t, test_fields_are_found);
    tcase_add_test(t, test_malformed_lines_are_refused);
    tcase_add_test(t, test_living_are_not_dying);
    tcase_add_test(t, test_dying_is_seen_before_the_end);
    tcase_add_test(t, test_a_thread_that_lives_counts);
    suite_add_tcase(s, t);
    return unit_run(s);
}
