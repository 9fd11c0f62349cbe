/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/spawn.h: starting programs. */
#include "lib/agent/rank/spawn.h"
#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_MAX = 4096 };

static char no_env_text[] = "HVD_TEST=1";
static char *test_env[] = {no_env_text, NULL};

/* Descriptors 0 to 2 of a child, and the ends to read its stdout and stderr. */
struct io {
    int null_fd, out[2];
};

static void io_open(struct io *io)
{
    io->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(io->null_fd, 3);
    ck_assert_int_eq(pipe2(io->out, O_CLOEXEC), 0);
}

static void io_close(struct io *io)
{
    close(io->null_fd);
    close(io->out[0]);
    close(io->out[1]);
}

static struct spawn_options options(const struct io *io, const char *path,
                                    char **argv)
{
    return (struct spawn_options){
        .path = path,
        .argv = argv,
        .envp = test_env,
        .stdio = {io->null_fd, io->out[1], io->out[1]},
    };
}

static int wait_for(const struct spawn_child *child, siginfo_t *info)
{
    memset(info, 0, sizeof(*info));
    ck_assert_int_eq(waitid(P_PID, (id_t)child->pid, info, WEXITED), 0);
    close(child->pidfd);
    return info->si_status;
}

/* Runs `script` with o's other settings; its output goes to `text`. */
static int run_script(struct spawn_options *o, struct io *io,
                      const char *script, char text[TEXT_MAX])
{
    char sh[] = "sh", c[] = "-c", *body = hb_xstrdup(script);
    char *argv[] = {sh, c, body, NULL};
    struct hb_error err = HB_ERROR_INIT;
    struct spawn_child child;
    siginfo_t info;
    size_t used = 0;
    ssize_t n;

    o->path = "/bin/sh";
    o->argv = argv;
    ck_assert_msg(spawn_process(o, &child, NULL, &err) == 0, "%s", err.text);
    close(io->out[1]);
    while ((n = read(io->out[0], text + used, TEXT_MAX - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    ck_assert_int_eq(pipe2(io->out, O_CLOEXEC), 0);
    hb_free(body);
    return wait_for(&child, &info);
}

START_TEST(test_exit_status_and_environment)
{
    struct io io;
    struct spawn_options o;
    char text[TEXT_MAX];

    io_open(&io);
    o = options(&io, NULL, NULL);
    ck_assert_int_eq(run_script(&o, &io, "echo $HVD_TEST$HOME; exit 7", text),
                     7);
    ck_assert_str_eq(text, "1\n");
    io_close(&io);
}
END_TEST

START_TEST(test_own_process_group_and_parent_death_signal)
{
    struct io io;
    struct spawn_options o;
    char text[TEXT_MAX], *end;
    long pid, pgrp;

    io_open(&io);
    o = options(&io, NULL, NULL);
    run_script(&o, &io, "read -r s </proc/$$/stat; set -- $s; echo $1 $5",
               text);
    pid = strtol(text, &end, 10);
    pgrp = strtol(end, NULL, 10);
    ck_assert_int_gt(pid, 1);
    ck_assert_int_eq(pid, pgrp);
    ck_assert_int_ne(pgrp, getpgrp());
    io_close(&io);
}
END_TEST

/* A parent that is killed takes its child along. */
START_TEST(test_child_dies_with_its_parent)
{
    struct io io;
    struct spawn_options o;
    struct spawn_child child;
    char sleep_name[] = "sleep", time[] = "1000", byte;
    char *argv[] = {sleep_name, time, NULL};
    pid_t parent;

    io_open(&io);
    o = options(&io, "/bin/sleep", argv);
    parent = fork();
    if (parent == 0) {
        if (spawn_process(&o, &child, NULL, NULL) == 0)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    close(io.out[1]);
    waitpid(parent, NULL, 0);
    /* The end of the pipe is the end of the child. */
    ck_assert_int_eq(read(io.out[0], &byte, 1), 0);
    close(io.out[0]);
    close(io.null_fd);
}
END_TEST

START_TEST(test_other_descriptors_are_closed)
{
    struct io io;
    struct spawn_options o;
    char text[TEXT_MAX];
    int leak = open("/dev/null", O_RDONLY);

    ck_assert_int_ge(leak, 3);
    ck_assert_int_eq(dup2(leak, 77), 77);
    io_open(&io);
    o = options(&io, NULL, NULL);
    run_script(&o, &io,
               "for n in 0 1 2 3 4 5 6 7 8 9 77; do "
               "if [ -e /proc/$$/fd/$n ]; then printf '%s ' $n; fi; done",
               text);
    ck_assert_str_eq(text, "0 1 2 ");
    close(leak);
    close(77);
    io_close(&io);
}
END_TEST

/* Passes one end of a pair, whose number is `fd`, and returns what the child
 * has besides its stdio. */
static void run_passing(int fd, char text[TEXT_MAX])
{
    struct io io;
    struct spawn_options o;

    io_open(&io);
    o = options(&io, NULL, NULL);
    o.pass_fd = fd;
    run_script(&o, &io,
               "for n in 3 4 5 6 7 8 9 77; do "
               "if [ -e /proc/$$/fd/$n ]; then printf '%s ' $n; fi; done; "
               "cat /proc/$$/fd/3",
               text);
    io_close(&io);
}

START_TEST(test_one_descriptor_is_passed)
{
    struct hb_error err = HB_ERROR_INIT;
    struct spawn_options o = {.stdio = {3, 3, 3}, .pass_fd = 2};
    struct spawn_child child;
    char text[TEXT_MAX];
    int saved = dup(3), fds[2];

    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    ck_assert_int_eq(write(fds[1], "passed", 6), 6);
    ck_assert_int_eq(dup3(fds[0], 77, O_CLOEXEC), 77);
    close(fds[0]);
    close(fds[1]);
    run_passing(77, text);
    ck_assert_str_eq(text, "3 passed");

    /* The number may be right already. */
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    ck_assert_int_eq(write(fds[1], "passed", 6), 6);
    if (fds[0] != SPAWN_PASS_FD)
        ck_assert_int_eq(dup3(fds[0], SPAWN_PASS_FD, O_CLOEXEC), SPAWN_PASS_FD);
    if (fds[1] != SPAWN_PASS_FD)
        close(fds[1]);
    run_passing(SPAWN_PASS_FD, text);
    ck_assert_str_eq(text, "3 passed");
    if (saved >= 0)
        dup2(saved, 3);
    ck_assert_int_eq(spawn_process(&o, &child, NULL, &err), -HVD_EINVAL);
}
END_TEST

static void ignore(int signo)
{
    (void)signo;
}

/* A program in a descriptor needs no name in a file system.  It sees no other
 * descriptor, and not even this one. */
START_TEST(test_program_in_a_descriptor)
{
    char sh[] = "sh", c[] = "-c", body[64];
    char *argv[] = {sh, c, body, NULL};
    struct hb_error err = HB_ERROR_INIT;
    struct spawn_options o;
    struct spawn_child child;
    siginfo_t info;
    struct io io;

    io_open(&io);
    o = options(&io, "/nonexistent", argv);
    for (int i = 0; i < 2; i++) {
        o.program_fd = i ? fcntl(o.program_fd, F_DUPFD_CLOEXEC, 100)
                         : open("/bin/sh", O_PATH | O_CLOEXEC);
        ck_assert_int_ge(o.program_fd, 3);
        snprintf(body, sizeof(body),
                 "for n in 3 %d; do [ ! -e /proc/$$/fd/$n ] || exit 1; done",
                 o.program_fd);
        ck_assert_msg(spawn_process(&o, &child, NULL, &err) == 0, "%s",
                      err.text);
        ck_assert_int_eq(wait_for(&child, &info), 0);
    }
    io_close(&io);
}
END_TEST

START_TEST(test_signals_are_reset)
{
    struct sigaction sa = {.sa_handler = SIG_IGN};
    struct sigaction handled = {.sa_handler = ignore};
    struct io io;
    struct spawn_options o;
    sigset_t reset, block;
    char text[TEXT_MAX];

    sigaction(SIGUSR1, &sa, NULL);
    sigaction(SIGUSR2, &handled, NULL);
    sigfillset(&block);
    sigprocmask(SIG_BLOCK, &block, NULL);
    spawn_signals_to_reset(&reset);
    ck_assert_int_eq(sigismember(&reset, SIGUSR1), 1);
    ck_assert_int_eq(sigismember(&reset, SIGUSR2), 1);
    ck_assert_int_eq(sigismember(&reset, SIGWINCH), 0);
    io_open(&io);
    o = options(&io, NULL, NULL);
    o.reset = &reset;
    /* Not 32 and 33: libc reserves them, and posix_spawn leaves them ignored,
     * so that make and others pass that on. */
    run_script(&o, &io,
               "for s in SigBlk SigIgn; do v=$(sed -n \"s/^$s:.//p\" "
               "/proc/self/status); echo $s $((0x$v & ~0x180000000)); done",
               text);
    ck_assert_str_eq(text, "SigBlk 0\nSigIgn 0\n");
    io_close(&io);
}
END_TEST

START_TEST(test_cwd_limits_and_affinity)
{
    struct spawn_limit limit = {RLIMIT_NOFILE, {123, 456}};
    struct io io;
    struct spawn_options o;
    cpu_set_t mine, one;
    char text[TEXT_MAX], expected[64];
    size_t cpu = 0;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    io_open(&io);
    o = options(&io, NULL, NULL);
    o.cwd = "/proc";
    o.limits = &limit;
    o.limit_count = 1;
    o.affinity = &one;
    o.affinity_bytes = sizeof(one);
    run_script(&o, &io,
               "pwd; ulimit -Sn; ulimit -Hn; "
               "grep Cpus_allowed_list self/status",
               text);
    snprintf(expected, sizeof(expected),
             "/proc\n123\n456\nCpus_allowed_list:\t%zu\n", cpu);
    ck_assert_str_eq(text, expected);
    io_close(&io);
}
END_TEST

/* A failure in the child is reported in the parent, and no process is left. */
static void expect_failure(const struct spawn_options *o,
                           enum spawn_stage stage, int sys_errno)
{
    struct hb_error err = HB_ERROR_INIT;
    struct spawn_child child = {-5, -5};
    enum spawn_stage got = SPAWN_STAGE_CLONE;

    ck_assert_int_lt(spawn_process(o, &child, &got, &err), 0);
    ck_assert_int_eq(got, stage);
    ck_assert_int_eq(err.sys_errno, sys_errno);
    ck_assert_int_eq(child.pid, -5);
    ck_assert_int_eq(child.pidfd, -5);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

START_TEST(test_failures_by_stage)
{
    struct spawn_limit limit = {RLIMIT_NOFILE, {10, 5}};
    struct io io;
    struct spawn_options o;
    cpu_set_t none;
    char name[] = "true", *argv[] = {name, NULL};

    io_open(&io);
    o = options(&io, "/nowhere/true", argv);
    expect_failure(&o, SPAWN_STAGE_EXEC, ENOENT);
    o = options(&io, "/etc/passwd", argv);
    expect_failure(&o, SPAWN_STAGE_EXEC, EACCES);
    o = options(&io, "/bin/true", argv);
    o.cwd = "/nowhere";
    expect_failure(&o, SPAWN_STAGE_CWD, ENOENT);
    o = options(&io, "/bin/true", argv);
    o.stdio[1] = 999;
    expect_failure(&o, SPAWN_STAGE_STDIO, EBADF);
    o = options(&io, "/bin/true", argv);
    o.limits = &limit;
    o.limit_count = 1;
    expect_failure(&o, SPAWN_STAGE_LIMIT, EINVAL);
    o = options(&io, "/bin/true", argv);
    CPU_ZERO(&none);
    o.affinity = &none;
    o.affinity_bytes = sizeof(none);
    expect_failure(&o, SPAWN_STAGE_AFFINITY, EINVAL);
    io_close(&io);
}
END_TEST

START_TEST(test_standard_descriptors_are_refused)
{
    struct io io;
    struct spawn_options o;
    struct hb_error err = HB_ERROR_INIT;
    struct spawn_child child;
    char name[] = "true", *argv[] = {name, NULL};

    io_open(&io);
    o = options(&io, "/bin/true", argv);
    o.stdio[2] = 2;
    ck_assert_int_eq(spawn_process(&o, &child, NULL, &err), -HVD_EINVAL);
    io_close(&io);
}
END_TEST

START_TEST(test_thousand_short_programs_are_all_seen)
{
    struct io io;
    struct spawn_options o;
    char name[] = "true", *argv[] = {name, NULL};

    io_open(&io);
    o = options(&io, "/bin/true", argv);
    for (int i = 0; i < 1000; i++) {
        struct spawn_child child;
        struct pollfd p = {.events = POLLIN};
        siginfo_t info;

        ck_assert_int_eq(spawn_process(&o, &child, NULL, NULL), 0);
        p.fd = child.pidfd;
        ck_assert_int_eq(poll(&p, 1, 20000), 1);
        ck_assert_int_eq(wait_for(&child, &info), 0);
        ck_assert_int_eq(info.si_code, CLD_EXITED);
        ck_assert_int_eq(info.si_pid, child.pid);
    }
    io_close(&io);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("spawn");
    TCase *t = tcase_create("spawn");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_exit_status_and_environment);
    tcase_add_test(t, test_own_process_group_and_parent_death_signal);
    tcase_add_test(t, test_child_dies_with_its_parent);
    tcase_add_test(t, test_other_descriptors_are_closed);
    tcase_add_test(t, test_one_descriptor_is_passed);
    tcase_add_test(t, test_program_in_a_descriptor);
    tcase_add_test(t, test_signals_are_reset);
    tcase_add_test(t, test_cwd_limits_and_affinity);
    tcase_add_test(t, test_failures_by_stage);
    tcase_add_test(t, test_standard_descriptors_are_refused);
    tcase_add_test(t, test_thousand_short_programs_are_all_seen);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
