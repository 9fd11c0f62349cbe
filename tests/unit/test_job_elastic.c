/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/elastic in a job on two hosts, a with the ranks 0 and 1, b with 2 and
 * 3, with scripted agents (fake_agent.h).
 */
#include "tests/unit/job_util.h"

#include <signal.h>
#include <string.h>

#define BEGIN "started;ready 0;ready 1;generation 1 4 0,1,2,3;"
#define BEGIN_B "started;ready 2;ready 3;generation 1 4 0,1,2,3;"
#define KILLED "killed by signal 9 (SIGKILL)"

static void go_elastic(int min_np, const char *a, const char *b)
{
    use_hosts(2);
    config.spec.elastic = 1;
    config.min_np = min_np;
    config.reset_limit = -1;
    if (!config.elastic_timeout_ms)
        config.elastic_timeout_ms = 600000;
    script_of("a", a);
    script_of("b", b);
    start("hello;launch");
}

/* Replaces times by T, as they differ from run to run. */
static void hide_times(char *text)
{
    static const char before[] = "stopped for ";
    char *at = text, *end;

    while ((at = strstr(at, before))) {
        at += strlen(before);
        end = at + strcspn(at, "\n");
        ck_assert(strtod(at, &at) >= 0);
        ck_assert(strncmp(at, " ms\n", 4) == 0 || strncmp(at, " s\n", 3) == 0);
        while (at[-1] != ' ')
            at--;
        *at++ = 'T';
        memmove(at, end, strlen(end) + 1);
    }
}

static void ends(int code, const char *want_err)
{
    finish_saying(code, "");
    hide_times(hb_buf_data(&err));
    ck_assert_str_eq(hb_buf_data(&err), want_err);
}

START_TEST(nobody_dies)
{
    go_elastic(2, BEGIN "exit 0 0;exit 1 0;done;eof",
               BEGIN_B "exit 2 0;exit 3 0;done;eof");
    ends(0, "");
}
END_TEST

START_TEST(a_rank_dies)
{
    go_elastic(2,
               BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1,2 rank 3 on "
                     "host b (pid 103): " KILLED ";exit 0 0;exit 1 0;done;eof",
               BEGIN_B "dies 3 last words;ready 2;generation 2 0 0,1,2 rank 3 "
                       "on host b (pid 103): " KILLED ";exit 2 0;done;eof");
    ends(0, "hvdrun: rank 3 on host b (pid 103): " KILLED "\n"
            "hvdrun: last lines of rank 3's stderr:\n"
            "  last words\n"
            "hvdrun: 4 -> 3 ranks (generation 2), stopped for T\n"
            "hvdrun: finished with 3 of 4 ranks; lost: rank 3 (" KILLED ")\n");
}
END_TEST

/* The ranks of a lost host are gone at once. */
START_TEST(a_host_is_lost)
{
    go_elastic(2,
               BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1 host b: lost "
                     "the agent: its connection ended;exit 0 0;exit 1 0;done;"
                     "eof",
               BEGIN_B);
    ends(0, "hvdrun: host b: lost the agent: its connection ended; its 2 ranks "
            "are gone\n"
            "hvdrun: 4 -> 2 ranks (generation 2), stopped for T\n"
            "hvdrun: finished with 2 of 4 ranks; lost: ranks 2, 3 (host b: "
            "lost the agent: its connection ended)\n");
}
END_TEST

#define APART \
    "its ranks and those on host a do not reach each other over the network"

/* hvdrun reaches both hosts: the last one is given up. */
START_TEST(hosts_are_apart)
{
    go_elastic(2,
               BEGIN "no-answer 0 2;abort 3;ready 0;ready 1;generation 2 0 0,1 "
                     "host b: " APART ";exit 0 0;exit 1 0;done;eof",
               BEGIN_B "no-answer 3 1;eof");
    ends(0,
         "hvdrun: host b: " APART "; its 2 ranks are gone\n"
         "hvdrun: 4 -> 2 ranks (generation 2), stopped for T\n"
         "hvdrun: finished with 2 of 4 ranks; lost: ranks 2, 3 (host b: " APART
         ")\n");
}
END_TEST

/* Too few would be left: the job ends by it. */
START_TEST(hosts_are_apart_and_all_needed)
{
    go_elastic(4,
               BEGIN "no-answer 0 2;abort 3;kill 0;ours 0 143;ours 1 143;"
                     "done;eof",
               BEGIN_B "eof");
    finish_saying(125, "");
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&err), "host b: " APART));
}
END_TEST

