/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/elastic/job_leave.c in a job on two hosts, a with the ranks 0 and 1,
 * b with 2 and 3, with scripted agents (fake_agent.h): rank 0 says "up" when it
 * is time to ask for something.
 */
#include "lib/job/job_impl.h"
#include "tests/unit/job_util.h"

#include <signal.h>
#include <string.h>

#define BEGIN "started;ready 0;ready 1;generation 1 4 0,1,2,3;out 0 1 up;"
#define BEGIN_B "started;ready 2;ready 3;generation 1 4 0,1,2,3;"
#define GOES "host b goes in 60 s (a test)"

static void go(int min_np, const char *a, const char *b)
{
    use_hosts(2);
    config.spec.elastic = 1;
    config.min_np = min_np;
    config.reset_limit = -1;
    config.elastic_timeout_ms = 600000;
    script_of("a", a);
    script_of("b", b);
    start("hello;launch");
    wait_for_output("up");
}

static void ends(int code, const char *want_err)
{
    finish(code, "[0]<stdout>:up\n", want_err);
}

START_TEST(a_host_goes)
{
    go(2,
       BEGIN "change 1;progress 1;ready 0;ready 1;generation 2 0 0,1 " GOES
             ";exit 0 0;exit 1 0;done;eof",
       BEGIN_B "notice 2 55000;notice 3 55000;change 1;progress 1;ready "
               "2;ready 3;removed 2 " GOES ";removed 3 " GOES
               ";exit 2 0;exit 3 0;done;eof");
    job_host_goes(job, 1, 60000, "a test");
    job_host_goes(job, 1, 60000, "another"); /* changes nothing */
    ends(0, "hvdrun: " GOES ": its 2 ranks leave at the next commit\n"
            "hvdrun: 4 -> 2 ranks (generation 2)\n");
}
END_TEST

#define DIED_3 "rank 3 on host b (pid 103): killed by signal 9 (SIGKILL)"

/* A rank that waits to be started again on a host that goes is not, and the
 * host's agent ends when its last rank has. */
START_TEST(a_host_goes_with_a_pending_rank)
{
    config.spec.restart = 1;
    config.restart_failed = 1;
    make_barrier();
    go(2,
       BEGIN "abort 3;out 0 1 lost;ready 0;ready 1;generation 2 0 0,1,2 " DIED_3
             ";change 2;progress 2;ready 0;ready 1;generation 3 0 0,1 " GOES
             ";barrier 2;exit 0 0;exit 1 0;kill 60000;done;eof",
       BEGIN_B "dies 3 ;notice 2 55000;ready 2;generation 2 0 0,1,2 " DIED_3
               ";change 2;progress 2;ready 2;removed 2 " GOES
               ";exit 2 0;kill 60000;barrier 2;done;eof");
    wait_for_output("lost");
    job_host_goes(job, 1, 60000, "a test");
    finish_saying(0, "hvdrun: " GOES ": its 1 rank leaves at the next commit\n"
                     "hvdrun: " GOES ": 1 rank is not started again\n");
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "expected"));
}
END_TEST

#define GOES_LATER "host b goes in 3e+03 s (a test)"

/* The agent of a host is told that it goes before the other host has started:
 * its ranks, or all, are never let in. */
START_TEST(a_host_goes_at_the_start)
{
    make_barrier();
    go(_i ? 3 : 2,
       _i ? "barrier 2;pause 50;started;ready 0;ready 1;out 0 1 up;"
            "notice 0 2995000;notice 1 2995000;removed 0 " GOES_LATER
            ";removed 1 " GOES_LATER ";exit 0 0;exit 1 0;done;eof"
          : "barrier 2;pause 50;started;ready 0;ready 1;generation 1 2 0,1;"
            "out 0 1 up;exit 0 0;exit 1 0;done;eof",
       "started;going 3000000 a test;barrier 2;ready 2;ready 3;"
       "notice 2 2995000;notice 3 2995000;removed 2 " GOES_LATER
       ";removed 3 " GOES_LATER ";exit 2 0;exit 3 0;done;eof");
    finish_saying(_i ? 75 : 0, "hvdrun: " GOES_LATER);
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "expected"));
}
END_TEST

