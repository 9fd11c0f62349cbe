/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/tree.h: finding and ending descendants, however they hide. */
#include "lib/agent/rank/tree.h"
#include "lib/base/hvd_status.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Runs a script that writes a line once all its processes exist. */
static pid_t start(const char *script)
{
    int fds[2];
    char byte;
    pid_t pid;

    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ck_assert_int_eq(pipe(fds), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        setpgid(0, 0);
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return pid;
}

static void reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* Kills in rounds until nothing is left; each round waits for events. */
static void kill_all(void)
{
    while (tree_has_children()) {
        tree_kill_round();
        waitpid(-1, NULL, 0);
        reap();
    }
}

static const struct tree_proc *by_name(const struct tree *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->procs[i].name, name) == 0)
            return &t->procs[i];
    return NULL;
}

START_TEST(test_no_children)
{
    struct tree t = TREE_INIT;

    ck_assert_int_eq(tree_has_children(), 0);
    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    ck_assert_uint_eq(t.count, 0);
    ck_assert_uint_eq(tree_kill_round(), 0);
    tree_free(&t);
    tree_free(&t);
}
END_TEST

START_TEST(test_stat_of_this_process)
{
    struct tree_proc p;

    ck_assert_int_eq(prctl(PR_SET_NAME, "a) b (c"), 0);
    ck_assert_int_eq(tree_stat(getpid(), &p), 1);
    ck_assert_int_eq(p.pid, getpid());
    ck_assert_int_eq(p.ppid, getppid());
    ck_assert_int_eq(p.pgrp, getpgrp());
    ck_assert_str_eq(p.name, "a) b (c");
    ck_assert_uint_gt(p.start, 0);
    ck_assert_int_eq(tree_stat(0x7ffffff0, &p), 0);
}
END_TEST

START_TEST(test_holds)
{
    struct tree t = TREE_INIT;
    pid_t pid = start("sh -c 'sleep 1001 & sleep 1002 & echo; wait'");

    ck_assert_int_eq(tree_holds(getpid(), getpid()), 1);
    ck_assert_int_eq(tree_holds(getpid(), pid), 1);
    ck_assert_int_eq(tree_holds(pid, getpid()), 0);
    ck_assert_int_eq(tree_holds(getpid(), getppid()), 0);
    ck_assert_int_eq(tree_holds(getpid(), 1), 0);
    ck_assert_int_eq(tree_holds(getpid(), 0), 0);
    ck_assert_int_eq(tree_holds(getpid(), 0x7ffffff0), 0);
    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    for (size_t i = 0; i < t.count; i++)
        ck_assert_int_eq(tree_holds(getpid(), t.procs[i].pid), 1);
    tree_free(&t);
    kill_all();
    ck_assert_int_eq(tree_holds(getpid(), pid), 0);
}
END_TEST

START_TEST(test_reads_all_generations)
{
    struct tree t = TREE_INIT;
    pid_t pid = start("sh -c 'sleep 1001 & sleep 1002 & echo; wait'");

    ck_assert_int_eq(tree_has_children(), 1);
    /* The shells may exec at any time; the sleeps exist or soon will. */
    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    ck_assert_uint_ge(t.count, 1);
    ck_assert_int_eq(t.procs[0].pid <= pid, 1);
    for (size_t i = 0; i < t.count; i++)
        ck_assert_int_ne(t.procs[i].pid, getpid());
    tree_free(&t);
    kill_all();
}
END_TEST

/* A process is hidden only if the kernel says so. */
START_TEST(test_what_is_hidden)
{
    struct rlimit old, none;

    ck_assert_int_eq(tree_hides(getpid()), 0);
    ck_assert_int_eq(tree_hides(0x7ffffff0), 1);
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    ck_assert_int_eq(tree_hides(getpid()), 0);
    ck_assert_int_eq(tree_hides(0x7ffffff0), 0);
    setrlimit(RLIMIT_NOFILE, &old);
}
END_TEST