/* Ranks of one host are always together, and other ranks there are none. */
START_TEST(no_answer_of_nobody)
{
    go_elastic(2, BEGIN "no-answer 0 1;pause 900;exit 0 0;exit 1 0;done;eof",
               BEGIN_B "exit 2 0;exit 3 0;done;eof");
    ends(0, "");
}
END_TEST

START_TEST(no_answer_of_a_wrong_rank)
{
    go_elastic(2, BEGIN "pause 100;exit 0 0;exit 1 0;done;eof",
               BEGIN_B "no-answer 2 4");
    finish_saying(0, "");
    ck_assert_ptr_nonnull(
        strstr(hb_buf_data(&err),
               "host b: lost the agent: rank 4 is none of the job"));
}
END_TEST

/* What its ranks do while the agent ends them does not count. */
START_TEST(an_agent_quits)
{
    go_elastic(2,
               BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1 host b: its "
                     "guardian was killed;exit 0 0;exit 1 0;done;eof",
               BEGIN_B "quit its guardian was killed;ready 2;ours 2 143;"
                       "ours 3 143;done;eof");
    ends(0, "hvdrun: host b: its guardian was killed; its 2 ranks are gone\n"
            "hvdrun: 4 -> 2 ranks (generation 2), stopped for T\n"
            "hvdrun: finished with 2 of 4 ranks; lost: ranks 2, 3 (host b: its "
            "guardian was killed)\n");
}
END_TEST

START_TEST(a_host_is_lost_after_its_ranks)
{
    go_elastic(2, BEGIN "pause 200;exit 0 0;exit 1 0;done;eof",
               BEGIN_B "exit 2 0;exit 3 0");
    ends(0, "hvdrun: host b: lost the agent: its connection ended\n");
}
END_TEST

/* Before all ranks run, a lost host ends the job. */
START_TEST(a_host_is_lost_at_the_start)
{
    go_elastic(1, "kill 60000;ours 0 143;ours 1 143;done;eof", "");
    ends(125, "hvdrun: host b: lost the agent: its connection ended; ranks 2, "
              "3 end with it\n"
              "hvdrun: ended 2 other ranks; exit code 125\n");
}
END_TEST

/* A rank that dies before all hosts have started is started again, too. */
START_TEST(a_rank_dies_at_the_start)
{
    config.spec.restart = config.restart_failed = 1;
    make_barrier();
    go_elastic(2,
               "started;dies 1 ;restart 1;barrier 2;ready 0;ready 1;"
               "generation 1 4 0,1,2,3;exit 0 0;exit 1 0;done;eof",
               "barrier 2;" BEGIN_B "exit 2 0;exit 3 0;done;eof");
    finish_saying(0, "hvdrun: rank 1 on host a (pid 101): " KILLED "\n"
                     "hvdrun: rank 1 starts again in ");
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "expected"));
}
END_TEST

START_TEST(all_hosts_are_lost)
{
    go_elastic(1, BEGIN "abort 3", BEGIN_B);
    ends(125, "hvdrun: host b: lost the agent: its connection ended; its 2 "
              "ranks are gone\n"
              "hvdrun: 0 ranks are left, fewer than --min-np 1: the job ends\n"
              "hvdrun: hosts a, b: lost the agent: its connection ended; ranks "
              "0-3 end with it\n");
}
END_TEST

START_TEST(too_few_are_left)
{
    go_elastic(4, BEGIN "abort 3;kill 60000;ours 0 143;ours 1 143;done;eof",
               BEGIN_B "dies 3 ;kill 60000;ours 2 143;done;eof");
    ends(137, "hvdrun: 3 ranks are left, fewer than --min-np 4: the job ends\n"
              "hvdrun: rank 3 on host b (pid 103) failed: " KILLED "\n"
              "hvdrun: ended the other 3 ranks; exit code 137\n");
}
END_TEST