/* How a rank ends that has left does not matter. */
START_TEST(a_leaver_fails)
{
    static const int rank[] = {3};

    go(2,
       BEGIN
       "change 1;progress 1;ready 0;ready 1;generation 2 0 0,1,2 it has to;"
       "pause 100;exit 0 0;exit 1 0;done;eof",
       BEGIN_B "notice 3 -1;change 1;progress 1;ready 2;ready 3;generation 2 0 "
               "0,1,2 it has to;"
               "removed 3 it has to;exit 3 9;exit 2 0;done;eof");
    ck_assert_int_eq(job_remove_ranks(job, rank, 1, -1, "it has to"), 0);
    ends(0, "hvdrun: 4 -> 3 ranks (generation 2)\n"
            "hvdrun: rank 3 on host b (pid 103): exit code 9\n");
}
END_TEST

/* A rank that does not commit is killed at its deadline, and has died. */
START_TEST(a_deadline)
{
    static const int rank[] = {3};

    go(2,
       BEGIN "change 1;abort 3;ready 0;ready 1;generation 2 0 0,1,2 rank 3 on "
             "host b (pid 103): killed by signal 9 (SIGKILL);exit 0 0;exit 1 "
             "0;done;eof",
       BEGIN_B "notice 3 50;change 1;evict 3 by hvdrun: has not left at a "
               "commit in time;"
               "dies 3 ;ready 2;generation 2 0 0,1,2 rank 3 on host b (pid "
               "103): killed by signal 9 (SIGKILL);exit 2 0;done;eof");
    ck_assert_int_eq(job_remove_ranks(job, rank, 1, 50, "it has to"), 0);
    finish_saying(0, "4 -> 3 ranks (generation 2), stopped for");
}
END_TEST

/* It is killed, too, if it does not exit after it has left. */
START_TEST(a_leaver_stays)
{
    static const int rank[] = {3};

    go(2,
       BEGIN
       "change 1;progress 1;ready 0;ready 1;generation 2 0 0,1,2 it has to;"
       "pause 200;exit 0 0;exit 1 0;done;eof",
       BEGIN_B "notice 3 100;change 1;progress 1;ready 2;ready 3;generation 2 "
               "0 0,1,2 it has to;"
               "removed 3 it has to;evict 3 by hvdrun: has not exited in time "
               "after leaving;dies 3 ;exit 2 0;done;eof");
    ck_assert_int_eq(job_remove_ranks(job, rank, 1, 100, "it has to"), 0);
    ends(0, "hvdrun: 4 -> 3 ranks (generation 2)\n"
            "hvdrun: rank 3 on host b (pid 103): killed by signal 9 "
            "(SIGKILL)\n");
}
END_TEST

#define WOULD_BE_FEW                                                           \
    "hvdrun: " GOES ": all ranks stop at the next commit, or are ended in 55 " \
    "s\n"

/* If too few ranks would stay, all stop. */
START_TEST(too_few_would_stay)
{
    go(3,
       BEGIN "notice 0 55000;notice 1 55000;change 1;progress 1;ready 0;ready "
             "1;removed 0 " GOES ";removed 1 " GOES
             ";exit 0 0;exit 1 0;done;eof",
       BEGIN_B "notice 2 55000;notice 3 55000;change 1;progress 1;ready "
               "2;ready 3;removed 2 " GOES ";removed 3 " GOES
               ";exit 2 0;exit 3 0;done;eof");
    job_host_goes(job, 1, 60000, "a test");
    ends(75, WOULD_BE_FEW "hvdrun: 4 ranks have stopped at a commit: exit code "
                          "75\n");
}
END_TEST

#define STOPS                                                                 \
    "hvdrun: SIGTERM: all ranks stop at the next commit, or are ended in 60 " \
    "s\n"

