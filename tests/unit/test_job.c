/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job with a scripted agent (fake_agent.h), which is this program, run as
 * hvd-agent.
 */
#include "tests/unit/agent_util.h"
#include "tests/unit/job_util.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

START_TEST(success)
{
    start("hello;launch;started;out 0 1 hi;exit 0 0;out 1 2 there;exit 1 0;"
          "end 0 1;done;eof");
    finish(0, "[0]<stdout>:hi\n", "[1]<stderr>:there\n");
}
END_TEST

START_TEST(first_failure_decides)
{
    start("hello;launch;started;exit 1 7;kill 60000;ours 0 143;done;eof");
    finish(7, "",
           "hvdrun: rank 1 on host a (pid 101) failed: exit code 7\n"
           "hvdrun: ended the other rank; exit code 7\n");
}
END_TEST

/* The culprit ends after the rank that it made fail. */
START_TEST(culprit_ends_later)
{
    start("hello;launch;started;blames 1;exit 0 1;pause 200;exit 1 3;"
          "kill 60000;done;eof");
    finish(3, "",
           "hvdrun: rank 1 on host a (pid 101) failed: exit code 3\n"
           "hvdrun: rank 0 failed too: exit code 1\n");
}
END_TEST

START_TEST(culprit_ends_with_success)
{
    start("hello;launch;started;blames 1;exit 0 5;pause 20;exit 1 0;"
          "kill 60000;done;eof");
    finish(5, "",
           "hvdrun: rank 0 on host a (pid 100) failed: exit code 5\n"
           "hvdrun: rank 1 on host a had left the others before that, without "
           "a failure of its own\n");
}
END_TEST

/* hvdrun waits for the culprit to end, but not for ever. */
START_TEST(culprit_does_not_end)
{
    start("hello;launch;started;blames 1;exit 0 5;kill 60000;ours 1 143;"
          "done;eof");
    finish(5, "",
           "hvdrun: rank 0 on host a (pid 100) failed: exit code 5\n"
           "hvdrun: rank 1 on host a was lost to rank 0 first\n"
           "hvdrun: ended the other rank; exit code 5\n");
}
END_TEST

START_TEST(signal_while_a_culprit_is_waited_for)
{
    start("hello;launch;started;blames 1;exit 0 5;out 1 1 x;kill 60000;"
          "ours 1 143;done;eof");
    wait_for_output("x");
    job_signal(job, SIGTERM, NULL);
    finish_saying(143, "SIGTERM");
}
END_TEST

START_TEST(signalled_rank)
{
    start("hello;launch;started;exit 0 0 11;exit 1 1;kill 60000;done;eof");
    finish(139, "",
           "hvdrun: rank 0 on host a (pid 100) failed: killed by signal 11 "
           "(SIGSEGV)\n"
           "hvdrun: rank 1 failed too: exit code 1\n");
}
END_TEST

START_TEST(launch_failed)
{
    start("hello;launch;failed 127 nosuch: not found;eof");
    finish(127, "", "hvdrun: host a: nosuch: not found\n");
}
END_TEST

START_TEST(other_version)
{
    start("hello 0.0.0-other;eof");
    finish(125, "",
           "hvdrun: host a: the agent did not start: hvd-agent is version "
           "0.0.0-other, hvdrun " HVD_VERSION "; both must be of one build\n");
}
END_TEST

START_TEST(not_an_agent)
{
    start("garbage;eof");
    finish_saying(125, "host a: the agent did not start: ");
}
END_TEST

START_TEST(agent_dies_at_once)
{
    start("");
    finish(125, "",
           "hvdrun: host a: the agent did not start: its connection "
           "ended\n");
}
END_TEST

START_TEST(agent_lost)
{
    start("hello;launch;started;out 1 1 x");
    finish(125, "[1]<stdout>:x\n",
           "hvdrun: host a: lost the agent: its connection ended; ranks 0, 1 "
           "end with it\n");
}
END_TEST

/* An agent that quits is reported, and not the ranks that it ends. */
START_TEST(agent_quits)
{
    start("hello;launch;started;quit the agent got \033SIGTERM;"
          "kill 60000;ours 0 143;ours 1 143;done;eof");
    finish(125, "",
           "hvdrun: host a: the agent got ?SIGTERM; ranks 0, 1 end with it\n"
           "hvdrun: ended 2 ranks; exit code 125\n");
}
END_TEST

START_TEST(agent_quits_without_a_reason)
{
    start("hello;launch;started;quit ;eof");
    finish(125, "",
           "hvdrun: host a: lost the agent: quitting without a reason; "
           "ranks 0, 1 end with it\n");
}
END_TEST