/* The ranks of a program that is not elastic fail one after the other. */
START_TEST(the_first_death_is_the_cause)
{
    go_elastic(2,
               BEGIN "abort 3;blames 3;exit 0 1;abort 3;kill 60000;ours 1 143;"
                     "done;eof",
               BEGIN_B "dies 3 ;pause 100;abort 0;blames 3;exit 2 1;kill 60000;"
                       "done;eof");
    ends(137, "hvdrun: rank 3 on host b (pid 103): " KILLED "\n"
              "hvdrun: rank 0 on host a (pid 100): exit code 1\n"
              "hvdrun: 1 rank is left, fewer than --min-np 2: the job ends\n"
              "hvdrun: rank 3 on host b (pid 103) failed: " KILLED "\n"
              "hvdrun: ranks 0, 2 failed too: exit code 1\n"
              "hvdrun: ended 1 other rank; exit code 137\n");
}
END_TEST

/* A death that the ranks have survived is not the cause of a later end. */
START_TEST(a_survived_death_is_no_cause)
{
    go_elastic(3,
               BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1,2 rank 3 on "
                     "host b (pid 103): " KILLED ";exit 0 7;kill 60000;"
                     "ours 1 143;done;eof",
               BEGIN_B "dies 3 ;ready 2;generation 2 0 0,1,2 rank 3 on host b "
                       "(pid 103): " KILLED ";abort 0;kill 60000;ours 2 143;"
                       "done;eof");
    ends(7, "hvdrun: rank 3 on host b (pid 103): " KILLED "\n"
            "hvdrun: 4 -> 3 ranks (generation 2), stopped for T\n"
            "hvdrun: 2 ranks are left, fewer than --min-np 3: the job ends\n"
            "hvdrun: rank 0 on host a (pid 100) failed: exit code 7\n"
            "hvdrun: ended 2 other ranks; exit code 7\n");
}
END_TEST

/* A rank that has failed after others finished is one that was lost. */
START_TEST(failure_at_the_end)
{
    go_elastic(3, BEGIN "exit 0 0;exit 1 0;done;eof",
               BEGIN_B "exit 2 0;pause 100;exit 3 5;done;eof");
    ends(0, "hvdrun: rank 3 on host b (pid 103): exit code 5\n"
            "hvdrun: finished with 3 of 4 ranks; lost: rank 3 (exit code 5)\n");
}
END_TEST

START_TEST(a_rank_ends_before_hvd_init)
{
    go_elastic(2,
               "started;ready 0;ready 1;generation 1 2 0,1;exit 0 0;exit 1 0;"
               "done;eof",
               "started;exit 2 0;dies 3 ;done;eof");
    ends(0, "hvdrun: rank 3 on host b (pid 103): " KILLED "\n"
            "hvdrun: starting with 2 of 4 ranks (generation 1)\n"
            "hvdrun: finished with 3 of 4 ranks; lost: rank 3 (" KILLED ")\n");
}
END_TEST

START_TEST(a_rank_leaves_and_comes_back)
{
    go_elastic(2,
               BEGIN "ready 0;ready 1;generation 2 0 0,1,2 rank 3 on host b "
                     "(pid 101): has left;change 2;ready 0;ready 1;"
                     "generation 3 0 0,1,2,3 rank 3 on host b (pid 101): is "
                     "ready to join;exit 0 0;exit 1 0;done;eof",
               BEGIN_B "left 3;ready 2;generation 2 0 0,1,2 rank 3 on host b "
                       "(pid 101): has left;ready 3;change 2;ready 2;"
                       "generation 3 0 0,1,2,3 rank 3 on host b (pid 101): is "
                       "ready to join;exit 2 0;exit 3 0;done;eof");
    ends(0, "hvdrun: 4 -> 3 ranks (generation 2)\n"
            "hvdrun: 3 -> 4 ranks (generation 3)\n");
}
END_TEST

/* All leave and begin again: that is no change. */
START_TEST(all_begin_again)
{
    go_elastic(2,
               BEGIN "left 0;left 1;ready 0;ready 1;generation 2 0 0,1,2,3;"
                     "exit 0 0;exit 1 0;done;eof",
               BEGIN_B "left 2;left 3;ready 2;ready 3;generation 2 0 0,1,2,3;"
                       "exit 2 0;exit 3 0;done;eof");
    ends(0, "");
}
END_TEST

/* The time begins with the first rank that waits.  It is the only one here: a
 * second could come too late. */