/* A rank that fails then, for example to save its state, counts. */
START_TEST(a_signal_stops_it)
{
    config.stop_at_commit = 1;
    go(4,
       BEGIN "notice 0 60000;notice 1 60000;change 1;progress 1;ready 0;ready "
             "1;removed 0 "
             "SIGTERM;removed 1 SIGTERM;"
             "exit 0 0;exit 1 0;done;eof",
       _i ? BEGIN_B
           "notice 2 60000;notice 3 60000;change 1;progress 1;ready 2;ready "
           "3;removed 2 SIGTERM;removed 3 SIGTERM;"
           "pause 50;exit 2 0;exit 3 4;kill 60000;done;eof"
          : BEGIN_B
           "notice 2 60000;notice 3 60000;change 1;progress 1;ready 2;ready "
           "3;removed 2 SIGTERM;removed 3 SIGTERM;"
           "exit 2 0;exit 3 0;done;eof");
    job_signal(job, SIGTERM, NULL);
    if (_i)
        finish_saying(4, "rank 3 on host b (pid 103) failed: exit code 4");
    else
        ends(75,
             STOPS "hvdrun: 4 ranks have stopped at a commit: exit code 75\n");
}
END_TEST

/* Agents that could start ranks again are ended when no rank runs any more; one
 * that is lost then changes nothing. */
START_TEST(agents_that_wait_are_ended)
{
    config.stop_at_commit = 1;
    config.spec.restart = 1;
    go(4,
       BEGIN "notice 0 60000;notice 1 60000;change 1;progress 1;ready 0;ready "
             "1;removed 0 "
             "SIGTERM;removed 1 SIGTERM;"
             "exit 0 0;exit 1 0;kill 60000;done;eof",
       _i ? BEGIN_B
           "notice 2 60000;notice 3 60000;change 1;progress 1;ready 2;ready "
           "3;removed 2 SIGTERM;removed 3 SIGTERM;"
           "pause 50;exit 2 0;exit 3 0"
          : BEGIN_B
           "notice 2 60000;notice 3 60000;change 1;progress 1;ready 2;ready "
           "3;removed 2 SIGTERM;removed 3 SIGTERM;"
           "pause 50;exit 2 0;exit 3 0;kill 60000;done;eof");
    job_signal(job, SIGTERM, NULL);
    ends(75, STOPS "hvdrun: 4 ranks have stopped at a commit: exit code 75\n");
}
END_TEST

/* An agent whose ranks have stopped quits: the others may take their time. */
START_TEST(an_agent_quits_after_the_stop)
{
    config.stop_at_commit = 1;
    config.spec.restart = 1;
    make_barrier();
    go(4,
       BEGIN "notice 0 60000;notice 1 60000;change 1;progress 1;ready 0;ready "
             "1;removed 0 SIGTERM;removed 1 SIGTERM;barrier 2;exit 0 0;"
             "exit 1 0;kill 60000;done;eof",
       BEGIN_B "notice 2 60000;notice 3 60000;change 1;progress 1;ready 2;"
               "ready 3;removed 2 SIGTERM;removed 3 SIGTERM;"
               "exit 2 0;exit 3 0;quit it got SIGTERM");
    job_signal(job, SIGTERM, NULL);
    while (!job->hosts[1].quitting)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(job->state, JOB_RUNNING);
    pass_barrier();
    ends(75, STOPS "hvdrun: 4 ranks have stopped at a commit: exit code 75\n");
}
END_TEST

#define LATE "by hvdrun: has not left at a commit in time"
#define DIED "rank 2 on host b (pid 102): killed by signal 9 (SIGKILL)"