START_TEST(foreign_rank)
{
    start("hello;launch;started;exit 5 0;eof");
    finish(125, "",
           "hvdrun: host a: lost the agent: speaks of rank 5, not its own; "
           "ranks 0, 1 end with it\n");
}
END_TEST

START_TEST(rank_exits_twice)
{
    start("hello;launch;started;exit 0 0;exit 0 0;eof");
    finish(125, "",
           "hvdrun: host a: lost the agent: rank 0 exited twice; ranks 0, 1 "
           "end with it\n");
}
END_TEST

START_TEST(done_without_exits)
{
    start("hello;launch;started;exit 0 0;done;eof");
    finish(125, "",
           "hvdrun: host a: the agent has ended 1 ranks without saying "
           "how\n");
}
END_TEST

START_TEST(no_agent_program)
{
    config.agent_path = "/nonexistent/hvd-agent";
    start("");
    finish(125, "",
           "hvdrun: host a: cannot start the agent /nonexistent/hvd-agent "
           "(see --agent): No such file or directory\n");
}
END_TEST

START_TEST(bad_output_dir)
{
    struct hb_error e = HB_ERROR_INIT;

    config.output_dir = "/dev/null/d";
    ck_assert_int_lt(job_start(&config, NULL, NULL, &job, &e), 0);
    ck_assert_ptr_null(job);
    ck_assert_ptr_nonnull(strstr(e.text, "/dev/null/d"));
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(done, 0);
}
END_TEST

START_TEST(start_timeout)
{
    config.start_timeout_ms = 20;
    start("eof");
    finish(125, "",
           "hvdrun: the job did not start within 0.02 s (--start-timeout)\n"
           "  host a: connecting\n");
}
END_TEST

START_TEST(timeout)
{
    config.timeout_ms = 20;
    start("hello;launch;started;kill 60000;ours 0 143;ours 1 143;done;eof");
    finish(124, "",
           "hvdrun: the job did not end within 0.02 s (--timeout)\n"
           "hvdrun: ended 2 ranks; exit code 124\n");
}
END_TEST

static const char *const notice =
    "hvdrun: SIGTERM: ending the job (once more: kill it at once)\n";

START_TEST(signal_ends_with_grace)
{
    start("hello;launch;started;out 0 1 up;kill 60000;ours 0 143;ours 1 0;"
          "done;eof");
    wait_for_output("up");
    job_signal(job, SIGTERM, NULL);
    finish(143, "[0]<stdout>:up\n", notice);
}
END_TEST

START_TEST(sender_of_a_signal)
{
    start("hello;eof");
    job_signal(job, SIGTERM, "pid 812 (slurm\033stepd)");
    finish(143, "",
           "hvdrun: SIGTERM from pid 812 (slurm?stepd): ending the job (once "
           "more: kill it at once)\n");
}
END_TEST

START_TEST(second_signal_kills)
{
    start("hello;launch;started;out 0 1 up;kill 60000;kill 0;ours 0 137;"
          "ours 1 137;done;eof");
    wait_for_output("up");
    job_signal(job, SIGTERM, NULL);
    job_signal(job, SIGINT, NULL);
    job_signal(job, SIGINT, NULL);
    finish(143, "[0]<stdout>:up\n", notice);
}
END_TEST

START_TEST(signal_before_the_start)
{
    start("hello;eof");
    job_signal(job, SIGTERM, NULL);
    finish(143, "", notice);
}
END_TEST

/* A failed rank stays the cause when the user then sends a signal. */
START_TEST(signal_after_failure)
{
    start("hello;launch;started;exit 1 7;out 0 1 up;kill 60000;kill 0;"
          "ours 0 137;done;eof");
    wait_for_output("up");
    job_signal(job, SIGINT, NULL);
    job_signal(job, SIGINT, NULL);
    finish(7, "[0]<stdout>:up\n",
           "hvdrun: rank 1 on host a (pid 101) failed: exit code 7\n"
           "hvdrun: ended the other rank; exit code 7\n");
}
END_TEST

START_TEST(signals_are_forwarded)
{
    char script[256];

    snprintf(script, sizeof(script),
             "hello;launch;started;out 0 1 up;signal %d;signal %d;signal %d;"
             "exit 0 0;exit 1 0;done;eof",
             SIGUSR1, SIGSTOP, SIGCONT);
    start(script);
    wait_for_output("up");
    job_signal(job, SIGUSR1, NULL);
    job_signal(job, SIGTSTP, NULL);
    job_signal(job, SIGCONT, NULL);
    finish(0, "[0]<stdout>:up\n", "");
}
END_TEST