START_TEST(test_double_fork_and_setsid_do_not_hide)
{
    struct tree t = TREE_INIT;

    start("(setsid sh -c 'sleep 1003 & echo; wait' &) ; exit 0");
    ck_assert_int_eq(tree_has_children(), 1);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    ck_assert_uint_ge(t.count, 1);
    tree_free(&t);
    kill_all();
    ck_assert_int_eq(tree_has_children(), 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}
END_TEST

START_TEST(test_kill_ends_what_ignores_and_what_is_stopped)
{
    start("trap '' TERM INT HUP; sleep 1004 & kill -STOP $!; echo; wait");
    kill_all();
    ck_assert_int_eq(tree_has_children(), 0);
}
END_TEST

START_TEST(test_kill_outruns_a_program_that_keeps_forking)
{
    start("(while :; do sleep 0.01 & sleep 0.01; done) & echo; wait");
    kill_all();
    ck_assert_int_eq(tree_has_children(), 0);
}
END_TEST

/* Waits for exec: only then has a process its own environment. */
static void wait_for_sleeps(size_t want)
{
    const struct timespec pause = {0, 2000000};
    struct tree t = TREE_INIT;
    size_t seen = 0;

    for (int i = 0; i < 5000 && seen < want; i++) {
        nanosleep(&pause, NULL);
        ck_assert_int_eq(tree_read(getpid(), &t), 0);
        seen = 0;
        for (size_t k = 0; k < t.count; k++)
            seen += strcmp(t.procs[k].name, "sleep") == 0;
    }
    tree_free(&t);
    ck_assert_uint_eq(seen, want);
}

/* Waits until `want` descendants are alive: on a busy machine killed processes
 * take time to end. */
static void wait_for_live(size_t want)
{
    const struct timespec pause = {0, 2000000};
    struct tree t = TREE_INIT;
    size_t live = want + 1;

    for (int i = 0; i < 5000 && live > want; i++) {
        nanosleep(&pause, NULL);
        reap();
        ck_assert_int_eq(tree_read(getpid(), &t), 0);
        live = 0;
        for (size_t k = 0; k < t.count; k++)
            live += t.procs[k].state != 'Z';
    }
    tree_free(&t);
    ck_assert_uint_eq(live, want);
}

/* Only a whole variable counts as mark, wherever the process hides. */
START_TEST(test_kill_marked)
{
    start("sleep 1007 & TEST_MARK=12 sleep 1008 & "
          "(TEST_MARK=1 setsid sleep 1009 &) ; "
          "TEST_MARK=1 sh -c 'echo; trap \"\" TERM; "
          "TEST_MARK=2 sleep 1010; :' & wait");
    ck_assert_int_eq(tree_can_read(), 1);
    wait_for_sleeps(4);
    tree_kill_marked("TEST_MARK=1");
    wait_for_live(3); /* the shell, 1007 and 1008 */
    kill_all();
}
END_TEST

START_TEST(test_signal_skips_groups_and_zombies)
{
    struct tree t = TREE_INIT;
    pid_t group = start("echo; exec sleep 1005"), dead;
    siginfo_t info;

    dead = fork();
    if (dead == 0)
        _exit(0);
    ck_assert_int_eq(waitid(P_PID, (id_t)dead, &info, WEXITED | WNOWAIT), 0);
    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    ck_assert_uint_eq(tree_signal(&t, SIGKILL, &group, 1), 0);
    ck_assert_uint_eq(tree_signal(&t, SIGKILL, NULL, 0), 1);
    waitpid(group, NULL, 0);
    waitpid(dead, NULL, 0);
    /* Both are gone and their pids may be reused: no process may be hit. */
    ck_assert_uint_eq(tree_signal(&t, SIGKILL, NULL, 0), 0);
    tree_free(&t);
}
END_TEST

/* A SIGCONT, which ends the script, is sent only while it is stopped. */
START_TEST(test_only_stopped_ones_are_continued)
{
    struct tree t = TREE_INIT;
    pid_t pid = start("trap 'exit 1' CONT; trap 'exit 0' TERM; echo;"
                      "while :; do sleep 0.01; done");
    int status;

    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    ck_assert_uint_eq(tree_signal(&t, SIGCONT, NULL, 0), 0);
    kill(pid, SIGSTOP);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert_uint_ge(tree_signal(&t, SIGCONT, NULL, 0), 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), 1);
    tree_free(&t);
    kill_all();
}
END_TEST

START_TEST(test_another_process_with_the_same_pid_is_spared)
{
    struct tree t = TREE_INIT;
    pid_t pid = start("echo; exec sleep 1006");

    ck_assert_int_eq(tree_read(getpid(), &t), 0);
    ck_assert_ptr_nonnull(by_name(&t, t.procs[0].name));
    t.procs[0].start++; /* as if the pid had been reused since */
    ck_assert_uint_eq(tree_signal(&t, SIGKILL, NULL, 0), 0);
    ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
    tree_free(&t);
    kill_all();
}
END_TEST

START_TEST(test_never_init_nor_self)
{
    struct tree_proc procs[2];
    struct tree t = {procs, 2};

    ck_assert_int_eq(tree_stat(1, &procs[0]), 1);
    ck_assert_int_eq(tree_stat(getpid(), &procs[1]), 1);
    ck_assert_uint_eq(tree_signal(&t, SIGTERM, NULL, 0), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tree");
    TCase *t = tcase_create("tree");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_no_children);
    tcase_add_test(t, test_stat_of_this_process);
    tcase_add_test(t, test_holds);
    tcase_add_test(t, test_reads_all_generations);
    tcase_add_test(t, test_what_is_hidden);
    tcase_add_test(t, test_double_fork_and_setsid_do_not_hide);
    tcase_add_test(t, test_kill_ends_what_ignores_and_what_is_stopped);
    tcase_add_test(t, test_kill_outruns_a_program_that_keeps_forking);
    tcase_add_test(t, test_kill_marked);
    tcase_add_test(t, test_signal_skips_groups_and_zombies);
    tcase_add_test(t, test_only_stopped_ones_are_continued);
    tcase_add_test(t, test_another_process_with_the_same_pid_is_spared);
    tcase_add_test(t, test_never_init_nor_self);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