/* The time of a host that goes is not that of the job, which stops as well. */
START_TEST(a_host_goes_before_the_job_stops)
{
    go(1,
       BEGIN "change 1;notice 0 60000;notice 1 60000;abort 2;abort 3;ready 0;"
             "ready 1;generation 2 0 0,1 " DIED ";change 2;progress 2;"
             "ready 0;ready 1;"
             "removed 0 it stops;removed 1 it stops;exit 0 0;exit 1 0;done;eof",
       BEGIN_B "notice 2 80;notice 3 80;change 1;evict 2 " LATE ";evict 3 " LATE
               ";dies 2 ;dies 3 ;done;eof");
    job_host_goes(job, 1, 100, "a test");
    ck_assert_int_eq(job_stop_at_commit(job, 60000, 1, "it stops"), 0);
    finish_saying(75, "2 ranks have stopped at a commit: exit code 75");
}
END_TEST

/* They do not commit in time, or the user does not want to wait. */
START_TEST(they_do_not_stop)
{
    config.stop_at_commit = 1;
    config.spec.grace_ms = _i ? 60000 : 50;
    go(2,
       _i ? BEGIN "notice 0 60000;notice 1 60000;change 1;out 0 1 on;eof"
          : BEGIN "notice 0 50;notice 1 50;change 1;out 0 1 on;eof",
       _i ? BEGIN_B "notice 2 60000;notice 3 60000;change 1;eof"
          : BEGIN_B "notice 2 50;notice 3 50;change 1;eof");
    job_signal(job, SIGTERM, NULL);
    wait_for_output("on");
    if (_i) {
        job_signal(job, SIGTERM, NULL);
        job_signal(job, SIGTERM, NULL);
    }
    finish_saying(143, _i ? "SIGTERM: ending the job"
                          : "not all ranks have stopped at a commit");
}
END_TEST

START_TEST(what_is_refused)
{
    static const int two[] = {2, 3};

    go(3, BEGIN "signal 10;exit 0 0;exit 1 0;done;eof",
       BEGIN_B "signal 10;exit 2 0;exit 3 0;done;eof");
    ck_assert_int_eq(job_remove_ranks(job, two, 2, -1, "x"), -1);
    job_signal(job, SIGUSR1, NULL);
    finish_saying(0, "");
    ck_assert_int_eq(job_remove_ranks(job, two, 1, -1, "x"), -1);
    ck_assert_int_eq(job_stop_at_commit(job, 0, 1, "x"), -1);
}
END_TEST

/* Lets a rank that fails take its host out, in a job that may get ranks. */
static void use_whole_hosts(void)
{
    config.whole_hosts = 1;
    config.spec.restart = 1;
    config.most = 4;
    config.cooldown_least_ms = config.cooldown_most_ms = 60000;
}

/* A rank does not leave with another of its host if it is needed. */
START_TEST(a_whole_host_is_needed)
{
    use_whole_hosts();
    go(3,
       BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1,2 " DIED_3
             ";exit 0 0;exit 1 0;kill 60000;done;eof",
       BEGIN_B "dies 3 ;ready 2;generation 2 0 0,1,2 " DIED_3
               ";exit 2 0;kill 60000;done;eof");
    finish_saying(0, "4 -> 3 ranks (generation 2)");
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "expected"));
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "elastic-unit"));
}
END_TEST

#define DIED_1 "rank 1 on host a (pid 101): killed by signal 9 (SIGKILL)"

#define LEAVES_WITH_3 DIED_3 ", and its host leaves, too (--elastic-unit)"

/* One that is to leave is needed after all: its host gets ranks again.  When
 * these have made it superfluous, it is replaced, too. */