START_TEST(prints_in_order)
{
    start("hello;launch;started;out 0 1 up;signal 10;out 0 2 after;exit 0 0;"
          "exit 1 0;done;eof");
    wait_for_output("up");
    job_print(job, "a line");
    job_signal(job, SIGUSR1, NULL);
    finish(0, "[0]<stdout>:up\n", "a line\n[0]<stderr>:after\n");
}
END_TEST

/* Makes the file of rank 0's stdout a full disk. */
static void fill_disk(const char *root)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), filled = 0;
    char path[160], link[64], target[160];

    ck_assert_int_ge(full, 0);
    snprintf(path, sizeof(path), "%s/rank.0/stdout", root);
    for (int fd = 3; fd < full; fd++) {
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strcmp(target, path) == 0)
            filled = dup2(full, fd) == fd;
    }
    ck_assert_int_eq(filled, 1);
    close(full);
}

static void lose_files(const char *script, int code, const char *report)
{
    char want[512];
    struct fixture f;

    fixture_open(&f);
    config.output_dir = f.root;
    start(script);
    fill_disk(f.root);
    snprintf(
        want, sizeof(want),
        "log: test: error: output of rank 0 cannot be written to its file; the "
        "files end here, the terminal goes on: No space left on device\n"
        "%s",
        report);
    finish(code, "[0]<stdout>:up\n[0]<stdout>:more\n", want);
    fixture_close(&f);
}

START_TEST(lost_files)
{
    lose_files("hello;launch;started;out 0 1 up;out 0 1 more;exit 0 0;"
               "exit 1 0;done;eof",
               125, "");
}
END_TEST

START_TEST(lost_files_and_a_failure)
{
    lose_files("hello;launch;started;out 0 1 up;out 0 1 more;exit 1 7;"
               "kill 60000;ours 0 143;done;eof",
               7,
               "hvdrun: rank 1 on host a (pid 101) failed: exit code 7\n"
               "hvdrun: ended the other rank; exit code 7\n");
}
END_TEST

START_TEST(closed_stdout)
{
    close(out_fd[0]);
    start("hello;launch;started;out 0 1 up;kill 60000;ours 0 143;"
          "ours 1 143;done;eof");
    finish(141, "", "");
}
END_TEST

static void open_stdin(const char *text)
{
    int fds[2];

    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    ck_assert_int_eq(write(fds[1], text, strlen(text)), (ssize_t)strlen(text));
    close(fds[1]);
    ck_assert_int_eq(dup2(fds[0], 0), 0);
    close(fds[0]);
}

START_TEST(forwards_stdin)
{
    open_stdin("some text");
    config.stdin_rank = 1;
    start("hello;launch;started;stdin 1 some text;stdineof 1;exit 0 0;"
          "exit 1 0;done;eof");
    finish(0, "", "");
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, success);
    tcase_add_test(tc, first_failure_decides);
    tcase_add_test(tc, culprit_ends_later);
    tcase_add_test(tc, culprit_ends_with_success);
    tcase_add_test(tc, culprit_does_not_end);
    tcase_add_test(tc, signal_while_a_culprit_is_waited_for);
    tcase_add_test(tc, signalled_rank);
    tcase_add_test(tc, launch_failed);
    tcase_add_test(tc, other_version);
    tcase_add_test(tc, not_an_agent);
    tcase_add_test(tc, agent_dies_at_once);
    tcase_add_test(tc, agent_lost);
    tcase_add_test(tc, agent_quits);
    tcase_add_test(tc, agent_quits_without_a_reason);
    tcase_add_test(tc, foreign_rank);
    tcase_add_test(tc, rank_exits_twice);
    tcase_add_test(tc, done_without_exits);
    tcase_add_test(tc, no_agent_program);
    tcase_add_test(tc, bad_output_dir);
    tcase_add_test(tc, start_timeout);
    tcase_add_test(tc, timeout);
    tcase_add_test(tc, signal_ends_with_grace);
    tcase_add_test(tc, sender_of_a_signal);
    tcase_add_test(tc, second_signal_kills);
    tcase_add_test(tc, signal_before_the_start);
    tcase_add_test(tc, signal_after_failure);
    tcase_add_test(tc, signals_are_forwarded);
    tcase_add_test(tc, prints_in_order);
    tcase_add_test(tc, lost_files);
    tcase_add_test(tc, lost_files_and_a_failure);
    tcase_add_test(tc, closed_stdout);
    tcase_add_test(tc, forwards_stdin);
}

int main(int argc, char *argv[])
{
    return job_util_main("job", add_tests, argc, argv);
}