START_TEST(elastic_timeout)
{
    config.elastic_timeout_ms = 50;
    go_elastic(2,
               BEGIN "ready 1;kill 60000;ours 0 143;ours 1 143;"
                     "done;eof",
               BEGIN_B "kill 60000;ours 2 143;ours 3 143;done;eof");
    ends(124,
         "hvdrun: ranks have waited in hvd_sync for 0.05 s "
         "(--elastic-timeout); not there: rank 0 on host a (pid 100), rank "
         "2 on host b (pid 100), rank 3 on host b (pid 101)\n"
         "hvdrun: ended 4 ranks; exit code 124\n");
}
END_TEST

START_TEST(reset_limit)
{
    use_hosts(2);
    config.spec.elastic = 1;
    config.min_np = 1;
    config.elastic_timeout_ms = 600000;
    script_of("a", BEGIN "abort 3;ready 0;ready 1;kill 60000;ours 0 143;"
                         "ours 1 143;done;eof");
    script_of("b", BEGIN_B "dies 3 ;ready 2;kill 60000;ours 2 143;done;eof");
    start("hello;launch");
    ends(1, "hvdrun: rank 3 on host b (pid 103): " KILLED "\n"
            "hvdrun: the job ends, because --reset-limit 0 allows no "
            "generation 2: rank 3 on host b (pid 103): " KILLED "\n"
            "hvdrun: rank 3 failed too: " KILLED "\n"
            "hvdrun: ended the other 3 ranks; exit code 1\n");
}
END_TEST

START_TEST(a_signal_ends_it)
{
    go_elastic(1,
               BEGIN "abort 3;out 0 1 up;kill 60000;ours 0 143;ours 1 143;"
                     "done;eof",
               BEGIN_B "dies 3 ;kill 60000;ours 2 143;done;eof");
    wait_for_output("up");
    job_signal(job, SIGTERM, NULL);
    ends(143, "hvdrun: rank 3 on host b (pid 103): " KILLED "\n"
              "hvdrun: SIGTERM: ending the job (once more: kill it at once)\n");
}
END_TEST

/* An agent that speaks of another's ranks is lost. */
START_TEST(ready_for_another_host)
{
    go_elastic(1,
               "started;ready 0;ready 1;generation 1 2 0,1;exit 0 0;exit 1 "
               "0;done;eof",
               "started;pause 100;ready 0;eof");
    ends(0, "hvdrun: host b: lost the agent: speaks of rank 0, not its own; "
            "its 2 ranks are gone\n"
            "hvdrun: starting with 2 of 4 ranks (generation 1)\n"
            "hvdrun: finished with 2 of 4 ranks; lost: ranks 2, 3 (host b: "
            "lost the agent: speaks of rank 0, not its own)\n");
}
END_TEST

START_TEST(ready_in_another_job)
{
    start("hello;launch;started;ready 0;eof");
    finish(125, "",
           "hvdrun: host a: lost the agent: rank 0 waits for a generation, but "
           "the job is not elastic; ranks 0, 1 end with it\n");
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, nobody_dies);
    tcase_add_test(tc, a_rank_dies);
    tcase_add_test(tc, a_host_is_lost);
    tcase_add_test(tc, hosts_are_apart);
    tcase_add_test(tc, hosts_are_apart_and_all_needed);
    tcase_add_test(tc, no_answer_of_nobody);
    tcase_add_test(tc, no_answer_of_a_wrong_rank);
    tcase_add_test(tc, an_agent_quits);
    tcase_add_test(tc, a_host_is_lost_after_its_ranks);
    tcase_add_test(tc, a_host_is_lost_at_the_start);
    tcase_add_test(tc, all_hosts_are_lost);
    tcase_add_test(tc, too_few_are_left);
    tcase_add_test(tc, the_first_death_is_the_cause);
    tcase_add_test(tc, a_survived_death_is_no_cause);
    tcase_add_test(tc, failure_at_the_end);
    tcase_add_test(tc, a_rank_ends_before_hvd_init);
    tcase_add_test(tc, a_rank_leaves_and_comes_back);
    tcase_add_test(tc, all_begin_again);
    tcase_add_test(tc, elastic_timeout);
    tcase_add_test(tc, reset_limit);
    tcase_add_test(tc, a_signal_ends_it);
    tcase_add_test(tc, a_rank_dies_at_the_start);
    tcase_add_test(tc, ready_for_another_host);
    tcase_add_test(tc, ready_in_another_job);
}

int main(int argc, char *argv[])
{
    return job_util_main("job_elastic", add_tests, argc, argv);
}