START_TEST(a_whole_host_comes_to_be_needed)
{
    struct hostlist l = HOSTLIST_INIT;

    use_whole_hosts();
    config.cooldown_least_ms = config.cooldown_most_ms = 1;
    make_barrier();
    go(2,
       BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1,2 " DIED_3
             ";change 2;dies 1 ;ready 0;generation 3 0 0,2 " DIED_1
             ";out 0 1 few;change 3;progress 3;ready 0;"
             "generation 4 1 0,3 " LEAVES_WITH_3
             ";barrier 2;exit 0 0;kill 60000;done;eof",
       BEGIN_B "dies 3 ;notice 2 -1;ready 2;generation 2 0 0,1,2 " DIED_3
               ";change 2;abort 1;ready 2;generation 3 0 0,2 " DIED_1
               ";restart 3;ready 3;change 3;progress 3;ready 2;"
               "generation 4 1 0,3 " LEAVES_WITH_3 ";removed 2 " LEAVES_WITH_3
               ";exit 2 0;restart 2;barrier 2;exit 3 0;kill 60000;"
               "ours 2 143;done;eof");
    wait_for_output("few");
    ck_assert_int_eq(hostlist_parse("b:2,a:1", &l, NULL), 0);
    job_offer_hosts(job, &l);
    hostlist_free(&l);
    finish_saying(0, "host b: starts 1 rank, to join at the next commit");
    ck_assert_msg(!strstr(hb_buf_data(&err), "expected"), "%s",
                  hb_buf_data(&err));
}
END_TEST

#define DIED_2 "rank 2 on host b (pid 102): killed by signal 9 (SIGKILL)"

/* A rank that waits to be started again leaves with its host, too. */
START_TEST(a_pending_rank_leaves_with_its_host)
{
    static const int rank[] = {2};

    config.whole_hosts = config.spec.restart = config.restart_failed = 1;
    go(1,
       BEGIN "abort 3;ready 0;ready 1;generation 2 0 0,1,2 " DIED_3
             ";out 0 1 few;change 2;abort 2;ready 0;ready 1;generation 3 0 "
             "0,1 " DIED_2 ";exit 0 0;exit 1 0;kill 60000;done;eof",
       BEGIN_B "dies 3 ;ready 2;generation 2 0 0,1,2 " DIED_3
               ";notice 2 -1;change 2;dies 2 ;kill 60000;done;eof");
    wait_for_output("few");
    ck_assert_int_eq(job_remove_ranks(job, rank, 1, -1, "it has to"), 0);
    finish_saying(0, "hvdrun: host b: its other 1 rank is not started again "
                     "(--elastic-unit host)\n");
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "expected"));
}
END_TEST

#define FAILED_1 "rank 1 on host a (pid 101): exit code 9"

/* A rank that ends because of another has not failed itself. */
START_TEST(a_rank_blames_another)
{
    config.whole_hosts = 1;
    go(1,
       BEGIN "blames 3;exit 1 9;ready 0;generation 2 0 0,2,3 " FAILED_1
             ";exit 0 0;done;eof",
       BEGIN_B "abort 1;ready 2;ready 3;generation 2 0 0,2,3 " FAILED_1
               ";exit 2 0;exit 3 0;done;eof");
    finish_saying(0, "4 -> 3 ranks (generation 2)");
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "elastic-unit"));
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, a_host_goes);
    tcase_add_test(tc, a_host_goes_with_a_pending_rank);
    tcase_add_loop_test(tc, a_host_goes_at_the_start, 0, 2);
    tcase_add_test(tc, a_leaver_fails);
    tcase_add_test(tc, a_deadline);
    tcase_add_test(tc, a_leaver_stays);
    tcase_add_test(tc, too_few_would_stay);
    tcase_add_loop_test(tc, a_signal_stops_it, 0, 2);
    tcase_add_loop_test(tc, agents_that_wait_are_ended, 0, 2);
    tcase_add_test(tc, an_agent_quits_after_the_stop);
    tcase_add_loop_test(tc, they_do_not_stop, 0, 2);
    tcase_add_test(tc, a_host_goes_before_the_job_stops);
    tcase_add_test(tc, what_is_refused);
    tcase_add_test(tc, a_whole_host_is_needed);
    tcase_add_test(tc, a_whole_host_comes_to_be_needed);
    tcase_add_test(tc, a_pending_rank_leaves_with_its_host);
    tcase_add_test(tc, a_rank_blames_another);
}

int main(int argc, char *argv[])
{
    return job_util_main("job_leave", add_tests, argc, argv);
}
